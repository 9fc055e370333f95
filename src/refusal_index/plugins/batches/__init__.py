"""Requests in rounds: all pending ones are sent together, as files, batches or shards."""
