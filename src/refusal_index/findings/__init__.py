"""What outcome tables show: summaries, comparisons, gates, plans."""
