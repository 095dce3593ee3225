"""One name for every data set and metric, whatever a table or a user calls it."""

import re

from ntkscore.data.datasets import DATASETS


def dataset_name(name: str) -> str:
    """The one name of a data set, whatever its spelling; an unknown one in lower case.

    Example:
        >>> dataset_name("CIFAR-10"), dataset_name("ImageNet"), dataset_name("SVHN")
        ('cifar10', 'imagenet16-120', 'svhn')
    """
    spelling = _squeezed(name)
    for known, dataset in DATASETS.items():
        if spelling == _squeezed(known) or spelling in dataset.aliases:
            return known
    return name.strip().lower()


def _squeezed(name: str) -> str:
    return re.sub("[-_]", "", name.strip().lower())


def metric_name(name: str) -> str:
    """The one name of a metric, whatever its spelling; an unknown one in lower case.

    Example:
        >>> metric_name("clean"), metric_name("pgd8"), metric_name("AA")
        ('val_acc', 'val_pgd_8_acc', 'autoattack')
    """
    key = name.strip().lower()
    if key in ("clean", "acc", "accuracy", "val_acc"):
        return "val_acc"
    if key in ("aa", "auto_attack", "auto-attack", "autoattack"):
        return "autoattack"
    match = re.fullmatch(r"(?:val_)?(fgsm|pgd)[-_]?(\d+)(?:\.0)?(?:/255)?(?:_acc)?", key)
    return "val_{}_{}_acc".format(*match.groups()) if match else key
