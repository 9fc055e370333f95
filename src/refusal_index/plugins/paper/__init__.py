"""The paper's own prompts, made from a user's copy of its LaTeX source; no text of the paper is in this package."""
