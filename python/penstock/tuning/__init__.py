"""The tuner: finds the fastest algorithm for every operation and size on this machine (HAN, section III).

A task is one stage of a segment on each level, all at the same time. The tuner measures the tasks of each algorithm in
sequence: every rank starts a task when it has finished the previous one. Equations (3) and (4) predict the time of whole
collectives from them. Candidates that may be the fastest, by that prediction and by smaller sizes, race against MPI's own
collective: they are measured in turns, and slow ones drop out. The noise of the machine is measured first. Penstock's
default is replaced only by a candidate that is faster beyond the noise; this paired comparison is called a duel (`decide`).
"""

from penstock.tuning.outcome import Outcome, median_gain
from penstock.tuning.search import TuningRequest, run, sizes_between
from penstock.tuning.table import write_table

__all__ = ["Outcome", "TuningRequest", "median_gain", "run", "sizes_between", "write_table"]
