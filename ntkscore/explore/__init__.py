"""One self-contained page to look at results: scatter, filters and ranking, opened from disk."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.explore.content import Content as Content
from ntkscore.explore.content import content_of as content_of
from ntkscore.explore.markup import document as document
from ntkscore.results.atomic import make_folder, publish, writing_to
from ntkscore.space import Space


def write_page(
    directories: Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    table: Table | None = None,
    *,
    title: str | None = None,
    space: type[Space] | None = None,
    predicted: pd.DataFrame | None = None,
) -> None:
    """Write a page of results, whole or not at all.

    Args:
        directories: result directories of one space; of several, the scores lie side by side.
        out: the page, an `.html` file.
        table: accuracies of the same architectures.
        title: its heading; the folders' names if left out.
        space: the class of a person's own space.
        predicted: predicted accuracies by key, as `ntkscore.Predictor.predict` gives them.

    Raises:
        InputError: if there is nothing to show (see `content_of`), or the file cannot be written.

    Example:
        >>> import tempfile
        >>> from cells import Residual
        >>> from ntkscore import Config, rank
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run, page = Path(folder) / "run", Path(folder) / "page.html"
        ...     space = Residual(depth=3, width=8)
        ...     _ = rank("all", "synthetic", run, Config(samples=4), space=space)
        ...     write_page([run], page)
        ...     page.read_text()[:15]
        '<!doctype html>'
    """
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"expected a page that ends in .html, got {path.name}; rename --out")
    names = " and ".join(Path(each).resolve().name for each in directories)
    page = document(content_of(directories, table, space, predicted), title or names)
    make_folder(path.parent)
    with writing_to(path):
        publish(path, page.encode())
