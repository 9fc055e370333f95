"""Looking at a run before it is over, and stopping it once something is certain."""
