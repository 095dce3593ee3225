"""The architectures of a run, from a specification such as `random:64`."""

import difflib
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

from ntkscore.analysis.comparison import in_keys_of
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.names import DIGITS, INDICES
from ntkscore.space import Architecture, Space

MANY = 1_000_000
"""Networks of a set that can still be listed."""


def select(
    spec: str | Sequence[Architecture],
    space: Space,
    table: Table | None = None,
    seed: int = 0,
) -> tuple[Architecture, ...]:
    """The architectures that a specification names, in a fixed order.

    Args:
        spec: `distinct` (one per function, where the space can tell), `all`, `table` (the
            networks with results of their own), `random:K` (K of the distinct ones), `table:K` (K
            of the table's), a file with one architecture a line, whose first may be a heading
            (`digits`, `cell`), or architectures separated by commas; a list of architectures by any
            of their names stands for itself.
        table: for `table` and `table:K`.
        seed: of the random choice of K; a smaller K gives the first of a larger one.

    Raises:
        InputError: if the specification is none of these, or one of the architectures is none.
    """
    if not isinstance(spec, str):
        return tuple(dict.fromkeys(space.parse_all(spec)))
    if spec in space.sets:
        listed = space.architectures(spec)
        if len(listed) > MANY:
            raise InputError(
                f"a set of at most {MANY:,} networks",
                f"the {len(listed):,} entries of {space.name}",
                "name random:64, a file with one a line, or the networks themselves",
            )
        return tuple(listed)
    kind, _, count = spec.partition(":")
    if kind == "table" and table is None:
        raise InputError(f"a table for the cells {spec!r}", "none", "add --table with its path")
    if kind in ("random", "table"):
        candidates: Sequence[Architecture]
        if kind == "table" and table:
            keys = in_keys_of(space, table).own
            candidates = tuple(dict.fromkeys(space.parse(str(key)) for key in keys))
        else:
            candidates = space.architectures("distinct")
        if spec == "table":
            return tuple(candidates)
        if not count.isdecimal() or not 1 <= int(count) <= len(candidates):
            raise InputError(
                f"{kind}:K with K from 1 to {len(candidates):,}",
                repr(spec),
                f"{kind}:{min(64, len(candidates))} is a quick start",
            )
        return _drawn(candidates, int(count), random.Random(seed))
    # A genotype's string is too long for a file's name, which `Path.is_file` does not answer.
    if os.path.isfile(spec):
        path = Path(spec)
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except UnicodeDecodeError:
            raise InputError(
                "a text file with one architecture a line",
                f"other bytes in {path}",
                "name another file",
            ) from None
        named = [line for line in lines if line and not line.startswith("#")]
        heading = named.pop(0) if named and named[0].lower() in (DIGITS, *INDICES) else ""
        chosen = [space.parse(text) for text in space.written(named, heading)]
        if not chosen:
            raise InputError(f"one architecture a line in {path}", "none", "add some")
    else:
        chosen = _named(spec, space)
    return tuple(dict.fromkeys(chosen))


def _named(spec: str, space: Space) -> list[Architecture]:
    """The architectures that are named between commas."""
    try:
        return space.parse_all(_split(spec))
    except InputError:
        if re.fullmatch(r"[^|()]*[\\/][^|()]*|[^|(),]*\.[A-Za-z]{2,4}", spec):
            raise InputError(
                f"a file with one architecture a line at {spec}", "no such file", "check the path"
            ) from None
        sets = [*space.sets, "table", "random:64", "table:64"]
        near = difflib.get_close_matches(spec, sets, cutoff=0.75)
        if not near and not re.fullmatch(r"[A-Za-z]+:-?\d*", spec):
            raise
        raise InputError(
            "names of architectures, a file with one a line, or a set: "
            f"{', '.join(space.sets)}, random:K, table or table:K",
            repr(spec),
            f"write {near[0] if near else 'random:64'}, say",
        ) from None


def _drawn(
    candidates: Sequence[Architecture], count: int, rng: random.Random
) -> tuple[Architecture, ...]:
    """As many different ones; fewer of them are the first of more."""
    if len(candidates) <= MANY:
        return tuple(rng.sample(candidates, len(candidates))[:count])
    chosen: dict[Architecture, None] = {}
    while len(chosen) < count:
        chosen[candidates[rng.randrange(len(candidates))]] = None
    return tuple(chosen)


def _split(text: str) -> list[str]:
    """What stands between commas, apart from those within brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts
