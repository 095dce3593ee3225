"""Architectures and seeds to rows: compiled programs, batches, devices, processes."""

from ntkscore.run.engine import Progress as Progress
from ntkscore.run.engine import run as run
from ntkscore.run.scorer import Scorer as Scorer
from ntkscore.run.selection import select as select
