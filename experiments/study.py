"""What an experiment is given, and what it leaves: a figure, its data, and a record to rerun it."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure

from experiments.style import save
from ntkscore.downloads import data_home
from ntkscore.errors import InputError
from ntkscore.results import ResultSet, provenance
from ntkscore.tables import Table, load_table

RECORDED = Path(__file__).parent / "results"
"""Our own recorded runs."""
BENCHMARK = "nas-robbench-201"
OLDER = "robustness-dataset"

Verdict = Literal["reproduced", "not reproduced", "not decidable"]

MEANS = (
    "Accuracies here are means of three training seeds, the paper reads a single one: differences "
    "of up to about 0.005 are to be expected."
)
"""What every comparison with the paper's numbers should be read with."""


@dataclass(frozen=True)
class Study:
    """Where an experiment finds tables and images, and its random seed.

    Attributes:
        data_dir: the folder with the data sets and tables.
        seed: of everything that is drawn.
        results: the folder with the recordings (result directories by name) that scores are
            read from.
    """

    data_dir: Path
    seed: int = 0
    results: Path = RECORDED

    def result_set(self, name: str) -> ResultSet:
        """A recording by name, as a result directory."""
        directory = self.results / name
        if not directory.is_dir():
            raise InputError(
                f"expected the recording {name}, but there is no {directory}; "
                f"python -m experiments record {name} makes it"
            )
        return ResultSet.open(directory)

    def configurations(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What the recordings of these names were computed with."""
        return {name: self.result_set(name).configuration for name in names}

    def rows(self, name: str) -> pd.DataFrame:
        """The tidy rows of a recording, of the seeds that are complete."""
        rows = self.result_set(name).read()
        cells = rows.groupby("seed")["cell"].nunique()
        return rows[rows["seed"].isin(cells.index[cells == cells.max()])]

    @cached_property
    def table(self) -> Table:
        """NAS-RobBench-201: adversarially trained networks."""
        return load_table(self.data_dir / BENCHMARK)

    @cached_property
    def older(self) -> Table:
        """The older table: the same cells, trained without attacks."""
        return load_table(self.data_dir / OLDER)

    def checksums(self) -> dict[str, str]:
        """SHA-256 of the tables' and the recordings' files, by path inside their folders."""
        found = {}
        for folder, pattern in (
            (self.data_dir, f"{BENCHMARK}/*"),
            (self.data_dir, f"{OLDER}/*"),
            (self.results, "**/*.parquet"),
        ):
            for path in sorted(folder.glob(pattern)):
                if path.is_file():
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()
                    found[path.relative_to(folder).as_posix()] = digest
        return found


@dataclass(frozen=True)
class Finding:
    """A statement of the paper beside what was measured.

    Attributes:
        what: is stated.
        paper: its number or words.
        ours: number with its interval.
        verdict: what comes of it.
        why: what the verdict rests on.
        of: the statement that this is one part of, or "".
    """

    what: str
    paper: str
    ours: str
    verdict: Verdict
    why: str
    of: str = ""


@dataclass(frozen=True)
class Outcome:
    """What an experiment found.

    Attributes:
        frame: the data behind the figure, tidy; columns named "paper" are the paper's numbers.
        figure: or None, where a table is all there is.
        configuration: what the numbers depend on beside the study's seed, as JSON types.
        remarks: what a reader of the report should be told, in sentences.
        findings: the paper's statements, each with what was measured.
        summary: what a reader of the report should see of the data, a table of a page at most.
    """

    frame: pd.DataFrame
    figure: Figure | None = None
    configuration: dict[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    summary: pd.DataFrame | None = None


def write(outcome: Outcome, study: Study, name: str, out: Path) -> list[Path]:
    """Write figure (PNG, SVG), data (CSV) and record (JSON) of an experiment.

    Args:
        outcome: of the experiment.
        study: that it was given.
        name: of the experiment; the files carry it.
        out: folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = save(outcome.figure, out / name) if outcome.figure else []
    data = out / f"{name}.csv"
    outcome.frame.to_csv(data, index=False, float_format="%.6g")
    record = out / f"{name}.json"
    content = {
        "experiment": name,
        "seed": study.seed,
        "results": None if study.results == RECORDED else str(study.results.resolve()),
        "configuration": outcome.configuration,
        "remarks": outcome.remarks,
        "findings": [asdict(finding) for finding in outcome.findings],
        "checksums": study.checksums(),
        **provenance(),
    }
    record.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return [*paths, data, record]


def study_of(data_dir: Path | None, seed: int, results: Path | None = None) -> Study:
    """The study of a command line: `--data-dir`, else $NTKSCORE_DATA, else the user cache."""
    return Study(data_home(data_dir), seed, results or RECORDED)
