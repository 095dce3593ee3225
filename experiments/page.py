"""One page of results: a section for each study, replaced when the study is run again."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from experiments.data import Data
from experiments.frame import Claim, Interval, Study, number, to_json
from experiments.plotting import save
from ntkscore.errors import InputError
from ntkscore.results.result_set import provenance

PAGE = Path(__file__).parent / "RESULTS.md"
HEAD = """# Results

What papers say, what we measured, and what comes of it: a figure, at most a dozen claims and the
data of each study. Written by `python -m experiments report`; `python -m experiments NAME --out
DIR` runs one study and leaves its record. Verdicts: *holds*; *holds when corrected*; *false*;
*open*, where the interval contains both; *not computed*. Intervals are of 95 %, by bootstrap over
seeds, or over cells, those of one function together. A claim with "(ours)" is no paper's."""
FIGURES, TABLES = "figures", "tables"
MANY = 9
"""Intervals that a claim shows one by one."""
CASES = Path("runs/experiments")
"""Where the finished cases of a study lie until its section is written."""


def entry(value: object) -> str:
    """The text of a number or name in a table."""
    return number(value) if isinstance(value, float) else str(value)


def markdown_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown, bars in its entries escaped."""
    first, *others = (
        [entry(each).replace("|", "\\|") for each in entries] for entries in (head, *rows)
    )
    lines = (first, ["---"] * len(first), *others)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def found(intervals: Sequence[Interval]) -> str:
    """Intervals one by one, or of many the least and the greatest."""
    if len(intervals) <= MANY:
        return "; ".join(map(str, intervals))
    least, *_, greatest = sorted(intervals, key=lambda each: each.value)
    return f"{len(intervals)} from {least} to {greatest}"


def claim_row(claim: Claim) -> dict[str, str]:
    """A claim's entries in the page's table, by the heads of their columns."""
    return {
        "statement": f"{claim.text} (ours)" if claim.ours else claim.text,
        "printed": entry(claim.printed),
        "found": found(claim.each),
        "verdict": f"{claim.verdict} ({claim.rule})",
    }


def section(name: str, study: Study, frame: pd.DataFrame, figure: str, data: str) -> Iterator[str]:
    """Heading, figure, claims, table and note of a study, in Markdown.

    Args:
        name, study, frame: the study, and what it measured.
        figure, data: paths of its files, from the page; "" for none.
    """
    picture = f"![{study.title}]({figure}) " if figure else ""
    source = f"`python -m experiments {name}`" + (f" · [data]({data})" if data else "")
    yield f"## {study.title}\n\n{picture}{source}"
    if claims := [*map(claim_row, study.claims(frame))]:
        yield markdown_table(claims[0], (claim.values() for claim in claims))
    if study.table:
        shown = study.table(frame)
        yield markdown_table(shown.columns, shown.to_numpy(object))
    if study.note:
        yield study.note


def sections_of(page: Path) -> dict[str, str]:
    """The sections of a page by name; none where there is no page yet."""
    if not page.exists():
        return {}
    _, *texts = re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.M)
    names = [re.search(r"`python -m experiments ([\w-]+)`", text) for text in texts]
    return {str(name and name[1]): text.strip() for name, text in zip(names, texts, strict=True)}


def write_page(page: Path, order: Iterable[str], sections: Mapping[str, str]) -> None:
    """Write the page whole: its head, and the sections that there are, in order."""
    there = [sections[name] for name in order if name in sections]
    page.write_text("\n\n".join([HEAD, *there]) + "\n", encoding="utf-8")


def report(
    studies: Mapping[str, Study], chosen: Iterable[str], data_dir: Path, page: Path
) -> list[str]:
    """Run studies and replace their sections, each as soon as it has run.

    What a study lacks, if only for some of its rows, costs that study alone: its section, figure
    and table stay as they were, and a line says why.

    Args:
        studies: all, in the order of the page.
        chosen: the names of those to run.
        data_dir: the folder with the data sets and tables.
        page: the file; figures and tables come beside it.

    Returns:
        The names of those that lacked something.
    """
    lacking = []
    sections = sections_of(page)
    for name in chosen:
        study, start = studies[name], time.monotonic()
        kept = CASES / f"{name}.cases"
        try:
            data = Data(data_dir)
            data.check(study.needs)
            if lacks := study.lacks(data):
                way = f"`python -m experiments {name}` computes the other rows"
                raise InputError("all that its section is of", f"but {lacks}", way)
            frame = study.frame(data, kept)
        except InputError as error:
            lacking.append(name)
            typer.echo(f"{name} is left as it was: {error}", err=True)
            continue
        figure = table = ""
        if study.ours:
            table = f"{TABLES}/{name}.csv"
            (page.parent / TABLES).mkdir(parents=True, exist_ok=True)
            frame.to_csv(page.parent / table, index=False, float_format="%.6g")
        if study.figure:
            (png,) = save(study.figure(frame), page.parent / FIGURES / name, ("png",))
            figure = png.relative_to(page.parent).as_posix()
        sections[name] = "\n\n".join(section(name, study, frame, figure, table))
        write_page(page, studies, sections)
        kept.unlink(missing_ok=True)
        typer.echo(f"{name} {time.monotonic() - start:.1f} s", err=True)
    return lacking


def write_files(name: str, study: Study, data: Data, out: Path) -> list[Path]:
    """Run a study and write its figure (PNG, SVG), data (CSV), section and record (JSON).

    A run that was killed goes on where it was: finished cases are kept in the folder. Rows whose
    data are missing stay empty, and a line says so.
    """
    kept = out / f"{name}.cases"
    frame = study.frame(data, kept)
    if lacks := study.lacks(data):
        typer.echo(f"some rows are empty: {lacks}", err=True)
    out.mkdir(parents=True, exist_ok=True)
    paths = save(study.figure(frame), out / name) if study.figure else []
    figure = paths[0].name if paths else ""
    table, record = out / f"{name}.csv", out / f"{name}.json"
    frame.to_csv(table, index=False, float_format="%.6g")
    content = {
        "study": name,
        "title": study.title,
        "settings": study.settings,
        "claims": [*map(claim_row, study.claims(frame))],
        "checksums": data.read,
        **provenance(),
    }
    del content["platform"]  # Records are published; the machine's name is nobody's concern.
    record.write_text(json.dumps(json.loads(to_json(content)), indent=2, ensure_ascii=False) + "\n")
    text = out / f"{name}.md"
    text.write_text("\n\n".join(section(name, study, frame, figure, table.name)) + "\n")
    kept.unlink(missing_ok=True)
    return [*paths, table, text, record]


def read_record(record: Path) -> tuple[str, dict[str, Any], dict[str, str]]:
    """A study's name, its settings, and the checksums of what it read.

    Raises:
        InputError: if the file is no record of a study.
    """
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        settings = {  # JSON has no tuples, which compiled functions take as sizes
            setting: tuple(value) if isinstance(value, list) else value
            for setting, value in content["settings"].items()
        }
        return content["study"], settings, content["checksums"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "the JSON that a study left", f"{record}: {error!r}", "give another"
        ) from None


def read_setting(text: str, usual: object) -> Any:
    """The value of a setting that was written as text, of the type of its usual value.

    Example:
        >>> read_setting("0.5", 1.0), read_setting("64,256", (8, 16)), read_setting("tanh", "relu")
        (0.5, (64, 256), 'tanh')
    """
    if isinstance(usual, Sequence) and not isinstance(usual, str):
        first = usual[0] if len(usual) else ""
        return tuple(read_setting(part, first) for part in text.split(","))
    if isinstance(usual, str):
        return text
    try:
        return type(usual)(json.loads(text))  # type: ignore[call-arg]
    except (ValueError, TypeError):
        raise InputError(
            f"a {type(usual).__name__} such as {usual}", repr(text), "correct it"
        ) from None
