"""Every figure and table of the main paper, and what its kernels do under other settings."""

from experiments.frame import Study

PAPER: dict[str, Study] = {}
