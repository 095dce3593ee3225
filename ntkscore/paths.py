"""Places that ntkscore reads from and writes to."""

import os
import re
from pathlib import Path, PurePath

from ntkscore.errors import InputError

RECORDED = Path(__file__).parent / "recorded" / "nasbench201-cifar10"
"""Scores of all cells of the benchmark, which come with the package; a result directory."""


def is_url(path: str | os.PathLike[str]) -> bool:
    """Tell whether a text, or a path made of one, is a URL; a drive's one letter is no scheme.

    Example:
        >>> is_url("s3://bucket/run"), is_url(Path("s3://bucket/run")), is_url("C:/runs")
        (True, True, False)
    """
    slashes = "/+" if isinstance(path, PurePath) else "//"
    return re.match(rf"[A-Za-z][\w+.-]+:{slashes}", _text(path)) is not None


def place(path: str | os.PathLike[str]) -> Path | str:
    """A folder as a path, and a URL as a text, because a path keeps one of its two slashes.

    Example:
        >>> place("runs/mine").as_posix(), place(Path("s3://bucket/run"))
        ('runs/mine', 's3://bucket/run')
    """
    if not is_url(path):
        return Path(path)
    scheme, _, rest = _text(path).partition(":")
    if scheme == "file":
        return Path(f"/{rest.lstrip('/')}")
    return f"{scheme}://{rest.strip('/')}"


def local(path: str | os.PathLike[str]) -> Path:
    """A path on this machine; refuses a URL."""
    if is_url(path):
        raise InputError(
            "a path on this machine",
            f"the URL {place(path)}",
            "only the results of score and search lie in object storage",
        )
    return Path(path)


def results_path(path: str | os.PathLike[str]) -> Path | str:
    """The place of results; `recorded` is that of the package, where no such folder is at hand.

    Example:
        >>> results_path("recorded") == RECORDED, results_path("runs/mine").as_posix()
        (True, 'runs/mine')
    """
    chosen = place(path)
    recorded = Path("recorded")
    return RECORDED if chosen == recorded and not recorded.exists() else chosen


def _text(path: str | os.PathLike[str]) -> str:
    return path.as_posix() if isinstance(path, PurePath) else os.fspath(path)


def cache_home() -> Path:
    """The folder of the user's cache that belongs to ntkscore."""
    # Machines that only score may have been set up without it.
    try:
        from platformdirs import user_cache_path
    except ImportError:
        return Path.home() / ".cache" / "ntkscore"
    return user_cache_path("ntkscore")


def data_home(data_dir: str | Path | None = None) -> Path:
    """The folder of data sets and tables: as given, else `NTKSCORE_DATA`, else the user's cache.

    Example:
        >>> data_home("/data/images").as_posix()
        '/data/images'
    """
    chosen = data_dir or os.environ.get("NTKSCORE_DATA")
    return Path(chosen).expanduser() if chosen else cache_home()
