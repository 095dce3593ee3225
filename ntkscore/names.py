"""One name for every data set and metric, whatever a table or a user calls it."""

import re


def dataset_name(name: str) -> str:
    """The one name of a data set: `cifar10`, `cifar100`, `imagenet16-120`, or its own."""
    key = name.strip().lower()
    if re.fullmatch(r"imagenet([-_]?16)?([-_]?120)?", key):
        return "imagenet16-120"
    return re.sub(r"^cifar[-_](?=\d+$)", "cifar", key)


def metric_name(name: str) -> str:
    """The one name of a metric: `clean` is `val_acc`, `pgd8` is `val_pgd_8_acc`, and so on."""
    key = name.strip().lower()
    if key in ("clean", "acc", "accuracy", "val_acc"):
        return "val_acc"
    if key in ("aa", "auto_attack", "auto-attack", "autoattack"):
        return "autoattack"
    match = re.fullmatch(r"(?:val_)?(fgsm|pgd)[-_]?(\d+)(?:\.0)?(?:/255)?(?:_acc)?", key)
    return "val_{}_{}_acc".format(*match.groups()) if match else key
