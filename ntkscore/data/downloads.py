"""Downloads into the data folder: checked, all or nothing."""

import gzip
import hashlib
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ntkscore.data.benchmarks import FORMATS
from ntkscore.data.costs import HARDWARE
from ntkscore.data.datasets import DATASETS, dataset_name
from ntkscore.errors import InputError
from ntkscore.paths import data_home

_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18  # bytes

SOURCES = {
    name: facts.source for name, facts in DATASETS.items() if facts.source and facts.source.base_url
} | {source.folder: source for source in (*(form.source for form in FORMATS), HARDWARE) if source}
"""Sources that can be downloaded, by the name to ask for."""


def fetch(
    name: str,
    data_dir: str | Path | None = None,
    progress: bool = True,
    base_urls: Mapping[str, str] | None = None,
) -> Path:
    """Download a data set or a benchmark table, unless it is complete in the data folder.

    Files appear in their place only when all of them are there and every checksum is right. A
    download that breaks off starts over the next time.

    Args:
        name: `cifar10`, `cifar100`, `mnist`, `nas-robbench-201`, `robustness-dataset`,
            `tiny-robustbench`, `nares` or `hw-nas-bench`.
        data_dir: the data folder; see `ntkscore.paths.data_home`.
        progress: whether to draw a progress bar on stderr.
        base_urls: other places to download from, by name; see `Source.base_url`.

    Returns:
        The folder of the data set.

    Raises:
        InputError: if there is no such download, no network, a wrong checksum or no way to
            write to the data folder.

    Example:
        >>> fetch("cifar10", "data").as_posix()  # doctest: +SKIP
        'data/cifar-10-batches-py'
    """
    key = dataset_name(name)
    home = data_home(data_dir)
    if key not in SOURCES:
        source = DATASETS[key].source if key in DATASETS else None
        hint = f" ({source.by_hand}: {home / source.folder})" if source else ""
        raise InputError(
            f"a download out of {', '.join(SOURCES)}", f"'{name}'{hint}", "choose one of these"
        )
    source = SOURCES[key]
    target = home / source.folder
    if all((target / file).is_file() for file in source.contents):
        return target
    base_url = (base_urls or {}).get(key, source.base_url)
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Inside the data folder, so that the moves at the end are renames and never copies.
        with TemporaryDirectory(dir=home, prefix=f".fetch-{key}-") as staging:
            ready = Path(staging) / source.folder
            ready.mkdir(parents=True)
            for file_name, check in source.files.items():
                file = Path(staging) / file_name
                _download(base_url + file_name, file, target, progress)
                if callable(check):
                    check(file)
                else:
                    _compare(file, check, base_url + file_name, target)
                _unpack(file, ready)
            if missing := [name for name in source.contents if not (ready / name).is_file()]:
                raise InputError(
                    f"{', '.join(source.contents)} in the download of {source.folder}",
                    f"none of {', '.join(missing)}",
                    "report this, the files at their home page have changed",
                )
            _publish(ready, target)
    except OSError as error:
        raise InputError(
            "a writable data folder",
            f"but writing to {home} failed ({error})",
            "make room, or name another folder with NTKSCORE_DATA",
        ) from error
    return target


def _download(url: str, file: Path, target: Path, progress: bool) -> None:
    """Write the bytes at an address to a file, unchanged.

    Not by a library that uncompresses what it receives: servers call a .tar.gz compressed content.
    """
    # Slow to import, and the command line imports this module for its names.
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    from rich.console import Console
    from rich.progress import wrap_file

    # Some hosts refuse what urllib calls itself.
    request = Request(url, headers={"User-Agent": "ntkscore"})
    try:
        with urlopen(request, timeout=_TIMEOUT) as answer, file.open("wb") as out:
            total = int(answer.headers.get("Content-Length", 0))
            where, hidden = Console(stderr=True), not progress
            bar = wrap_file(answer, total, description=file.name, console=where, disable=hidden)
            with bar as content:
                shutil.copyfileobj(content, out, _CHUNK)
            if out.tell() < total:
                raise ConnectionError(f"it broke off after {out.tell()} of {total} bytes")
    except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
        raise InputError(
            f"to download {url}",
            f"but it failed ({error})",
            "connect to the network and run the same command again, or put the files by "
            f"hand into {target}",
        ) from error


def _compare(file: Path, checksum: str, url: str, target: Path) -> None:
    algorithm, _, expected = checksum.partition(":")
    with file.open("rb") as content:
        found = hashlib.file_digest(content, algorithm).hexdigest()
    if found != expected:
        raise InputError(
            f"{checksum} from {url}",
            f"{algorithm}:{found}, and the file was removed",
            f"fetch again, or put the files by hand into {target}",
        )


def _unpack(file: Path, folder: Path) -> None:
    """Put a downloaded file into a folder: its content, where it is compressed or an archive."""
    if file.name.endswith(".tar.gz"):
        with tarfile.open(file) as archive:
            for member in archive:
                place = PurePosixPath(member.name)
                content = archive.extractfile(member) if member.isfile() else None
                # Plain files of the folder's name, whatever else an archive may hold.
                if content is not None and place.parts == (folder.name, place.name):
                    (folder / place.name).write_bytes(content.read())
    elif file.suffix == ".gz":
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    else:
        os.replace(file, folder / file.name)


def _publish(folder: Path, target: Path) -> None:
    if target.exists():  # incomplete, or with files of the user's own: these stay
        for file in folder.iterdir():
            os.replace(file, target / file.name)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder, target)
