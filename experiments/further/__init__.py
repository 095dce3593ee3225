"""Studies of what follows from scores: training by β, predictions from few labels."""

from experiments.frame import Study
from experiments.further import few_labels, training_beta

FURTHER: dict[str, Study] = {
    "training-beta": training_beta.STUDY,
    "few-labels": few_labels.STUDY,
}
