"""Folders of this machine that ntkscore reads from and writes to."""

import os
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded" / "nasbench201-cifar10"
"""Scores of all cells of the benchmark, which come with the package; a result directory."""


def results_path(path: str | os.PathLike[str]) -> Path:
    """A result directory; `recorded` is that of the package, where no such folder is at hand.

    Example:
        >>> results_path("recorded") == RECORDED, results_path("runs/mine").as_posix()
        (True, 'runs/mine')
    """
    chosen = Path(path)
    return RECORDED if chosen == Path("recorded") and not chosen.exists() else chosen


def cache_home() -> Path:
    """The folder of the user's cache that belongs to ntkscore."""
    # Machines that only score may have been set up without it.
    try:
        from platformdirs import user_cache_path
    except ImportError:
        return Path.home() / ".cache" / "ntkscore"
    return user_cache_path("ntkscore")


def data_home(data_dir: str | Path | None = None) -> Path:
    """The folder that data sets and tables lie in.

    Args:
        data_dir: that folder; else it is `NTKSCORE_DATA`, else the user's cache.

    Example:
        >>> data_home("/data/images").as_posix()
        '/data/images'
    """
    chosen = data_dir or os.environ.get("NTKSCORE_DATA")
    return Path(chosen).expanduser() if chosen else cache_home()
