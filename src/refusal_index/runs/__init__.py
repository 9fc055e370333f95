"""What users do, as functions that print nothing: evaluate, force, regrade, build, run a set, estimate a run.

The functions take settings, return values and report progress to a callback. None of them writes to the terminal.
"""
