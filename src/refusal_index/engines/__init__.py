"""Who carries the protocol's requests to a model."""
