"""Texts to windows of classed tokens."""
