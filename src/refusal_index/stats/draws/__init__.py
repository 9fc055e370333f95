"""Repeated draws: the corrected Refusal Index, and rank correlations of frequencies."""
