"""Names to checkpoints, checkpoints to models."""
