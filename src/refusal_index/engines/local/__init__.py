"""The engine within this process: embedded models and functions, without Inspect."""
