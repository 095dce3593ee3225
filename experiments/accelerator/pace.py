"""The pace of a ranking, from the clock that ran beside it."""

from dataclasses import dataclass

import pandas as pd

NAN = float("nan")


@dataclass(frozen=True)
class Pace:
    """How fast cells were scored.

    Attributes:
        done: cells on disk.
        total: cells of the whole space.
        rate: cells per second, the first call of every start left out; NaN while unknown.
        first: seconds of the first start's first call, nearly all of them compilation.
        again: the same of the last start, which finds compiled programs on disk; NaN if it is the
            first.
        spent: seconds of all starts.
        peak_bytes: the most memory that a device had in use.
        group: networks side by side on a device.
        devices: how many took part.
        plan: the layout in words.
    """

    done: int
    total: int
    rate: float
    first: float
    again: float
    spent: float
    peak_bytes: int
    group: int
    devices: int
    plan: str

    @classmethod
    def of(cls, calls: pd.DataFrame) -> "Pace | None":
        """The pace of a clock's calls; None where none was finished."""
        computed = calls[calls["done"] > 0] if len(calls) else calls
        if computed.empty:
            return None
        starts = calls.groupby("session")["seconds"]
        waits = computed.groupby("session")["seconds"].min() - starts.min()
        waits = waits.reindex(computed["session"].unique())
        # Another layout is another program, and compiles again.
        steady = computed.groupby(["session", "plan"])[["seconds", "done"]]
        span = (steady.max() - steady.min()).sum()
        last = computed.iloc[-1]
        return cls(
            done=int(last["resumed"] + last["done"]),
            total=int(last["total"]),
            rate=span["done"] / span["seconds"] if span["done"] else NAN,
            first=waits.iloc[0],
            again=waits.iloc[-1] if len(waits) > 1 else NAN,
            spent=starts.max().sum(),
            peak_bytes=int(calls["peak_bytes"].max()),
            group=int(last["group"]),
            devices=int(last["devices"]),
            plan=str(last["plan"]),
        )

    @property
    def projected(self) -> float:
        """Seconds of the whole space in one go, compilation included."""
        return self.first + self.total / self.rate

    @property
    def complete(self) -> bool:
        """Whether every cell is on disk."""
        return self.done == self.total
