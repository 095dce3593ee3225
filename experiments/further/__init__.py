"""Studies of what follows from scores: training by β, DARTS cells, predictions from few labels."""

from experiments.frame import Study

FURTHER: dict[str, Study] = {}
