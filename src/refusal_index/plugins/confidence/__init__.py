"""Scores of how likely an answer is right: one module a method, from what a run holds to the confidence table."""
