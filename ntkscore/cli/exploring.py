"""The command that makes a page of results."""

from pathlib import Path
from typing import Annotated

import typer

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.output import stderr
from ntkscore.paths import results_path
from ntkscore.spaces import space_class


def explore(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Result directories of one space, one or more; `recorded` for the package's own.",
            metavar="DIR…",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page, an .html file.")],
    table: Annotated[
        Path | None,
        typer.Option(help="A benchmark table, the folder with it, or a .csv of accuracies."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set of a .csv that does not name it.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its heading; the folders' names else.")] = None,
    space: o.SpaceName = None,
) -> None:
    """Make one page to look at results in a browser: scatter, filters, ranking."""
    from ntkscore.explore import write_page

    accuracies = ntkscore.load_table(table, dataset) if table else None
    places = [results_path(each) for each in directories]
    own = space_class(space) if space else None
    write_page(places, out, accuracies, title=title, space=own)
    size = out.stat().st_size / 1e6
    stderr.print(f"{out}, {size:.1f} MB; open it in a browser", soft_wrap=True)
