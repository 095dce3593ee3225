"""Sizes of a measurement: the networks, the cells, the parity files and the benchmark's cells."""

from dataclasses import dataclass

from experiments.benchmark.work import FULL, SMALL, Fidelity


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        fidelity: images and networks of the ranking.
        benchmark: options of `python -m experiments.benchmark`.
        cells: how many are ranked; None for all.
        parity: how many parity files are verified, the smallest first; None for all.
    """

    fidelity: Fidelity
    benchmark: tuple[str, ...]
    cells: int | None = None
    parity: int | None = None

    def specification(self, table: bool) -> str:
        """The cells for `ntkscore.run.select`: those of a table if there is one."""
        if self.cells is None:
            return "table" if table else "distinct"
        return f"{'table' if table else 'random'}:{self.cells}"


SIZES = {
    "full": Size(FULL, ("--count", "8")),
    "small": Size(SMALL, ("--no-full", "--count", "8")),
    "tiny": Size(Fidelity.of(4, 4, 1), ("--no-full", "--count", "2"), cells=24, parity=1),
}
"""By name: full fidelity; a fidelity for CPUs; and as little as shows that everything works."""
