"""Engines that send all pending requests together, in rounds: as files, provider batches or shards."""
