"""Run folders: reading needs neither torch nor the model."""
