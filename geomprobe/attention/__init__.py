"""Watching a model's attention."""
