"""Questions, grades and outcomes, datasets, tables, imports, and run folders.

`Question`, `Grade` and `Outcome` are exported here and need only the standard library. The modules:

- `refusal_index.data.tables`: reads CSV, JSON Lines, Parquet and data in memory; writes files;
- `refusal_index.data.outcome_table`: the outcome table and the confidence table;
- `refusal_index.data.datasets`: questions; `refusal_index.data.imports`: other tools' results;
- `refusal_index.data.rates`: outcome tables to counts and matrices;
- `refusal_index.data.folder`, `refusal_index.data.run_json`: the folder of a run, several runs to compare, and
  settings.
"""

from refusal_index.data.outcome import Grade, Outcome, Question

__all__ = ["Grade", "Outcome", "Question"]
