"""NARes: wide residual networks trained adversarially on CIFAR-10, a JSON record in each line.

The published archive has one file of hundreds of megabytes, most of it accuracies by epoch. So a
line is read at a time, and only the columns of the table are kept of it.
"""

import hashlib
import itertools
import json
import tarfile
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import IO, Any

from ntkscore.data.datasets import Source
from ntkscore.errors import InputError, altered

DEPTHS, WIDTHS = (4, 5, 7, 9, 11), (8, 10, 12, 14, 16)
"""Blocks and widening factors that each of the three stages may have."""
FILES = "cifar10.jsonl", "nares.txz"
"""The table, and the archive that it is published in."""
SUFFIXES = ".jsonl", ".txz", ".xz"
"""How files of records end, here in lower case."""
_TESTED = {
    "val_acc": "test_clean_acc",
    "val_fgsm_8_acc": "Linf_fgsm_acc",
    "val_pgd_8_acc": "Linf_pgd_acc",
    "val_cw_8_acc": "Linf_cw_acc",
    "autoattack": "Linf_aa_acc",
}
_VALIDATED = {"val_acc": "val_acc", "val_pgd_8_acc": "pgd", "val_cw_8_acc": "cw"}


class Records(list[tuple[str, dict[tuple[str, str], float]]]):
    """Networks in the order of the file, each with its accuracies by data set and metric.

    A name is D₁-D₂-D₃xW₁-W₂-W₃, as `--space wideresnet` writes it. Accuracies are in per cent or
    fractions, as the file has them; those that a record lacks are left out.
    """


def read(path: Path) -> tuple[Records, str]:
    """Read the records of networks in a file of lines of JSON, or in an archive with it.

    Args:
        path: a `.jsonl` file; or a tar archive compressed by xz with a file `cifar10.jsonl`
            anywhere in it, of which nothing is written to disk.

    Returns:
        The records, and the SHA-256 of the file in hexadecimal.
    """
    records, place = Records(), 0
    try:
        with path.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        with _lines(path) as lines:
            for line in lines:
                place += 1
                if line.strip():
                    records.append(_record(json.loads(line)))
    except (tarfile.TarError, EOFError) as error:
        raise altered(path, f"a whole archive with {FILES[0]}", f"another ({error})") from error
    except OSError as error:
        raise InputError(
            f"a readable file at {path}",
            f"but reading it failed ({error.strerror})",
            "run `ntkscore fetch nares` or give another path",
        ) from error
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
        found = f"another line {place} ({type(error).__name__}: {error})"
        raise altered(path, "a record of NARes in each line", found) from error
    return records, checksum


@contextmanager
def _lines(path: Path) -> Iterator[IO[bytes]]:
    """The file of records, to be read line by line."""
    if path.suffix.lower() == ".jsonl":
        with path.open("rb") as file:
            yield file
        return
    with tarfile.open(path, "r:xz") as archive:
        from lzma import LZMAError  # not every Python has it, which `open` says

        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and PurePosixPath(member.name).name == FILES[0]:
                try:
                    yield content
                except LZMAError as error:
                    raise tarfile.ReadError(str(error)) from error
                return
        raise tarfile.ReadError(f"no {FILES[0]} is in it")


def _at_best(by_epoch: list[float], best: Any) -> float:
    """The value at the best epoch; Python would count a negative one from the end."""
    if type(best) is not int or best < 0:
        raise ValueError(f"expected the number of the best epoch from 0, got {best!r}")
    return by_epoch[best]


def _record(entry: Any) -> tuple[str, dict[tuple[str, str], float]]:
    """What is kept of a line.

    The network is that of the epoch with the best accuracy under PGD on CIFAR-10.1, which serves
    for validation, so test images chose nothing.
    """
    sizes = [entry["arch"][f"{of}{stage}"] for of in "DW" for stage in (1, 2, 3)]
    if not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"expected six sizes of stages, got {sizes}")
    (trained,), (tested,) = entry["train"], entry["test_best"]
    found = {("cifar10", metric): tested.get(key) for metric, key in _TESTED.items()}
    if corruptions := tested.get("corruptions"):
        levels = [str(level) for level in range(1, 6)]
        found["cifar10", "corruptions"] = fmean(
            each[level]["acc"] for each in corruptions.values() for level in levels
        )
    for metric, key in _VALIDATED.items():
        by_epoch = trained.get(key)
        found["cifar10.1", metric] = _at_best(by_epoch, trained["best_epoch"]) if by_epoch else None
    return _name(sizes), {column: each for column, each in found.items() if each is not None}


def _name(sizes: Sequence[int]) -> str:
    """A network by its three depths and three widths."""
    return "x".join("-".join(map(str, part)) for part in (sizes[:3], sizes[3:]))


def columns_and_rows(
    records: Records, path: Path
) -> tuple[list[tuple[str, str, int | None]], dict[Hashable, list[Any]], dict[Hashable, Hashable]]:
    """The columns that all networks have, and fractions by network; none stands for another.

    The authors' code prints accuracies in per cent, and nothing says what the file has. So a column
    with an accuracy above 1 is in per cent.
    """
    named: dict[Hashable, dict[tuple[str, str], float]] = dict(records)
    if len(named) < len(records):
        seen: set[str] = set()
        twice = next(name for name, _ in records if name in seen or seen.add(name))
        raise altered(path, "one record per network", f"two for {twice}")
    every = [
        column
        for column in (records[0][1] if records else ())
        if all(column in accuracies for accuracies in named.values())
    ]
    for name, accuracies in named.items():
        for column in every:
            if type(accuracies[column]) not in (int, float):
                raise altered(path, "accuracies", f"{accuracies[column]!r} for {name}")
    units = {column: 100 if max(a[column] for a in named.values()) > 1 else 1 for column in every}
    rows: dict[Hashable, list[Any]] = {
        name: [accuracies[column] / units[column] for column in every]
        for name, accuracies in named.items()
    }
    return [(*column, None) for column in every], rows, {}


def check(path: Path) -> None:
    """Refuse a download that has not one record of each of the 15,625 networks, and of no other.

    No checksum is published, and the file was not at hand when this was written.
    """
    wanted = {*map(_name, itertools.product(*[DEPTHS] * 3, *[WIDTHS] * 3))}
    names = [name for name, _ in read(path)[0]]
    if len(names) != len(wanted) or set(names) != wanted:
        known = len(wanted.intersection(names))
        raise altered(
            path, f"each of {len(wanted):,} networks once", f"{len(names):,} records of {known:,}"
        )


SOURCE = Source(
    folder="nares",
    contents=(FILES[1],),
    base_url=("https://github.com/zhichao-lu/arch-dataset-adv-robustness/releases/download/v1.0/"),
    files={FILES[1]: check},
)
"""The archive, which stays one: the table is read from it."""
