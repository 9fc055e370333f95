"""Confidence scores: how likely each answer of a run is right, and the threshold from which to answer."""
