"""Requests in waves: all that is due at once goes out together, as files, batches or shards, and comes back so."""
