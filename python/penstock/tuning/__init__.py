"""The tuner: which algorithm is the fastest for every operation and size on this machine (paper 001, section III).

Tasks (one stage of a segment on each level, at the same time) are measured for each algorithm, as they follow each other,
so that every rank starts a task when it has ended the one before. Equations (3) and (4) make times of whole collectives
of them. Those that may be the best, by that and by shorter messages, and MPI's own collective race from end to end.
The noise is measured before all that: Penstock's default is left only for what is faster beyond it (`decide`).
"""

from penstock.tuning.outcome import Outcome, median_gain
from penstock.tuning.search import TuningRequest, run, sizes_between
from penstock.tuning.table import write_table

__all__ = ["Outcome", "TuningRequest", "median_gain", "run", "sizes_between", "write_table"]
