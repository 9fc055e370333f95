"""The questions: one module a dataset, each from its official source or from a file, checked by checksum.

- `almanac`: the questions of the embedded closed world; they come with the package;
- `own`: any CSV or JSON Lines file of questions and answers;
- `simpleqa`: OpenAI's SimpleQA, from its official address or a local copy;
- `simpleqa_verified`: Google's SimpleQA Verified, from a local copy.
"""

from refusal_index.datasets.dataset import Dataset, DatasetError, GraderName, sample
from refusal_index.datasets.registry import dataset_names, load_dataset

__all__ = ["Dataset", "DatasetError", "GraderName", "dataset_names", "load_dataset", "sample"]
