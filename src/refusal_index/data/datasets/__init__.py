"""The questions, from their official sources or from a file, checked by checksum.

- `published`: SimpleQA, FaithEval and sets of PreciseWikiQA;
- `own`: any CSV, JSON Lines or Parquet file of questions and answers;
- `dataset`: what a dataset is, a sample of it, and a mix of several;
- `registry`: the datasets by name, those of plugins included, such as the almanac.
"""

from refusal_index.data.datasets.dataset import Dataset, DatasetError, GraderName, mix, sample
from refusal_index.data.datasets.registry import dataset_names, load_dataset

__all__ = ["Dataset", "DatasetError", "GraderName", "dataset_names", "load_dataset", "mix", "sample"]
