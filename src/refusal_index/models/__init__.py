"""Clients of models: requests, responses, retries, settings, OpenAI-compatible servers and Python functions."""
