"""Penstock moves the data of parallel programs while their cores compute.

Importing it needs neither MPI nor mpi4py: public names are loaded on first use.
"""

from penstock.error import Error

TYPE_CHECKING = False  # type checkers treat it as typing's, whose import would double the import time
if TYPE_CHECKING:
    from penstock import dataset, model, plan, redistribute, trace
    from penstock._penstock import __version__
    from penstock.call import CollectiveOptions
    from penstock.checkpoint import ArrayInfo, Checkpointer, CheckpointHandle, CheckpointInfo, RngState, register_node
    from penstock.comm import Comm
    from penstock.communicator import Communicator, Work
    from penstock.dataset import Dataset, Skipped, SkippedSamples, Stats, TreeDataset
    from penstock.file import File, FileRequest
    from penstock.layout import DistArray, Layout, LayoutBlock
    from penstock.layout_convert import Darray, Subarray
    from penstock.redistribute import (
        Redistribution,
        RedistributionBatch,
        Relabeling,
        RelabelTransfer,
        TransferCost,
        relabel,
        relabel_jointly,
    )
    from penstock.request import Prequest, Request
    from penstock.store import (
        Blob,
        BlobArray,
        BlobInfo,
        CheckReport,
        DamageWarning,
        LogEntry,
        RepairReport,
        Snapshot,
        SnapshotArray,
        Store,
    )

# A public name is listed above, in _PARTS and in __all__. tests/typing/test_names.py compares them.
_PARTS = {
    "_penstock": ("__version__",),
    "call": ("CollectiveOptions",),
    "checkpoint": ("ArrayInfo", "CheckpointHandle", "CheckpointInfo", "Checkpointer", "RngState", "register_node"),
    "comm": ("Comm",),
    "communicator": ("Communicator", "Work"),
    "dataset": ("Dataset", "Skipped", "SkippedSamples", "Stats", "TreeDataset"),
    "file": ("File", "FileRequest"),
    "layout": ("DistArray", "Layout", "LayoutBlock"),
    "layout_convert": ("Darray", "Subarray"),
    "redistribute": (
        "Redistribution",
        "RedistributionBatch",
        "RelabelTransfer",
        "Relabeling",
        "TransferCost",
        "relabel",
        "relabel_jointly",
        "relabel_jointly",
    ),
    "request": ("Prequest", "Request"),
    "store": (
        "Blob",
        "BlobArray",
        "BlobInfo",
        "CheckReport",
        "DamageWarning",
        "LogEntry",
        "RepairReport",
        "Snapshot",
        "SnapshotArray",
        "Store",
    ),
}
_MODULES = ("dataset", "model", "plan", "redistribute", "trace")

__all__ = [
    "ArrayInfo",
    "Blob",
    "BlobArray",
    "BlobInfo",
    "CheckReport",
    "CheckpointHandle",
    "CheckpointInfo",
    "Checkpointer",
    "CollectiveOptions",
    "Comm",
    "Communicator",
    "DamageWarning",
    "Darray",
    "Dataset",
    "DistArray",
    "Error",
    "File",
    "FileRequest",
    "Layout",
    "LayoutBlock",
    "LogEntry",
    "Prequest",
    "Redistribution",
    "RedistributionBatch",
    "RelabelTransfer",
    "Relabeling",
    "RepairReport",
    "Request",
    "RngState",
    "Skipped",
    "SkippedSamples",
    "Snapshot",
    "SnapshotArray",
    "Stats",
    "Store",
    "Subarray",
    "TransferCost",
    "TreeDataset",
    "Work",
    "__version__",
    "dataset",
    "model",
    "plan",
    "redistribute",
    "register_node",
    "relabel",
    "relabel_jointly",
    "trace",
]

if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name
    _HOME = {name: part for part, names in _PARTS.items() for name in names}

    def __getattr__(name):
        import importlib

        if name in _MODULES:
            return importlib.import_module(f"penstock.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"penstock.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
