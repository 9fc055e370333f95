"""The shared vocabulary: grades, what became of a question, and the table in which everything meets.

The three records are exported here and need nothing but the standard library. The rest is imported by module:

- `refusal_index.data.tables`: the reader of CSV, JSON Lines, Parquet and data in memory;
- `refusal_index.data.outcome_table`: the outcome table, read, checked and written;
- `refusal_index.data.rates`: from the table to a 2x2 contingency table and its completeness;
- `refusal_index.findings.summary`: every metric of every prompt variant, with warnings;
- `refusal_index.data.folder`: the folder of a run.
"""

from refusal_index.data.outcome import Grade, Outcome, Question

__all__ = ["Grade", "Outcome", "Question"]
