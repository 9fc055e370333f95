"""The questions: one module a dataset, each from its official source or from a file, checked by checksum.

- `almanac`: the questions of the embedded closed world; they come with the package;
- `faitheval`: FaithEval's three datasets of questions about a text;
- `own`: any CSV, JSON Lines or Parquet file of questions and answers;
- `precise_wiki`: a set of PreciseWikiQA, from a local file;
- `simpleqa`: OpenAI's SimpleQA, from its official address or a local copy;
- `simpleqa_verified`: Google's SimpleQA Verified, from a local copy;
- `mixing`: as many questions of each of several datasets.
"""

from refusal_index.data.datasets.dataset import Dataset, DatasetError, GraderName, mix, sample
from refusal_index.data.datasets.registry import dataset_names, load_dataset

__all__ = ["Dataset", "DatasetError", "GraderName", "dataset_names", "load_dataset", "mix", "sample"]
