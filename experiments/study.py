"""Input and outcome of an experiment, and the settings that experiments share."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cells.nasbench201.canonical import representatives
from cells.nasbench201.space import NASBench201
from experiments.plotting import save
from ntkscore.analysis.comparison import ROBUST_METRICS
from ntkscore.analysis.score_names import ScoreSum, sum_asked
from ntkscore.config import Config
from ntkscore.data.datasets import DATASETS
from ntkscore.data.tables import Table, load_table
from ntkscore.errors import InputError
from ntkscore.results.result_set import ResultSet, provenance

RECORDED = Path(__file__).parent / "results"
"""Our own recorded runs."""
BENCHMARK = "nas-robbench-201"
OLDER = "robustness-dataset"
DARTS_TABLE = "tiny-robustbench"
BY_HAND = {
    OLDER: "put acc.json of Jung, Lukasik and Keuper (2023), http://robustness.vision, there",
}
"""How the data is had that `ntkscore fetch` does not download."""
DATASET = "cifar10"
"""The data set of all recordings, and of every experiment that does not compare data sets."""
METRICS = ("val_acc", *ROBUST_METRICS, "autoattack")
"""The benchmark's accuracies, the clean one first."""
KERNELS = ("clean", "robust", "twice")
"""The symmetric kernels beside the joint ones."""
METRIC = "val_pgd_8_acc"
"""The accuracy that scores are compared with where only one is shown."""

RESAMPLES = 500
"""Bootstrap resamples behind an interval."""

LEARNED = 0.5
"""Clean accuracy below which networks have not learned enough to be judged."""

FIRST = "robust NTKs correlate more with accuracy than the clean NTK"
SECOND = "the correlation grows with the radius of the accuracy metric"
THIRD = "FGSM kernels correlate more than PGD kernels"
"""The paper's three findings about kernels."""

OURS = "–"
"""In the place of the paper's words, where a question is ours."""

Verdict = Literal["reproduced", "direction only", "equivalent", "not reproduced", "not decidable"]
"""Direction only: sure, and too small to be noted. Equivalent: surely no larger than that."""

MEANS = (
    "Accuracies here are means of three training seeds, the paper reads a single one: differences "
    "of up to about 0.005 are to be expected."
)
"""A caution for every comparison with the paper's numbers."""


SPACE = NASBench201()
"""The networks that the benchmark trained."""


def functions_of(cells: Iterable[object]) -> np.ndarray:
    """What cells compute: of each the lowest index of a cell with the same function."""
    return np.array(representatives())[[int(str(cell)) for cell in cells]]


def bootstrap(cells: Iterable[object], seed: int) -> dict[str, Any]:
    """Keywords of an interval over some cells: it draws those of one function together."""
    return {"groups": functions_of(cells), "resamples": RESAMPLES, "seed": seed}


def shuffled(rng: np.random.Generator, groups: np.ndarray) -> np.ndarray:
    """All places in an order that draws the groups at random, and keeps each together.

    Example:
        >>> groups = np.array([7, 8, 7, 9, 8])
        >>> groups[shuffled(np.random.default_rng(0), groups)].tolist()
        [9, 7, 7, 8, 8]
    """
    names, group = np.unique(groups, return_inverse=True)
    place = np.argsort(rng.permutation(len(names)))
    return np.argsort(place[group], kind="stable")


def sum_named(name: str) -> ScoreSum:
    """The score, cost or count that a text names, or the sum of several; joint ones at β = 0.5."""
    found = sum_asked(name, SPACE, SPACE.parse(0), Config(proxies=True))
    assert found is not None
    return found


def check_data(data_dir: Path, names: Sequence[str]) -> None:
    """Refuse at once where tables or images are missing, and name all of them.

    Args:
        data_dir: the folder with the data sets and tables.
        names: of tables by their folders, of images by their data set.

    Raises:
        InputError: if the folder of any is missing.
    """
    folders = {
        name: source.folder if name in DATASETS and (source := DATASETS[name].source) else name
        for name in names
    }
    if missing := [name for name in names if not (data_dir / folders[name]).is_dir()]:
        ways = [BY_HAND.get(name, f"run `ntkscore fetch {name}`") for name in missing]
        raise InputError(
            f"expected {' and '.join(f'{folders[name]}/' for name in names)} in {data_dir}, got no "
            f"{' and no '.join(f'{folders[name]}/' for name in missing)}: {'; '.join(ways)}; or "
            "name another folder by --data-dir"
        )


@dataclass(frozen=True)
class Study:
    """Tables, recordings and random seed of an experiment.

    Attributes:
        data_dir: the folder with the data sets and tables.
        seed: random seed.
        results: the folder with the recordings (result directories by name) that scores are
            read from.
        full: whether experiments have their sizes for an accelerator.
    """

    data_dir: Path
    seed: int = 0
    results: Path = RECORDED
    full: bool = False

    def result_set(self, name: str) -> ResultSet:
        """A recording by name, as a result directory."""
        directory = self.results / name
        if not directory.is_dir():
            raise InputError(
                f"expected the recording {name}, but there is no {directory}; "
                f"python -m experiments record {name} makes it"
            )
        return ResultSet.open(directory)

    def configurations(self, names: Iterable[str]) -> dict[str, dict[str, object]]:
        """The configurations of recordings, by name."""
        return {name: self.result_set(name).configuration for name in names}

    def rows(self, name: str) -> pd.DataFrame:
        """The tidy rows of a recording; seeds that lack cells are left out."""
        recorded = self.result_set(name)
        rows = recorded.read()
        cells = rows.groupby("seed")[recorded.identity[0]].nunique()
        return rows[rows["seed"].isin(cells.index[cells == cells.max()])]

    @cached_property
    def table(self) -> Table:
        """NAS-RobBench-201: adversarially trained networks."""
        return self._table(BENCHMARK)

    def accuracy(self, cells: Iterable[object], metric: str = METRIC) -> np.ndarray:
        """Accuracies of cells on CIFAR-10."""
        return self.table.accuracies(DATASET, metric, [int(str(cell)) for cell in cells])

    def accuracies(self, cells: Iterable[object]) -> dict[str, np.ndarray]:
        """Robust accuracies of cells, by data set."""
        wanted = [int(str(cell)) for cell in cells]
        return {name: self.table.accuracies(name, METRIC, wanted) for name in self.table.datasets}

    @cached_property
    def older(self) -> Table:
        """The older table: the same cells, trained without attacks."""
        return self._table(OLDER)

    @cached_property
    def darts(self) -> Table:
        """Tiny-RobustBench: DARTS cells, trained adversarially."""
        return self._table(DARTS_TABLE)

    def _table(self, name: str) -> Table:
        check_data(self.data_dir, (name,))
        return load_table(self.data_dir / name)

    def checksums(self) -> dict[str, str]:
        """SHA-256 of the tables' and the recordings' files, by path inside their folders."""
        digests = {}
        for folder, pattern in (
            (self.data_dir, f"{BENCHMARK}/*"),
            (self.data_dir, f"{OLDER}/*"),
            (self.data_dir, f"{DARTS_TABLE}/*"),
            (self.results, "**/*.parquet"),
        ):
            for path in sorted(folder.glob(pattern)):
                if path.is_file():
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()
                    digests[path.relative_to(folder).as_posix()] = digest
        return digests


def single_seeds(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each seed."""
    return [part for _, part in rows.groupby("seed")]


@dataclass(frozen=True)
class Finding:
    """A statement of the paper beside what was measured.

    Attributes:
        what: the statement.
        paper: the paper's number or words; `OURS` where it says nothing.
        ours: our number with its interval.
        verdict: whether ours bears out the paper's.
        why: reason for the verdict.
        of: the larger statement that this is one part of, or "".
        under: the convention that ours was measured under, where there are several, or "".
    """

    what: str
    paper: str
    ours: str
    verdict: Verdict
    why: str
    of: str = ""
    under: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment.

    Attributes:
        frame: the data behind the figure, tidy; columns named "paper" are the paper's numbers.
        figure: the figure; None where a table is all there is.
        configuration: settings and recordings that the numbers depend on, as JSON types.
        remarks: sentences for the report.
        findings: the paper's statements, each beside our measurement.
        summary: the part of the data that the report shows, a page at most.
        more: further tables for the report, below that one.
        kept: whether the data is of use to others, and lies beside the report as Parquet.
    """

    frame: pd.DataFrame
    figure: Figure | None = None
    configuration: Mapping[str, object] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    summary: pd.DataFrame | None = None
    more: tuple[pd.DataFrame, ...] = ()
    kept: bool = False


class Experiment(NamedTuple):
    """A figure, table or study that can be run by name.

    Attributes:
        title: heading in the report, and help text.
        run: the outcome for a study, by the constants of its module.
        needs: files of the data folder without which a page leaves it out.
    """

    title: str
    run: Callable[[Study], Outcome]
    needs: tuple[str, ...] = ()

    def outcome(self, study: Study) -> Outcome:
        """The outcome at the study's size: in full, the module's `FULL` replaces its constants.

        Raises:
            InputError: if the full size is asked for and there is one size only.
        """
        if not study.full:
            return self.run(study)
        module = sys.modules[self.run.__module__]
        if not hasattr(module, "FULL"):
            raise InputError(f"expected no --full: {self.title} has one size; leave it out")
        with patch.multiple(module, **module.FULL):
            return self.run(study)


def write_outcome(outcome: Outcome, study: Study, name: str, out: Path) -> list[Path]:
    """Write figure (PNG, SVG), data (CSV) and record (JSON) under an experiment's name."""
    out.mkdir(parents=True, exist_ok=True)
    paths = save(outcome.figure, out / name) if outcome.figure else []
    data = out / f"{name}.csv"
    outcome.frame.to_csv(data, index=False, float_format="%.6g")
    record = out / f"{name}.json"
    content = {
        "experiment": name,
        "seed": study.seed,
        "full": study.full,
        "results": None if study.results == RECORDED else str(study.results.resolve()),
        "configuration": outcome.configuration,
        "remarks": outcome.remarks,
        "findings": [asdict(finding) for finding in outcome.findings],
        "checksums": study.checksums(),
        **provenance(),
    }
    record.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return [*paths, data, record]


def read_record(record: Path, data_dir: Path) -> tuple[str, Study, dict[str, str]]:
    """An experiment's name, its study, and the checksums of what it read.

    Args:
        record: the JSON that `write_outcome` left; one that names no size is of the usual one.
        data_dir: the folder with the data sets and tables.

    Raises:
        InputError: if the file is no such record.
    """
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        results = Path(content["results"] or RECORDED)
        study = Study(data_dir, content["seed"], results, content.get("full", False))
        return content["experiment"], study, content["checksums"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"expected the JSON that an experiment left, got {record}: {error!r}; give another"
        ) from None


def verdict(right: object, wrong: object = True) -> Verdict:
    """The verdict on a statement that is right, wrong or neither; not right is wrong by default."""
    return "reproduced" if right else "not reproduced" if wrong else "not decidable"


def interval(value: float, low: float, high: float, form: str = ".3f") -> str:
    """A number with its interval: "0.500 [0.400, 0.600]"."""
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def count_of(number: int, noun: str) -> str:
    """A number and its noun, in the plural where need be: "1 seed", "3 seeds"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def markdown_table(head: Iterable[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown, bars in its entries escaped."""
    first, *others = (
        [str(entry).replace("|", "\\|") for entry in entries] for entries in (head, *rows)
    )
    lines = (first, ["---"] * len(first), *others)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
