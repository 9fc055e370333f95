"""Evaluating the checkpoints of a model that is being trained."""
