"""Questions, grades and outcomes, the outcome table, and the reader of every other table.

The three records are exported here and need nothing but the standard library. The rest is imported by module:

- `refusal_index.data.tables`: CSV, JSON Lines, Parquet and data in memory, read and written;
- `refusal_index.data.outcome_table`: the outcome table and the confidence table;
- `refusal_index.data.datasets`: questions; `refusal_index.data.imports`: other tools' results;
- `refusal_index.data.rates`: from outcome tables to counts and matrices;
- `refusal_index.data.folder`, `refusal_index.data.run_json`: the folder of a run, runs side by side, and settings.
"""

from refusal_index.data.outcome import Grade, Outcome, Question

__all__ = ["Grade", "Outcome", "Question"]
