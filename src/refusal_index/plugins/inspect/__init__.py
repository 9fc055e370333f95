"""Inspect: tasks for its command line, and its logs."""
