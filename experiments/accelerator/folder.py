"""The folder that a measurement leaves: its files by name, and their content."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.accelerator.sizes import SIZES
from ntkscore.errors import InputError


@dataclass(frozen=True)
class Folder:
    """One machine's measurements; what was not measured reads as empty.

    Attributes:
        path: where it lies.
    """

    path: Path

    @property
    def log(self) -> Path:
        """What ran when, how it ended, and all that it said on stderr."""
        return self.path / "log.txt"

    @property
    def space(self) -> Path:
        """The result directory of the ranking."""
        return self.path / "space"

    @property
    def clock(self) -> Path:
        """A line of JSON for every call to the devices."""
        return self.path / "clock.jsonl"

    @property
    def page(self) -> Path:
        """What came of it, for a person; its figure has the same stem."""
        return self.path / "page.md"

    def begin(self, size: str) -> None:
        """Make the folder for a size, or go on with the one that was begun with it.

        Raises:
            InputError: if there is no such size, or the folder was begun with another.
        """
        if size not in SIZES:
            raise InputError(f"expected a size out of {', '.join(SIZES)}, got {size!r}; choose one")
        begun = self.read("settings").get("size", size)
        if begun != size:
            raise InputError(
                f"expected the size {begun}, with which {self.path} was begun, got {size}; "
                "choose another --out"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self.write("settings", {"size": size})

    def write(self, name: str, content: Any) -> None:
        """Keep a JSON value under a name."""
        (self.path / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")

    def read(self, name: str) -> Any:
        """A JSON value by name; an empty dict where there is none."""
        try:
            return json.loads((self.path / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def calls(self) -> pd.DataFrame:
        """All calls to the devices, one a row, in order."""
        text = self.clock.read_text(encoding="utf-8") if self.clock.exists() else ""
        # A process that was killed may have left half a line.
        *whole, _ = text.split("\n")
        return pd.DataFrame(map(json.loads, whole))

    def checks(self) -> pd.DataFrame:
        """All quantities that were held against reference values, by file and precision."""
        parts = []
        for path in sorted(self.path.glob("verify-*.csv")):
            if path.stat().st_size:
                precision = path.stem.rpartition("-")[2]
                parts.append(pd.read_csv(path).assign(precision=precision))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
