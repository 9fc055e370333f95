"""How the embedded models were made. Nothing in the package imports this folder."""
