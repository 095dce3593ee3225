"""The result set: Parquet parts in tidy rows beside one run.json, in a folder or under a URL."""

import json
import os
import platform
import sys
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ntkscore.errors import InputError
from ntkscore.paths import place, results_path
from ntkscore.results.atomic import is_temporary, refuse_file
from ntkscore.results.parquet import merge, one_table, read_part, to_bytes, to_table
from ntkscore.results.rows import CELL, FUNCTIONS, VARYING, constants, with_constants
from ntkscore.results.store import Bucket, Folder, Memory, store_at

RUN = "run.json"
NETWORKS = "networks.json"
"""What is known of networks of one's own, so that they are ranked without being made again."""
SESSION = "session-"
"""How the name of a session's file begins; older folders have their sessions in `run.json`."""
# Sorts before every part that a process wrote, so the duplicate rule prefers merged rows while a
# compaction is still deleting what it merged.
MERGED = "part-0-"
PACKAGES = ("ntkscore", "jax", "jaxlib", "flax", "optax", "numpy", "scipy", "pandas", "pyarrow")
"""Packages whose versions a result may depend on."""
READ_ATTEMPTS = 20
_RECORDED: set[tuple[str, str]] = set()
"""The sessions that this process has recorded: where, and all but the time."""


def provenance(extra: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Session record of `run.json`: time (UTC, ISO 8601), platform and versions."""
    versions = {}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    # The metadata of a clone are those of the day when it was installed.
    versions["ntkscore"] = sys.modules["ntkscore"].__version__
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions,
        **(extra or {}),
    }


@dataclass(frozen=True)
class ResultSet:
    """Rows in a directory that several processes may append to at once.

    A unit of work (one network at one seed) is written whole, in a single part, so a unit that is
    present is complete. On disk a row has the columns of `identity` and `VARYING` alone; what all
    rows share is joined from the configuration when they are read. What is damaged, of another
    configuration, or cannot be read or written is refused by an `InputError`.

    Attributes:
        directory: its folder, its URL as a text, or the memory that has it.
        configuration: all that decides the numbers, as JSON types.
        sessions: the time, platform, devices and versions of every session that wrote rows.
        identity: names of the columns that identify a row's network, its key first.
        kept: parts by name that stay in memory once they are read; None where none do.
    """

    directory: Path | str | Memory
    configuration: dict[str, Any]
    sessions: tuple[dict[str, Any], ...]
    identity: tuple[str, ...] = CELL
    kept: dict[str, pa.Table] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def create_or_resume(
        cls,
        directory: str | os.PathLike[str] | Memory,
        configuration: Mapping[str, object],
        identity: Sequence[str] = CELL,
    ) -> "ResultSet":
        """Start a result set, or go on with the one that has the same configuration."""
        store, configuration = store_at(directory), _as_json(configuration)
        _refuse_other_files(store)
        run = {"configuration": configuration, "identity": tuple(identity)}
        # Whoever writes it first, the same configuration is the same content.
        store.create(RUN, json.dumps(run, indent=2).encode())
        found = _load_run(store, store.names())
        _refuse_difference(found, configuration, tuple(identity))
        # Equal to the stored configuration, but in today's order.
        return replace(found, configuration=_known_to(found, configuration))

    def record(self, session: Mapping[str, object]) -> "ResultSet":
        """Record who writes rows, once however often a process comes back."""
        store, session = store_at(self.directory), _as_json(session)
        mark = os.path.abspath(str(store.place)), json.dumps({**session, "time": None})
        if mark not in _RECORDED or not any(n.startswith(SESSION) for n in store.names()):
            name = f"{SESSION}{time.time_ns()}-{uuid.uuid4().hex}.json"
            store.write(name, json.dumps(session, indent=2).encode())
            self = replace(self, sessions=(*self.sessions, session))
        _RECORDED.add(mark)
        return self

    def describe(self, networks: Mapping[str, Mapping[str, object]]) -> None:
        """Write what is known of networks, by key, beside what was written of others."""
        if networks and (there := self._described()) != (both := there | _as_json(networks)):
            store_at(self.directory).write(NETWORKS, json.dumps(both, indent=2).encode())

    def described(self) -> dict[str, dict[str, Any]]:
        """What `describe` has written, by key; empty where it lacks a network that has rows."""
        there = self._described()
        return there if all(key in there for (key,) in self.known(self.identity[0])) else {}

    def _described(self) -> dict[str, dict[str, Any]]:
        store = store_at(self.directory)
        if NETWORKS in store.names():
            with suppress(ValueError):  # A damaged file is written anew with the next scores.
                return json.loads(store.read([NETWORKS])[NETWORKS])
        return {}

    @staticmethod
    def check(
        directory: str | os.PathLike[str] | Memory, configuration: Mapping[str, object]
    ) -> None:
        """Refuse a directory that `create_or_resume` would refuse, and write nothing."""
        store = store_at(directory)
        if RUN in (names := _refuse_other_files(store)):
            _refuse_difference(_load_run(store, names), _as_json(configuration))

    @staticmethod
    def find(directory: str | os.PathLike[str]) -> "ResultSet | None":
        """The result set of a directory or of `recorded`, for reading; None where there is none."""
        store = store_at(results_path(directory))
        names = store.names()
        return _load_run(store, names) if RUN in names else None

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> "ResultSet":
        """Open an existing result set for reading."""
        if found := cls.find(directory):
            return found
        where = place(directory)
        missing = f"{where} has none"
        if isinstance(where, Path) and not where.exists():
            missing = f"there is no folder {where.absolute()}"
        raise InputError(
            f"a results directory with a {RUN}",
            f"but {missing}",
            "give the --out of an earlier run, or `recorded`",
        )

    def append(self, rows: pd.DataFrame | Iterable[Mapping[str, object]]) -> None:
        """Add rows as one new part that appears whole or not at all.

        Args:
            rows: the columns of `identity` and `VARYING`, as a run makes them, or rows as `read`
                gives them; `beta` None or NaN where the kernel has none, `value` NaN where the
                score failed. Every unit in them must be complete.
        """
        frame = pd.DataFrame(rows if isinstance(rows, pd.DataFrame) else [*map(dict, rows)])
        if not frame.empty:
            shared = constants(self.configuration)
            self._write(frame.drop(columns=list(shared), errors="ignore"), f"part-{os.getpid()}-")

    @property
    def unit(self) -> tuple[str, str]:
        """The columns that name a unit: the network's key and the seed."""
        return self.identity[0], "seed"

    def finished(self) -> set[tuple[Any, ...]]:
        """The units on disk, as (key, seed)."""
        return self.known(*self.unit)

    def known(self, *columns: str) -> set[tuple[Any, ...]]:
        """The entries of some columns that stand together in a row."""
        if not (tables := self._tables(columns)):
            return set()
        groups = one_table(tables).group_by(list(columns)).aggregate([])
        return set(zip(*(groups[name].to_pylist() for name in columns), strict=True))

    def read(self) -> pd.DataFrame:
        """All rows with every column, sorted by network, seed, kernel, ρ, β and score.

        Of a unit that two processes both wrote, the part whose name comes first counts. An absent
        `beta` and a failed `value` are NaN.
        """
        empty = pd.DataFrame(columns=[*self.identity, *VARYING])
        tables = self._tables() or {"": to_table(empty, self.identity)}
        rows = merge(tables, self.unit)
        return with_constants(rows, self.identity, self.configuration)

    def compact(self, most: int = 1) -> None:
        """Merge all parts into one; a crash on the way loses and repeats nothing.

        Args:
            most: parts that may stay. With more than one they also stay while the merged ones have
                most of the rows, so that a run of many parts is not written again for each.
        """
        if len(self._parts()) <= most:
            return
        tables = self._tables()
        sizes = {name: len(table) for name, table in tables.items()}
        merged = sum(size for name, size in sizes.items() if name.startswith(MERGED))
        if len(tables) > 1 and (most == 1 or 2 * merged <= sum(sizes.values())):
            self._write(merge(tables, self.unit), MERGED)
            store_at(self.directory).delete([*tables])

    def _parts(self) -> list[str]:
        names = store_at(self.directory).names()
        return sorted(n for n in names if n.startswith("part-") and n.endswith(".parquet"))

    def _tables(self, columns: Sequence[str] = ()) -> dict[str, pa.Table]:
        """Every part by name; reads again when another process compacts meanwhile."""
        every = (*self.identity, *VARYING)
        # A part never changes under its name.
        kept, columns = ({}, columns or every) if self.kept is None else (self.kept, every)
        for _ in range(READ_ATTEMPTS):
            names = self._parts()
            try:
                contents = store_at(self.directory).read([n for n in names if n not in kept])
            except FileNotFoundError:
                continue
            for name, content in contents.items():
                kept[name] = read_part(content, columns, f"{self.directory}/{name}")
            tables = {name: kept[name] for name in names}
            for name in kept.keys() - tables.keys():
                del kept[name]
            # A listing taken during a compaction can miss both the merged part and its sources.
            if not any(name.startswith(MERGED) and name not in tables for name in self._parts()):
                return tables
        raise InputError(
            f"the parts in {self.directory} to stay in place while they are read",
            "but they keep vanishing",
            "stop the process that moves them and run the same command again",
        )

    def _write(self, frame: pd.DataFrame, prefix: str) -> None:
        content = to_bytes(frame, self.identity)
        store_at(self.directory).write(f"{prefix}{uuid.uuid4().hex}.parquet", content)


def _as_json(value: Mapping[str, object]) -> dict[str, Any]:
    return json.loads(json.dumps(value))


def _load_run(store: Folder | Bucket, names: Sequence[str]) -> ResultSet:
    """What `run.json` holds, and the sessions that have files of their own among these names."""
    files = [RUN, *sorted(name for name in names if name.startswith(SESSION))]
    run, *others = store.read(files).values()
    try:
        run = json.loads(run)
        configuration = run["configuration"]
        sessions = run.get("sessions", []) if "identity" in run else run["sessions"]
        if not (isinstance(configuration, dict) and isinstance(sessions, list)):
            raise TypeError("configuration or sessions have the wrong type")
        sessions += map(json.loads, others)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            "a run's configuration",
            f"but {store.place}/{RUN} is damaged ({type(error).__name__}: {error})",
            "restore it or choose another --out",
        ) from error
    if not run.get("identity"):
        raise InputError(
            "results of version 0.2 or later",
            f"older ones in {store.place}",
            "run the same command once with ntkscore 0.3, which brings them up to date",
        )
    return ResultSet(store.place, configuration, tuple(sessions), tuple(run["identity"]))


def _refuse_other_files(store: Folder | Bucket) -> list[str]:
    """The names of the files; refuses those of somebody else."""
    if isinstance(store, Folder):
        refuse_file(store.place)
    names = store.names()
    if RUN not in names and not all(map(is_temporary, names)):
        raise InputError(
            f"a new or empty directory or one with a {RUN}",
            f"but {store.place} has other files",
            "choose another --out",
        )
    return names


def _known_to(stored: ResultSet, current: Mapping[str, object]) -> dict[str, Any]:
    """A configuration, without functions for a run from before they were recorded."""
    absent = {FUNCTIONS} - stored.configuration.keys()
    return {name: value for name, value in current.items() if name not in absent}


def differences(
    stored: Mapping[str, object], current: Mapping[str, object], but: Collection[str] = ()
) -> list[str]:
    """The differences of two configurations of plain values in words, some paths left out."""
    old, new = dict(leaves(stored)), dict(leaves(current))
    return [
        f"{key}: stored {old.get(key, 'nothing')}, asked {new.get(key, 'nothing')}"
        for key in {**old, **new}
        if key not in but and (key not in old or key not in new or old[key] != new[key])
    ]


def _refuse_difference(
    stored: ResultSet, current: Mapping[str, object], identity: tuple[str, ...] = ()
) -> None:
    current = _known_to(stored, current)
    there, asked = (dict(leaves(one)) for one in (stored.configuration, current))
    prefix = f"{FUNCTIONS}.measures."
    new = [name for name in asked if name.startswith(prefix) and name not in there]
    differing = differences(stored.configuration, current, new)
    if new:
        names = ", ".join(name.removeprefix(prefix) for name in new)
        differing.append(f"it was begun without the measures {names}")
    if identity and identity != stored.identity:
        before, now = ", ".join(stored.identity), ", ".join(identity)
        differing.append(f"names of a network: stored {before}, asked {now}")
    if differing:
        raise InputError(
            f"in {stored.directory} results of the same configuration",
            f"those of another configuration ({'; '.join(differing)})",
            "choose another --out",
        )


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The plain values of a configuration, each with its path, such as `recipe.epochs`."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from leaves(child, f"{path}.{key}" if path else key)
    else:
        yield path, value
