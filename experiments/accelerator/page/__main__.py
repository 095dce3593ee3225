"""One page about a machine: `python -m experiments.accelerator.page FOLDER`.

It reads what `python -m experiments.accelerator` left there, whole or not.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import typer

from cells import Cell
from experiments.accelerator.folder import Folder
from experiments.accelerator.page.arithmetic import arithmetic
from experiments.accelerator.page.figure import draw
from experiments.accelerator.page.scores import scores
from experiments.accelerator.page.speed import one_cell, whole_space
from experiments.accelerator.page.text import gigabytes
from experiments.accelerator.sizes import SIZES, Size
from experiments.plotting import save
from experiments.report import markdown_table
from ntkscore import InputError, open_results
from ntkscore.cli.output import input_errors


def heading(folder: Folder, size: Size) -> Iterator[str]:
    """The machine, its versions, and what it was asked to do."""
    if machine := folder.read("machine"):
        versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
        yield f"# {machine['count']} × {machine['device']}"
        yield (
            f"{machine['time']}: {gigabytes(machine['free_bytes'])} free on a device; "
            f"{machine['runtime']}; Python {machine['python']}, {versions}."
        )
    else:
        yield "# A machine that did not say what it is"
    space, config = size.fidelity.space, size.fidelity.config
    yield (
        f"Ranking: {config.samples} images, C = {space.channels}, cells per stage "
        f"{space.cells_per_stage}, {config.attack.upper()} stack, one seed."
    )


def endings(folder: Folder) -> Iterator[str]:
    """The parts, with how they ended and why."""
    yield "## Parts"
    yield markdown_table(
        ("part", "", "seconds", "because"),
        [(name, end, f"{s:.0f}", why) for name, (end, s, why) in folder.read("parts").items()],
    )


def rows_of(folder: Folder) -> pd.DataFrame:
    """The rows of the ranking; none where nothing was scored."""
    try:
        return open_results(folder.space).read()
    except InputError:
        return pd.DataFrame()


def write(folder: Folder) -> None:
    """Write the page, and its figure beside it.

    Raises:
        InputError: if the folder is none of ours.
    """
    settings = folder.read("settings")
    if not settings:
        raise InputError(
            f"expected a folder with a settings.json, got {folder.path} without one; give the "
            "--out of `python -m experiments.accelerator`"
        )
    size, rows = SIZES[settings["size"]], rows_of(folder)
    cells = [] if rows.empty else [Cell(int(index)) for index in rows["cell"].unique()]
    picture, other = save(draw(folder.calls(), size), folder.page.with_suffix(""))
    other.unlink()
    parts = (
        *heading(folder, size),
        *whole_space(folder, size, cells),
        f"![Cells on disk against time, and FLOPs needed and computed]({picture.name})",
        *one_cell(folder),
        *arithmetic(folder.checks()),
        *scores(folder, rows),
        *endings(folder),
    )
    folder.page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def main(path: Path) -> None:
    """Read a folder and write its page."""
    with input_errors():
        write(Folder(path))
    typer.echo(Folder(path).page)


if __name__ == "__main__":
    typer.run(main)
