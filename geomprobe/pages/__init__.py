"""Pages out of runs."""
