"""Studies of what follows from scores: training by β, DARTS cells, predictions from few labels."""

from experiments.frame import Study
from experiments.further import (
    beyond_accuracy,
    darts_measures,
    default_order,
    devices,
    few_labels,
    leave_one_out,
    more_seeds,
    training_beta,
)

FURTHER: dict[str, Study] = {
    "training-beta": training_beta.STUDY,
    "darts-measures": darts_measures.STUDY,
    "few-labels": few_labels.STUDY,
    "devices": devices.STUDY,
    "default-order": default_order.STUDY,
    "beyond-accuracy": beyond_accuracy.STUDY,
    "more-seeds": more_seeds.STUDY,
    leave_one_out.RISKS: leave_one_out.RISKS_STUDY,
    "leave-one-out": leave_one_out.STUDY,
}
