"""Input pipelines: training samples, read and decoded in parallel with the computation."""

from penstock.dataset.images import decode_image, decoder_names
from penstock.dataset.index import IndexSummary, build_index
from penstock.dataset.iteration import Interrupted
from penstock.dataset.pipeline import Dataset, TreeDataset
from penstock.dataset.statistics import Skipped, SkippedSamples, Stats

__all__ = [
    "Dataset",
    "IndexSummary",
    "Interrupted",
    "Skipped",
    "SkippedSamples",
    "Stats",
    "TreeDataset",
    "build_index",
    "decode_image",
    "decoder_names",
]
