"""One self-contained page to look at results: scatter, filters and ranking, opened from disk."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.explore.content import Content as Content
from ntkscore.explore.content import content_of as content_of
from ntkscore.explore.markup import document as document
from ntkscore.results.atomic import make_folder, publish


def write_page(
    runs: Sequence[Any],
    out: str | PathLike[str],
    table: Table | None = None,
    *,
    title: str | None = None,
    predicted: pd.DataFrame | None = None,
) -> None:
    """Write a page of results, whole or not at all.

    Args:
        runs: each a `ntkscore.Run`, of one space; of several, the scores lie side by side.
        out: the page, an `.html` file.
        table: accuracies of the same architectures.
        title: its heading; the folders' names if left out.
        predicted: predicted accuracies by key, as `ntkscore.Predictor.predict` gives them.

    Raises:
        InputError: if there is nothing to show (see `content_of`), or the file cannot be written.

    Example:
        >>> import tempfile
        >>> from cells import Residual
        >>> from ntkscore import load_images, score
        >>> images = load_images("synthetic", samples=4)
        >>> run = score("all", images, space=Residual(depth=3, width=8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = Path(folder) / "page.html"
        ...     write_page([run], page)
        ...     page.read_text()[:15]
        '<!doctype html>'
    """
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError("a page that ends in .html", path.name, "rename --out")
    names = " and ".join(Path(str(run.results.directory)).resolve().name for run in runs)
    page = document(content_of(runs, table, predicted), title or names)
    make_folder(path.parent)
    publish(path, page.encode())
