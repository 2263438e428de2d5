"""Edits inside the attention, and what they cost the model."""
