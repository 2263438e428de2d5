"""Accumulators that stream and merge."""
