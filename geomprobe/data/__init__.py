"""Small data that comes with the package."""
