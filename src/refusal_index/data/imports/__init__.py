"""First passes of others: a model's answers and their grades, read from other tools' files.

- `first_pass`: the record, the outcome table that holds such records, and a second file with the forced pass;
- `source`: a file as records, and what kind of file it is, told by its content;
- `graded`: rows of graded answers, as SimpleQA's tools write them, or of answers with a flag for refusals, and the
  words for grades;
- `known`: any of them, and what such a file lacks, filled in from a dataset.

Plugins read other formats: `plugins/inspect` Inspect's logs, `plugins/lm_eval` the samples of lm-evaluation-harness.
"""

from refusal_index.data.imports.first_pass import FirstPass, FirstPassError, from_outcomes, self_contained, to_outcomes
from refusal_index.data.imports.known import FORMATS, ReadOptions, detected_format, read_first_passes

__all__ = [
    "FORMATS",
    "FirstPass",
    "FirstPassError",
    "ReadOptions",
    "detected_format",
    "from_outcomes",
    "read_first_passes",
    "self_contained",
    "to_outcomes",
]
