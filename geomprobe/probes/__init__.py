"""The statistics, one file each."""
