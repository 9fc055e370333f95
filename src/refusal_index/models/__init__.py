"""Who carries the protocol's requests to a model and puts replies into the store: one interface, several engines."""
