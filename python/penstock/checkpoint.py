"""Asynchronous checkpoints, restored into any layout on any number of ranks."""

from __future__ import annotations

import atexit
import itertools
import json
import math
import operator
import sys
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

from penstock import _penstock
from penstock.checkpoint_random import RngState
from penstock.checkpoint_schedule import Schedule
from penstock.checkpoint_tree import (
    ArrayInfo,
    Comparison,
    Restorer,
    Shares,
    bits_of,
    check_types,
    encode,
    flatten_layouts,
    leaves,
    matches,
    register_node,
    summary,
)
from penstock.checkpoint_until import Steps, Until
from penstock.communicator import Communicator
from penstock.error import Error
from penstock.layout import DistArray, Layout

if TYPE_CHECKING:
    import signal

    from penstock.checkpoint_cuda import DeviceCopies
    from penstock.checkpoint_tree import Saved
    from penstock.comm import Comm

__all__ = ["ArrayInfo", "CheckpointHandle", "CheckpointInfo", "Checkpointer", "RngState", "register_node"]

_open: weakref.WeakSet[Checkpointer] = weakref.WeakSet()
_numbers = itertools.count()


_REQUIRED: Any = object()
_Default = TypeVar("_Default")


class CheckpointInfo(NamedTuple):
    """What a checkpoint holds. To know it, only the manifest is read."""

    step: int
    nbytes: int  #: of all arrays
    #: By name: "layers/0/w".
    arrays: dict[str, ArrayInfo]
    #: Dictionaries, lists and tuples as saved, with an ArrayInfo for each array; other containers are dictionaries.
    tree: Any
    metrics: dict[str, float]  #: as given to ``save``
    saved_at_s: float  #: seconds since 1970 by the clock of rank 0; 0 if an older Penstock saved it


class CheckpointHandle:
    """A checkpoint in progress. Made by :meth:`Checkpointer.save`."""

    def __init__(self, native: _penstock.CheckpointHandle, stall_s: float, kept: Any = None) -> None:
        self._native = native
        #: Seconds that ``save`` blocked its caller, and waiting for what it had left to the background.
        self.stall_s: float = stall_s
        self._kept = kept  # the memory that is still being copied

    @property
    def step(self) -> int:
        return self._native.step

    @property
    def level(self) -> str:
        """ "copying" (with ``until``), "staged" (copied), "fast" (durable in the burst buffer) or "drained" (durable in the slow tier).

        Without a burst buffer, "fast" and "drained" are reached together.
        """
        return self._native.level

    @property
    def waited_s(self) -> float:
        """Seconds of :attr:`stall_s` in which ``save`` waited for earlier checkpoints, since the staging memory was used up."""
        return self._native.waited_s

    @property
    def failed(self) -> bool:
        """Whether the checkpoint has failed and will never reach the next level."""
        return self._native.failed

    def wait(self, level: str = "drained", timeout_s: float | None = None) -> None:
        """Block until all ranks have reached the level. Releases the GIL.

        Raises the checkpoint's :class:`penstock.Error` if it failed before that level: the original error on the rank
        where it occurred, "peer_failed" on the others. Call it on all ranks or on none. ``wait("staged")`` is local: it waits
        until what was saved may change, which without ``until`` is at once.

        With ``timeout_s``, raises an :class:`penstock.Error` with the code "timed_out" on each rank where the time has passed
        before, such as by storage that hangs. The checkpoint goes on, and may be waited for again.
        """
        begin = time.perf_counter()
        self._native.wait(level, timeout_s)
        if self._kept is not None:
            self._kept = None
            if level == "staged":
                self.stall_s += time.perf_counter() - begin

    def __repr__(self) -> str:
        return f"<checkpoint of step {self.step}, {'failed after ' if self.failed else ''}{self.level}>"


class Checkpointer:
    """Saves checkpoints to one place and restores them: ``Checkpointer("file:///slow/ckpt", burst_buffer="file:///nvme/ckpt")``.

    :meth:`save` returns after one copy of the arrays. Writing, agreement of the ranks, and draining from the burst buffer to
    the slow tier run in the background. A checkpoint exists once all of it is durable. Any number of programs may restore from
    a place. One job at a time saves to it: the first save takes the place over, and from then on all saves of an older job,
    such as one that was thought dead, fail with the code "fenced". The constructor, :meth:`save`, :meth:`restore`, :meth:`finish` and :meth:`close` are
    collective.

    Parameters
    ----------
    url : str
        The slow tier, shared by all ranks: a folder with objects for each checkpoint or, with ``run``, a store.
    burst_buffer : str, optional
        The fast tier. It may be local to each node. No other run may use it. It keeps the newest checkpoint, the newest that
        is drained, and those that are still to be drained. If the job dies before, the next one drains them; see
        :meth:`resume_drains`.
    keep : int, optional
        How many of the newest checkpoints stay in the slow tier. Default: all. An old one is removed only after a newer one
        is drained. One that was superseded is removed once a later save has reached its step.
    keep_every : int, optional
        With ``keep``: checkpoints whose step is a multiple of this stay, too.
    keep_best : tuple of str and int, optional
        With ``keep``: ``("val_loss", 3)`` keeps the 3 checkpoints that are best by this metric, too (see :meth:`save`), until
        the run goes back behind them. Of equally good ones the newest.
    best_mode : "min" or "max"
        Whether the lowest or the highest metric is the best.
    keep_younger_s : float, optional
        With ``keep``: checkpoints saved less than so many seconds before the newest stay, too. The clock at each save counts,
        which the checkpoint holds. If it was wrong or has gone back, more may stay; what the other rules keep is never
        removed.
    comm : penstock.Comm, penstock.Communicator or mpi4py.MPI.Intracomm, optional
        The ranks that save and restore together; it is duplicated. Default: mpi4py's COMM_WORLD if mpi4py.MPI is imported
        and has more than one rank, else this process alone.
    chunk_bytes : int
        Unit of checksums and of reads. A multiple of 64.
    undrained_max : int
        If this many checkpoints wait to be drained, the next save waits for the oldest.
    drain_bytes_per_s : float, optional
        How fast all ranks together drain the burst buffer, each an equal share: it leaves the rest of the slow tier's rate
        to others. Saves that come faster wait, as ``undrained_max`` says. It holds for :meth:`finish`, too.
    partner_copies : bool
        With a burst buffer that is local to nodes: each rank's part is also kept on another node, in the burst buffer of a
        partner there, and "fast" means with its copies. So a checkpoint outlives the loss of a node before it is drained:
        a job on the other nodes, and a new one in the place of the lost node, restores it. No node may have more than half of
        the ranks.
    staging_bytes : int, optional
        How much memory saves may take on this rank for what is copied, but not yet complete in the first tier. While it
        lasts, a save does not wait until the one before is durable; then it does (:attr:`CheckpointHandle.waited_s`). A save
        of more than that is an error. Default: twice this rank's arrays, if half of the memory that is free on the node, or
        below the limit of its control group, divided over the ranks there, holds as much as they take; else as much as they
        take. The second half is taken only by saves that follow each other closely.
    staging_buffers : int, optional
        How many saves may be copied but not yet complete in the first tier. With 1, a save waits for the previous one, with 2
        for the one before that. The more, the later a save raises the failure of an earlier one. Equal on all ranks. Default:
        as many as the staging memory of every rank holds when the first save begins, at most 8.
    run : str, optional
        The slow tier is the store at ``url``, and this is the name of the blob there that holds all checkpoints of the run.
        Each save is one version of it, with a tag such as ``step-300.1-4``. A chunk that has not changed since the
        checkpoint before is not written again. ``penstock store`` sees the checkpoints (``log``, ``check``, ``diff``,
        ``mount``), and a clone of the blob is a branch of the run. What ``penstock checkpoint`` removes is freed at once;
        ``penstock store gc`` keeps all checkpoints. All programs that save to a run give the same ``url`` and ``run``.
    compress_level : int, optional
        With ``run``: what is written to the store is compressed by zstd, from 1 (fast) to 22 (small). Worth it for data that
        repeats itself, such as sparse states and integers, and for slow tiers; trained float32 weights shrink by a few percent.
        Chunks of up to 64 KiB are compressed alone, and unchanged ones are still not written again. The burst buffer is not
        compressed. Needs libzstd.so.1 on the machine; so does reading. Default: none.
    save_on_signal : iterable of signals
        Signals after which a save is :meth:`due`, such as ``(signal.SIGTERM, signal.SIGUSR1)``: many batch systems send one
        before they end a job. They no longer do anything else. Previous handlers come back with :meth:`close`. Only in the
        main thread.
    mtbf_s : float, optional
        The mean time between failures of the whole job, in seconds. Saves are then :meth:`due` at the interval that loses the
        least time, which follows from it and from how long saves take; see :attr:`interval_s`.
    save_every : int, optional
        Saves are :meth:`due` at steps that are multiples of this.
    timeout_s : float, optional
        How long a call waits for storage that hangs: :meth:`save`, whose staging memory earlier saves still take,
        :meth:`CheckpointHandle.wait`, :meth:`finish`, :meth:`close` and the end of a ``with`` block. Then the call raises an
        :class:`penstock.Error` with the code "timed_out"; no rank saves the step of such a ``save``. What is under way goes
        on, and each of these may be called again. Default: no limit. At the end of the program, a checkpointer that is not
        closed waits without a limit.
    """

    def __init__(
        self,
        url: str,
        burst_buffer: str | None = None,
        keep: int | None = None,
        comm: Any = None,
        *,
        keep_every: int | None = None,
        keep_best: tuple[str, int] | None = None,
        best_mode: Literal["min", "max"] = "min",
        keep_younger_s: float | None = None,
        chunk_bytes: int = 256 << 10,
        undrained_max: int = 4,
        drain_bytes_per_s: float | None = None,
        partner_copies: bool = False,
        staging_bytes: int | None = None,
        staging_buffers: int | None = None,
        run: str | None = None,
        compress_level: int | None = None,
        save_on_signal: Iterable[int] = (),
        mtbf_s: float | None = None,
        save_every: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        if keep is not None and keep < 1:
            raise Error(f"keep is {keep}; expected a number of checkpoints from 1 on, or None to keep all")
        if keep_every is not None and keep_every < 1:
            raise Error(f"keep_every is {keep_every}; expected a number of steps from 1 on, or None")
        if keep_best is not None and not (
            isinstance(keep_best, tuple)
            and len(keep_best) == 2
            and isinstance(keep_best[0], str)
            and keep_best[0] != ""
            and isinstance(keep_best[1], int)
            and keep_best[1] >= 1
        ):
            raise Error(
                f"keep_best is {keep_best!r}; expected a metric and a number from 1 on, such as ('val_loss', 3)"
            )
        if best_mode not in ("min", "max"):
            raise Error(f"best_mode is {best_mode!r}; expected 'min' or 'max'")
        if keep_younger_s is not None and not keep_younger_s > 0:
            raise Error(f"keep_younger_s is {keep_younger_s}; expected seconds above 0, or None")
        if drain_bytes_per_s is not None and not 0 < drain_bytes_per_s < math.inf:
            raise Error(f"drain_bytes_per_s is {drain_bytes_per_s}; expected bytes per second above 0, or None")
        if chunk_bytes < 0:
            raise Error(f"chunk_bytes is {chunk_bytes}; expected a multiple of 64 above 0")
        if staging_bytes is not None and staging_bytes < 1:
            raise Error(f"staging_bytes is {staging_bytes}; expected a number of bytes from 1 on, or None")
        if staging_buffers is not None and staging_buffers < 1:
            raise Error(f"staging_buffers is {staging_buffers}; expected a number of saves from 1 on, or None")
        if run == "":
            raise Error("run is ''; expected the name of a blob, or None")
        self._where = (url if run is None else f"{url}, run '{run}'") + (
            "" if burst_buffer is None else f" and {burst_buffer}"
        )
        self._place = (url, burst_buffer or "", run or "")
        self._comm = _penstock_comm(comm)
        core = _core_of(self._comm)
        self._rank, self._ranks = (0, 1) if core is None else (core.rank, core.size)
        self._schedule = Schedule(save_on_signal, mtbf_s, save_every)
        self._native = self._opened(
            url,
            burst_buffer or "",
            keep or 0,
            keep_every or 0,
            chunk_bytes,
            undrained_max,
            staging_bytes or 0,
            staging_buffers or 0,
            run or "",
            keep_best[1] if keep_best else 0,
            keep_best[0] if keep_best else "",
            best_mode == "max",
            keep_younger_s or 0.0,
            drain_bytes_per_s or 0.0,
            partner_copies,
            compress_level or 0,
            timeout_s,
            core,
        )
        #: What the last :meth:`restore` skipped or repaired.
        self.restore_warnings: list[str] = []
        self._steps = Steps()
        self._device_copies: DeviceCopies | None = None
        self._copying: list[CheckpointHandle] = []
        self._number = next(_numbers)
        _open.add(self)

    def _opened(self, *arguments: Any) -> _penstock.Checkpointer:
        # At the end of the program _close_all does it, after the last drain.
        weakref.finalize(self, self._schedule.signals.restore).atexit = False
        try:
            return _penstock.Checkpointer(*arguments)
        except BaseException:
            self._schedule.signals.restore()
            raise

    def due(self, step: int) -> bool:
        """Whether to save now: ``if checkpoints.due(step): checkpoints.save(step, state)``. The same on all ranks.

        It is due if a signal of ``save_on_signal`` has come to any rank since the last call; if, with ``mtbf_s``, the interval
        has passed by the clock of rank 0, or nothing has been saved yet; and at multiples of ``save_every``. Collective: one
        small exchange, so call it once in a step. Signal handlers only count, hence no rank decides alone.
        """
        return self._schedule.due(operator.index(step), self._rank, self._native.any_of)

    @property
    def signals(self) -> frozenset[signal.Signals]:
        """The signals of ``save_on_signal`` that have come to any rank, as of the last :meth:`due`; equal on all ranks.

        ``if signal.SIGTERM in checkpoints.signals: break`` after the save ends a program that is asked to.
        """
        return self._schedule.agreed

    @property
    def interval_s(self) -> float | None:
        """Seconds from one save to the next that lose the least time, by the saves of this rank so far.

        None without ``mtbf_s``, and before the first save. Daly's estimate: about ``sqrt(2 * cost * mtbf_s)``; the cost is the
        median of what the last five saves took from the program (:attr:`CheckpointHandle.stall_s`).
        """
        return self._schedule.interval_s

    def save(
        self,
        step: int,
        tree: Any,
        dataset: Any = None,
        *,
        metrics: Mapping[str, float] | None = None,
        until: Any = None,
    ) -> CheckpointHandle:
        """Save a tree of arrays, and optionally the position of a data loader. Returns once everything is copied.

        The caller may then change its arrays. The call first waits until there is room in the staging memory: see
        ``staging_bytes`` and ``staging_buffers``.

        Parameters
        ----------
        step : int
            Usually ascending. A step that is not above all earlier ones supersedes those that it goes back behind; see
            :meth:`restore`. An existing step is replaced once the new one is drained.
        tree : dict, list, tuple, named tuple, dataclass, node of a registered type, or leaf
            Nested containers with the same structure on all ranks. Dictionary keys are strings or integers. Types are kept
            by name (see :meth:`restore`); :func:`penstock.register_node` adds more. Dictionaries of other types come back as
            ``dict`` (ordered ones as they were), lists and tuples of other types as ``list`` and ``tuple``. A dataclass's
            field with ``metadata={"pytree_node": False}`` that cannot be saved is left out. Leaves:

            - :class:`penstock.DistArray`: every rank passes its part;
            - DTensors of PyTorch, such as FSDP2's state_dicts have, and JAX arrays with any sharding: every rank saves what it
              has, and one rank saves what several have. The ranks are those of the Checkpointer, in the same order;
            - arrays and tensors (NumPy, PyTorch, JAX, DLPack), equal on all ranks: each rank saves a share of each, or of their
              number if they are small;
            - :class:`penstock.RngState`: each rank's generators of random numbers;
            - numbers, strings, bytes, booleans and None: rank 0's is saved.
        dataset : optional
            An object with ``state_dict()`` and ``load_state_dict()``, such as a :class:`penstock.Dataset`; or a state, such as
            :meth:`Dataset.merge_states` makes for ``prefetch(deterministic=False)``.
        metrics : dict of str to float, optional
            How good the checkpoint is, for ``keep_best`` and :meth:`inspect`: ``{"val_loss": 0.3}``. Rank 0's are saved.
            One that is not finite is left out, so such a checkpoint is never among the best.
        until : torch.optim.Optimizer, iterable of them, or "wait", optional
            Return before everything is copied. With optimizers of PyTorch: the tensors that their steps change, parameters and
            states in the memory of the CPU, are copied in the background, and the next ``step()`` of each waits for those that
            are not copied yet, and helps. All else is copied at once. The program must not change these tensors in another way
            before: first call ``handle.wait("staged")``. With "wait" all arrays are copied in the background, and the program
            calls that before it changes any. Default: return after the copy.

        Raises
        ------
        penstock.Error
            An argument cannot be saved; or an earlier checkpoint failed, and no ``wait`` has raised its error. All ranks
            raise from the same call, and no rank saves this step.
        """
        begin = time.perf_counter()
        step = operator.index(step)
        if step < 0 or step >= 1 << 64:
            raise Error(f"step is {step}; expected a number from 0 on")
        arrays: list[Saved] = []
        try:
            shares = Shares(self._rank, self._ranks, self._device_copies)
            if self._device_copies is not None:
                self._device_copies.begin()
            content: dict[str, Any] = {"tree": encode(tree, "", arrays, shares)}
            if dataset is not None:
                state = dataset if isinstance(dataset, dict) else dataset.state_dict()
                if isinstance(state, dict) and state.get("ranks", 1) != 1:
                    raise Error(
                        "the dataset has another state on each rank; pass dataset=data.merge_states(comm.allgather("
                        "data.state_dict()))"
                    )
                content["dataset"] = encode(state, "dataset:", arrays, shares)
            self._device_copies = shares.device_copies
            if self._device_copies is not None:
                self._device_copies.finish()
            waiting = Until(until)
            later = waiting.later(arrays, self._device_copies)
            metadata = json.dumps(content, allow_nan=False)
            numbers = _finite(metrics)
        except Exception as error:
            # The other ranks wait for this one in save.
            self._native.fail_save(step, str(error))
            raise
        native = self._native.save(step, arrays, metadata, numbers, later)
        stall_s = time.perf_counter() - begin
        self._schedule.saved(stall_s)
        handle = CheckpointHandle(native, stall_s, arrays if later else None)
        # The memory is read until it is copied, whatever becomes of the handle.
        self._copying = [one for one in self._copying if one.level == "copying"]
        if later:
            self._copying.append(handle)
            self._steps.wait_for(handle, waiting.optimizers)
        return handle

    @overload
    def restore(
        self,
        layouts: Mapping[str, Any] | None = None,
        step: int | None = None,
        dataset: Any = None,
        *,
        like: Any = ...,
        only: str | Iterable[str] | None = None,
    ) -> tuple[int, Any]: ...

    @overload
    def restore(
        self,
        layouts: Mapping[str, Any] | None = None,
        step: int | None = None,
        dataset: Any = None,
        *,
        like: Any = ...,
        only: str | Iterable[str] | None = None,
        default: _Default,
    ) -> tuple[int, Any] | _Default: ...

    def restore(
        self,
        layouts: Mapping[str, Any] | None = None,
        step: int | None = None,
        dataset: Any = None,
        *,
        like: Any = _REQUIRED,
        only: str | Iterable[str] | None = None,
        default: Any = _REQUIRED,
    ) -> Any:
        """Read the newest complete and intact checkpoint, or the one of ``step``.

        The newest is the one that was saved last. A save after ``restore(step=…)`` begins a new line: it supersedes the
        checkpoints of its own step and of later ones, whatever their steps. These stay, can be restored by their steps, and
        serve if no other is intact. :meth:`restore` skips damaged checkpoints with a warning. If one tier is damaged, it reads the other, with a warning. See
        :attr:`restore_warnings`. Collective, with equal arguments on all ranks.

        Parameters
        ----------
        layouts : dict, optional
            New layouts of distributed arrays, structured as the tree, or flat with "outer/inner" names. A value is a
            :class:`penstock.Layout`, or a :class:`penstock.DistArray` whose memory to fill. Every rank gets the whole of
            an array that is not listed.
        step : int, optional
        dataset : optional
            Its ``load_state_dict`` gets the saved state.
        like : tree, optional
            A tree such as the program saves. Its containers give the types of the result, so no class need be looked up; a
            saved tuple can become a named tuple, a dictionary a dataclass. Its arrays, or anything with ``shape`` and
            ``dtype``, must agree with the saved ones in shape and element type. A :class:`penstock.DistArray` or
            :class:`penstock.Layout` gives a new layout, and a DTensor or JAX array a sharding. Tensors of PyTorch and JAX arrays
            come back as such, on the same devices. It is not changed. The error for a tree that differs names all
            differences.
        only : str or iterable of str, optional
            Shell patterns for names of leaves, such as ``"params/*"`` (``*`` matches "/", too). Nothing else is read. The
            result is then a flat dictionary from name to value or, with ``like``, that tree with these leaves replaced.
        default : optional
            Returned as it is if there is no checkpoint at all. All ranks decide alike, which a test of :attr:`latest` on
            each rank does not guarantee. It is not used for a missing ``step``, for damage, or if a rank cannot look into its
            burst buffer.

        Returns
        -------
        step : int
        tree
            The saved tree with new arrays: :class:`penstock.DistArray` for those that were given a layout, ndarrays
            otherwise.

        Without ``like``, named tuples, dataclasses and registered nodes get the class that the loaded modules have under the
        saved name. Nothing is imported or unpickled. Elements of types that NumPy does not know, such as bfloat16 and
        float8, need ml_dtypes.

        Raises
        ------
        penstock.Error
            "not_found" if there is no checkpoint, "corrupt" if none is intact, "invalid_argument" if a layout or ``like``
            does not fit, or a saved class is not loaded.
        """
        patterns = [only] if isinstance(only, str) else None if only is None else list(only)
        wanted: dict[str, Any] = {}
        flatten_layouts(layouts or {}, "", wanted)
        for name, value in wanted.items():
            if not isinstance(value, (DistArray, Layout)):
                raise Error(f"layouts['{name}'] is a {type(value).__name__}; expected a Layout or a DistArray")
        given = dict(wanted)

        def choose(
            step: int, saved: list[tuple[str, str, _penstock.Layout]], metadata: str
        ) -> tuple[dict[str, Any], dict[str, Any], list[str] | None]:
            content = json.loads(metadata)
            wanted.clear()
            wanted.update(given)
            if like is not _REQUIRED:
                shapes = {name: tuple(Layout(layout).shape) for name, _, layout in saved}
                comparison = Comparison(patterns, shapes)
                comparison.compare(content["tree"], like, "")
                comparison.check()
                for name, layout in comparison.layouts.items():
                    wanted.setdefault(name, layout)
            elif patterns is None:
                check_types(content["tree"], "")
            natives: dict[str, Any] = {}
            into: dict[str, Any] = {}
            for name, value in wanted.items():
                natives[name] = value.layout._native if isinstance(value, DistArray) else value._native
                if isinstance(value, DistArray):
                    into[name] = bits_of(value.local.reshape(-1, order="A"))[0]
            if patterns is None:
                return natives, into, None
            names = [name for name, _, _ in saved if name.startswith("dataset:") or matches(name, patterns)]
            if not any(matches(path or "tree", patterns) for path, _ in leaves(content["tree"], "")):
                known = ", ".join(repr(path) for path, _ in itertools.islice(leaves(content["tree"], ""), 20))
                raise Error(f"only={patterns} matches no leaf of the checkpoint of step {step}; it has {known}, …")
            return natives, into, names

        found = self._native.restore(None if step is None else operator.index(step), choose)
        if found is None:
            if default is not _REQUIRED and step is None:
                return default
            what = "checkpoint" if step is None else f"checkpoint of step {step}"
            raise Error(f"there is no complete {what} at {self._where}", "not_found")
        found_step, saved, metadata, told = found
        self.restore_warnings = told
        for text in told:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        arrays = {name: (dtype, Layout(layout), memory, wanted.get(name)) for name, dtype, layout, memory in saved}
        content = json.loads(metadata)
        restorer = Restorer(arrays, self._rank, patterns)
        if patterns is not None and like is _REQUIRED:
            tree = restorer.selected(content["tree"])
        elif like is _REQUIRED:
            tree = restorer.restore(content["tree"], "")
        else:
            tree = restorer.restore(content["tree"], "", like)
        if dataset is not None:
            if "dataset" not in content:
                raise Error(f"the checkpoint of step {found_step} was saved without a dataset", "not_found")
            dataset.load_state_dict(Restorer(arrays, self._rank).restore(content["dataset"], "dataset:"))
        return found_step, tree

    def inspect(self, step: int | None = None) -> CheckpointInfo:
        """What the newest checkpoint, or that of ``step``, holds: names, types, shapes, plain values. Reads no array. Local.

        Raises
        ------
        penstock.Error
            "not_found", "corrupt".
        """
        return info_of(*self._native.inspect(None if step is None else operator.index(step)))

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints that this rank can see, ascending; also of superseded ones. Local."""
        return self._native.steps()

    @property
    def latest(self) -> int | None:
        """The step of the newest complete checkpoint that this rank can see, or None. Local.

        After a rollback that is not the last of :meth:`steps`; see :meth:`restore`.
        """
        return self._native.latest()

    def delete(self, step: int) -> None:
        """Remove the checkpoint of ``step``, durably, from both tiers. Collective.

        Waits until a save of that step is drained or has failed. Copies in the burst buffers of other nodes count for nothing
        afterwards; the next job frees their space. ``penstock checkpoint remove`` does the same from outside, and fails a save
        that is not drained yet.

        Raises
        ------
        penstock.Error
            On all ranks. "timed_out": the save took longer than the checkpointer's ``timeout_s``, and nothing is removed;
            "not_found": there is none of this step; "mismatch": the ranks passed different steps; what the
            storage reports on rank 0, and "peer_failed" on the others.
        """
        step = operator.index(step)
        if step < 0 or step >= 1 << 64:
            raise Error(f"step is {step}; expected a number from 0 on")
        # A bit is 1 on one rank and 0 on another exactly if some rank has it and some rank has its complement.
        if self._native.any_of(step) & self._native.any_of(~step & (1 << 64) - 1):
            raise Error(f"delete() got step {step} here and another one on another rank; pass the same", "mismatch")
        failure = None
        try:
            self._native.settle(step)
        except Error as error:
            failure = error
        if self._native.any_of(failure is not None):
            raise failure or Error(f"the checkpoint of step {step} still drains on another rank", "timed_out")
        if self._rank == 0:
            try:
                _penstock.remove_checkpoint(*self._place, step)
            except Error as error:
                failure = error
        not_found, failed = 1, 2
        told = self._native.any_of(0 if failure is None else not_found if failure.code == "not_found" else failed)
        if failure is not None:
            raise failure
        if told & not_found:
            raise Error(f"{self._where} has no checkpoint of step {step}", "not_found", 0)
        if told:
            raise Error(f"the checkpoint of step {step} was not removed; rank 0 has the error", "peer_failed", 0)

    @property
    def warnings(self) -> list[str]:
        """Problems that failed no checkpoint, such as an old one that could not be removed. Local."""
        return self._native.warnings()

    def reserve(self, local_nbytes: int, buffers: int = 1) -> None:
        """Allocate and touch memory for saves of ``local_nbytes`` on this rank, so that the first save is no slower. Local.

        ``buffers``, at most ``staging_buffers``: with 2, a save that follows while the first is being written is no slower
        either. Only as much is allocated as ``staging_bytes`` allows.
        """
        self._native.reserve(local_nbytes, buffers)

    def report(self) -> str:
        """Tiers, memory and threads, one fact per line. Local."""
        return self._native.report()

    def resume_drains(self) -> int:
        """Take the place over now, not with the first save, and drain what jobs that have ended left in the burst buffer.

        The newest checkpoint comes first, and what ``keep`` and its companions would remove is not drained. Any number of
        ranks may do so, on the nodes that have it. The first save does the same. Returns how many checkpoints are still to be
        drained, in the background; :meth:`finish` waits for them, and what fails is one of :attr:`warnings`. Collective.
        """
        return self._native.resume_drains()

    def finish(self, timeout_s: float | None = None) -> None:
        """Wait until all checkpoints are drained or failed, and those that are not kept any more are removed.

        Raises the first error that no call has raised. Collective.

        ``timeout_s`` is as for :meth:`CheckpointHandle.wait`; by default it is the checkpointer's.
        """
        self._native.finish(timeout_s)

    def close(self) -> None:
        """Finish, and release all resources. May be called twice. Collective.

        After "timed_out" it is still open, since its threads wait for the storage: call it again.
        """
        self._close(None)

    def _close(self, timeout_s: float | None) -> None:
        if self not in _open:
            return
        _open.discard(self)
        is_late = False
        try:
            self._native.finish(timeout_s)
        except Error as error:
            is_late = error.code == "timed_out"
            raise
        finally:
            if is_late:
                _open.add(self)
            else:
                self._native.close()
                self._schedule.signals.restore()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _finite(metrics: Mapping[str, float] | None) -> dict[str, float]:
    found = {}
    for name, value in (metrics or {}).items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise Error(f"metrics['{name}'] is {value!r}; expected a number") from None
        if not isinstance(name, str):
            raise Error(f"metrics has the name {name!r}; expected strings")
        if math.isfinite(number):
            found[name] = number
    return found


def info_of(
    step: int,
    saved: list[tuple[str, str, _penstock.Layout]],
    metadata: str,
    metrics: dict[str, float],
    saved_at_s: float,
) -> CheckpointInfo:
    """What a manifest says, as the native functions give it."""
    tree, arrays = summary(json.loads(metadata)["tree"], {name: Layout(layout) for name, _, layout in saved})
    nbytes = sum(array.nbytes for array in arrays.values())
    return CheckpointInfo(step, nbytes, arrays, tree, metrics, saved_at_s)


@atexit.register
def _close_all() -> None:
    """Runs before mpi4py finalizes MPI, which the background threads use."""
    for checkpointer in sorted(_open, key=lambda open_one: open_one._number):  # equal order on all ranks
        try:
            checkpointer._close(math.inf)
        except Error as error:
            print(f"penstock: {error}", file=sys.stderr)


def _penstock_comm(comm: Any) -> Any:
    """A penstock.Comm, or None for a single process."""
    if comm is None:
        MPI = sys.modules.get("mpi4py.MPI")
        if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized() or MPI.COMM_WORLD.Get_size() == 1:
            return None
        comm = MPI.COMM_WORLD
    from penstock.comm import Comm

    return comm if isinstance(comm, (Comm, Communicator)) else Comm(comm)


def _core_of(comm: Comm | Communicator | None) -> _penstock.Comm | None:
    if comm is None:
        return None
    return comm._opened if isinstance(comm, Communicator) else comm._open()
