"""Parts that use the core and that the core can do without."""
