import gzip
import hashlib
import io
import itertools
import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tiny import refuses

from cells.nasbench201.cell import SIZE
from ntkscore.data import downloads
from ntkscore.data.downloads import SOURCES, fetch
from ntkscore.data.nares import DEPTHS, WIDTHS
from ntkscore.data.tables import load_table
from ntkscore.paths import data_home

ARCHIVE = "cifar-10-python.tar.gz"
TABLE = "NAS-RobBench-201_html.json"
TESTED = {"test_clean_acc": 80.0, "Linf_aa_acc": 50.0}
BATCHES = [f"data_batch_{i}" for i in range(1, 6)]


@dataclass
class Site:
    """A server on loopback, its files, and how it misbehaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    dies_after: int | None = None  # bytes of an answer
    asked: list[str] = field(default_factory=list)
    url: str = ""

    @property
    def base_urls(self) -> dict[str, str]:
        return dict.fromkeys(SOURCES, self.url)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(variable, "127.0.0.1")
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            site.asked.append(name)
            if name not in site.files:
                self.send_error(404)
                return
            content = site.files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            # What Apache says about a .tar.gz: the file must arrive as it lies there all the same.
            self.send_header("Content-Encoding", "x-gzip")
            self.end_headers()
            self.wfile.write(content[: site.dies_after])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        site.url = f"http://127.0.0.1:{server.server_port}/"
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def cifar10(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A small stand-in for the archive of CIFAR-10, with its own checksum."""
    names = [f"cifar-10-batches-py/{name}" for name in (*BATCHES, "batches.meta")]
    return offer(site, monkeypatch, archive(*names))


@pytest.fixture
def table(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A small stand-in for the table, with its own checksum."""
    site.files = {TABLE: b"acc={}", "ops.json": b"arch=" + json.dumps(["012340"] * SIZE).encode()}
    digest = "sha256:" + hashlib.sha256(site.files[TABLE]).hexdigest()
    source = SOURCES["nas-robbench-201"]
    source = replace(source, files={**source.files, TABLE: digest})
    monkeypatch.setitem(downloads.SOURCES, "nas-robbench-201", source)
    return site


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4000
            # Incompressible, so that half of the archive is a lot of it.
            tar.addfile(info, io.BytesIO(hashlib.shake_256(name.encode()).digest(info.size)))
    return buffer.getvalue()


def offer(site: Site, monkeypatch: pytest.MonkeyPatch, content: bytes) -> Site:
    site.files = {ARCHIVE: content}
    digest = f"md5:{hashlib.md5(content).hexdigest()}"
    monkeypatch.setitem(
        downloads.SOURCES, "cifar10", replace(SOURCES["cifar10"], files={ARCHIVE: digest})
    )
    return site


def get(site: Site, home: Path, name: str = "cifar10") -> Path:
    return fetch(name, home, progress=False, base_urls=site.base_urls)


def test_fresh_archive(cifar10: Site, tmp_path: Path) -> None:
    folder = get(cifar10, tmp_path / "new" / "home", "CIFAR-10")
    assert folder == tmp_path / "new" / "home" / "cifar-10-batches-py"
    assert sorted(p.name for p in folder.iterdir()) == ["batches.meta", *BATCHES]
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]  # nothing left over
    assert cifar10.asked == [ARCHIVE]


def test_complete_data_needs_no_network(cifar10: Site, tmp_path: Path) -> None:
    first = get(cifar10, tmp_path)
    assert get(cifar10, tmp_path) == first
    assert len(cifar10.asked) == 1


def test_fresh_table(table: Site, tmp_path: Path) -> None:
    folder = get(table, tmp_path, "nas-robbench-201")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == table.files
    (folder / "ops.json").unlink()
    (folder / "meta.json").touch()
    get(table, tmp_path, "nas-robbench-201")  # completes, and keeps what else is there
    assert {p.name for p in folder.iterdir()} == {TABLE, "ops.json", "meta.json"}


def test_progress_bar_goes_to_stderr(
    cifar10: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("cifar10", tmp_path, base_urls=cifar10.base_urls)
    out, err = capsys.readouterr()
    assert out == ""
    assert ARCHIVE in err


def test_a_broken_download_leaves_nothing_and_can_be_repeated(
    cifar10: Site, tmp_path: Path
) -> None:
    cifar10.dies_after = len(cifar10.files[ARCHIVE]) // 2
    with refuses(len(cifar10.files[ARCHIVE]), expected=cifar10.url + ARCHIVE):
        get(cifar10, tmp_path)
    assert list(tmp_path.iterdir()) == []
    cifar10.dies_after = None
    assert (get(cifar10, tmp_path) / BATCHES[4]).is_file()


def test_wrong_checksum(cifar10: Site, tmp_path: Path) -> None:
    cifar10.files[ARCHIVE] += b"more"
    with refuses(
        f"md5:{hashlib.md5(cifar10.files[ARCHIVE]).hexdigest()}", expected=cifar10.url + ARCHIVE
    ):
        get(cifar10, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_altered_operations(table: Site, tmp_path: Path) -> None:
    table.files["ops.json"] = b'arch=["421211"]'
    with refuses(1, expected=15625):
        get(table, tmp_path, "nas-robbench-201")
    assert not (tmp_path / "nas-robbench-201").exists()


def test_archive_without_its_files(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(site, monkeypatch, archive("cifar-10-batches-py/data_batch_1"))
    with refuses("data_batch_5", expected="cifar-10-batches-py"):
        get(site, tmp_path)
    assert not (tmp_path / "cifar-10-batches-py").exists()


def test_archive_that_reaches_outside(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(site, monkeypatch, archive("../../outside"))
    with refuses("data_batch_1", expected="cifar-10-batches-py"):
        get(site, tmp_path)
    assert list(tmp_path.rglob("outside")) == []


def test_no_network(site: Site, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        site.url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with refuses(expected=site.url + ARCHIVE, remedy=tmp_path / "cifar-10-batches-py"):
            get(site, tmp_path)


def test_missing_page(site: Site, tmp_path: Path) -> None:
    with refuses(404, expected=site.url + ARCHIVE):
        get(site, tmp_path)


def test_unwritable_data_folder(cifar10: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refuses(tmp_path / "file", remedy="NTKSCORE_DATA"):
        get(cifar10, tmp_path / "file")


def test_compressed_files(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = SOURCES["mnist"].files
    site.files = {name: gzip.compress(name.encode()) for name in names}
    digests = {name: f"md5:{hashlib.md5(c).hexdigest()}" for name, c in site.files.items()}
    source = replace(SOURCES["mnist"], files=digests)
    monkeypatch.setitem(downloads.SOURCES, "mnist", source)
    folder = get(site, tmp_path, "mnist")
    assert folder == tmp_path / "MNIST" / "raw"
    assert sorted(p.name for p in folder.iterdir()) == sorted(n[: -len(".gz")] for n in names)
    assert (folder / "train-labels-idx1-ubyte").read_bytes() == b"train-labels-idx1-ubyte.gz"


def test_an_archive_of_records_stays_one_and_is_the_whole_table_or_refused(
    site: Site, tmp_path: Path
) -> None:
    def offered(count: int) -> None:
        sizes = itertools.product(*[DEPTHS] * 3, *[WIDTHS] * 3)
        arches = [dict(zip(("D1", "D2", "D3", "W1", "W2", "W3"), of, strict=True)) for of in sizes]
        records = ({"arch": of, "train": [{}], "test_best": [TESTED]} for of in arches[:count])
        content = "\n".join(map(json.dumps, records)).encode()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
            info = tarfile.TarInfo("cifar10.jsonl")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        site.files = {"nares.txz": buffer.getvalue()}

    offered(15_624)
    with refuses("15,624", expected="15,625"):
        get(site, tmp_path, "nares")
    assert list(tmp_path.iterdir()) == []
    offered(15_625)
    folder = get(site, tmp_path, "NARes")
    assert [each.name for each in folder.iterdir()] == ["nares.txz"]
    assert len(load_table(folder).own) == 15_625


def test_what_cannot_be_fetched(tmp_path: Path) -> None:
    with refuses("svhn", expected="cifar10"):
        fetch("svhn", tmp_path)
    with refuses("imagenet", tmp_path / "ImageNet16"):
        fetch("imagenet", tmp_path)


def test_data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NTKSCORE_DATA", str(tmp_path))
    assert data_home() == tmp_path
    assert data_home("~/here") == Path.home() / "here"
    monkeypatch.delenv("NTKSCORE_DATA")
    assert "ntkscore" in data_home().parts


def test_real_data_folder_is_complete(data_dir: Path) -> None:
    there = {
        name: source
        for name, source in SOURCES.items()
        if any((data_dir / source.folder / file).is_file() for file in source.contents)
    }
    for name, source in there.items():
        found = fetch(name, data_dir, base_urls={name: "http://127.0.0.1:9/"})
        assert found == data_dir / source.folder
