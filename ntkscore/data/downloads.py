"""Downloads into the data folder: resumable, checked, all or nothing."""

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ntkscore.data.datasets import DATASETS
from ntkscore.data.names import dataset_name
from ntkscore.data.sources import Source
from ntkscore.data.table_formats import FORMATS
from ntkscore.errors import InputError
from ntkscore.paths import data_home

_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18  # bytes

SOURCES = {
    name: facts.source for name, facts in DATASETS.items() if facts.source and facts.source.base_url
} | {form.source.folder: form.source for form in FORMATS if form.source}
"""Sources that can be downloaded, by the name to ask for."""


def fetch(
    name: str,
    data_dir: str | Path | None = None,
    progress: bool = True,
    base_urls: Mapping[str, str] | None = None,
) -> Path:
    """Download a data set or a benchmark table, unless it is complete in the data folder.

    A download that broke off goes on where it stopped, also in another run. Files appear in
    their place only when their checksum is right.

    Args:
        name: `cifar10`, `cifar100`, `mnist` or `nas-robbench-201`.
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
            f"expected a download out of {', '.join(SOURCES)}, but '{name}' came{hint}: "
            "choose one of these"
        )
    source = SOURCES[key]
    target = home / source.folder
    if _complete(target, source):
        return target
    base_url = (base_urls or {}).get(key, source.base_url)
    # Inside the data folder, so that the moves at the end are renames and never copies.
    staging = home / f".fetch-{key}"
    try:
        staging.mkdir(parents=True, exist_ok=True)
        for file, checksum in source.files.items():
            _download(base_url + file, staging / file, checksum, target, progress)
        _publish(_prepare(staging, source), target)
        shutil.rmtree(staging)
    except OSError as error:
        raise InputError(
            f"expected a writable data folder, but writing to {home} failed ({error}): "
            "make room, or name another folder with NTKSCORE_DATA"
        ) from error
    return target


def _complete(folder: Path, source: Source) -> bool:
    return all((folder / file).is_file() for file in source.contents)


def _download(url: str, file: Path, checksum: str | None, target: Path, progress: bool) -> None:
    # Imported here, so that scoring also runs on machines without them, which never download.
    import pooch
    import requests
    import urllib3

    part = file.with_name(f"{file.name}.part")

    def resume(url: str, output: str, _: object) -> None:
        _stream(url, part, progress)
        os.replace(part, output)

    pooch.get_logger().setLevel("WARNING")
    try:
        # pooch hands the downloader a temporary file beside `file`, checks what it wrote there,
        # and renames it to `file` or deletes it.
        pooch.retrieve(url, checksum, file.name, file.parent, downloader=resume)
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise InputError(
            f"expected to download {url}, but it failed ({error}): connect to the network and run "
            f"the same command again to resume, or put the files by hand into {target}"
        ) from error
    except ValueError as error:
        raise InputError(
            f"expected {checksum} from {url}, but another file came and was removed "
            f"({error}): fetch again, or put the files by hand into {target}"
        ) from error


def _stream(url: str, part: Path, progress: bool) -> None:
    """Append the missing bytes to a partial file, or start over where the server cannot resume."""
    import requests
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    have = part.stat().st_size if part.exists() else 0
    # Ranges count the bytes that are sent: a compressed answer could not be resumed.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            part.unlink()  # as long as the file or longer, yet never accepted
            return _stream(url, part, progress)
        answer.raise_for_status()
        resumed = answer.status_code == requests.codes.partial_content
        start = have if resumed else 0
        total = start + int(answer.headers.get("Content-Length", 0))
        columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
        bar = Progress("{task.description}", *columns, console=Console(stderr=True))
        bar.disable = not progress
        with part.open("ab" if resumed else "wb") as out, bar:
            task = bar.add_task(part.stem, total=total or None, completed=start)
            # The raw stream, because servers call a .tar.gz compressed content: it shall arrive as
            # it lies there. Its errors are those of urllib3.
            for chunk in answer.raw.stream(_CHUNK, decode_content=False):
                out.write(chunk)
                bar.advance(task, len(chunk))
            if out.tell() < total:  # older urllib3 takes an early end for the end
                raise requests.ConnectionError(f"it broke off after {out.tell()} of {total} bytes")


def _prepare(staging: Path, source: Source) -> Path:
    """Unpack and check what was downloaded; returns a folder that can go into its place."""
    ready = staging / "ready"
    shutil.rmtree(ready, ignore_errors=True)
    folder = ready / source.folder
    folder.mkdir(parents=True)
    for name in source.files:
        file = staging / name
        if name.endswith(".tar.gz"):
            try:
                _unpack(file, folder)
            except (tarfile.TarError, EOFError, zlib.error) as error:
                file.unlink()
                raise InputError(
                    f"expected to unpack {file}, but it is no whole archive ({error}): "
                    "fetch again, or unpack the official one by hand"
                ) from error
            continue
        if name.endswith(".gz"):
            try:
                (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                file.unlink()
                raise InputError(
                    f"expected to uncompress {file}, but it is damaged ({error}): fetch again"
                ) from error
            continue
        if name in source.checks:
            try:
                source.checks[name](file)
            except InputError:
                file.unlink()
                raise
        os.replace(file, folder / name)
    if not _complete(folder, source):
        raise InputError(
            f"expected {', '.join(source.contents)} in the download of {source.folder}, but not "
            "all of them came: report this, the files at their home page have changed"
        )
    return folder


def _unpack(file: Path, folder: Path) -> None:
    """Unpack an archive's plain files of the folder's name, whatever else it may hold."""
    with tarfile.open(file) as archive:
        for member in archive:
            place = PurePosixPath(member.name)
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and place.parts == (folder.name, place.name):
                (folder / place.name).write_bytes(content.read())


def _publish(folder: Path, target: Path) -> None:
    if target.exists():  # incomplete, or with files of the user's own: these stay
        for file in folder.iterdir():
            os.replace(file, target / file.name)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder, target)
