"""Inspect as the engine: its providers, retries, cache and logs, driven by the two-pass protocol."""
