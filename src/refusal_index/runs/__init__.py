"""What a user does, as functions that print nothing: evaluate, force, regrade, build, a set of runs, a dry run.

They take settings and return values, tell a callback how far they have come, and know no terminal.
"""
