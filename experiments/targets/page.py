"""The page of targets, from the rows that the compilers left."""

import json
from collections.abc import Iterator, Sequence

import pandas as pd

from cells.nasbench201.space import NASBench201
from experiments.recordings import FULL_FIDELITY, SMALL
from experiments.study import RECORDED
from experiments.targets.programs import PROGRAMS, space_at
from ntkscore.config import Config
from ntkscore.run.devices import side_by_side
from ntkscore.run.fits import arithmetic, mean_cost
from ntkscore.run.selection import select
from ntkscore.run.targets import GIB, TARGETS, Target

ROWS = RECORDED / "targets.csv"
FIDELITIES = {"full": FULL_FIDELITY, "small": SMALL}
COLUMNS = {
    "program": "program",
    "networks": "networks per call",
    "compiled": "compiled, s",
    "needs": "memory, GiB",
    "gflop": "GFLOP",
    "launches": "launches",
    "moved": "GB read and written",
    "convolutions": "convolutions",
    "choices": "choices",
    "generic": "gather, scatter, sort",
    "communication": "communication",
    "reduced": "in fewer bits",
}
INTRODUCTION = """# Programs compiled for GPUs and TPUs

Made by `make targets` (`python -m experiments.targets`) on a machine with two CPU cores and no
accelerator: JAX describes the devices, and their own compilers lay out the programs. Nothing here
was run. What a compiler cannot show is the numerics, the speed, and which algorithm cuDNN picks.

Columns: *memory* is what a program needs on a device at its peak, arguments and results among it,
by the compiler. The columns after it are for a network, or for a training step. *GFLOP* counts
convolutions and matrix products of a network with the most expensive operations. *launches* are
operations that the device starts one by one. *GB read and written* is what these read and write;
a cache may spare the memory a part of it. *choices* are branches that are chosen between; on a GPU
the host reads each choice. Of branches the one that moves most counts. *in fewer bits* counts
convolutions and products that the device may compute in fewer bits than float32 has. "unknown"
stands where only the numbers decide how often a loop runs."""
FOUND = """## What was found, and what was done

- **A network of one's own was computed in fewer bits.** Its forward and backward passes left the
  precision to the device: 230 convolutions and products of a ResNet-18, 609 of a ViT. Kernels and
  attacks of such networks now ask for all bits, as those of the search spaces did before. Who sets
  JAX's own `jax_default_matmul_precision` gets that.
- **Training on eight devices gathered all activations on every device.** A branch handed them from
  the forward pass to the backward pass, and 116 all-gathers copied them: 6.14 GiB on each of eight
  devices, 4.19 on one. Now the backward pass is in the branch, gradients and batch statistics alone
  are summed, and the step needs 0.32 GiB on each of eight and 2.06 on one.
- **Groups on accelerators were chosen by an estimate.** The compiler's figure replaced it (below).
- **Side by side, networks move more bytes on a TPU.** At full fidelity a network reads and writes
  53 GB alone, 177 GB in groups of two and 184 GB in groups of 8 or 16. Runs took the largest groups
  that had room, on TPUs as on GPUs. Now a TPU computes one network after the other. At small
  fidelity a group of 16 moves twice the bytes in a sixth of the launches; which is faster, only a
  TPU says.
- **Memory limits these programs, not arithmetic** (below). Reads and writes at the published
  bandwidth take two to seven times as long as the arithmetic at the published rate on a GPU, and
  six times as long and more on a TPU. Products in fewer bits would save little.
- **One by one, a network is thousands of launches.** In groups of 16 they are a tenth. In groups of
  64 they are a quarter of that, but a group computes every operation that one of its networks has:
  1.17 times the arithmetic of 3 x 3 and 1 x 1 convolutions at 16, 1.53 times at 64. The group stays
  at 16.
- **No slow form was found** in the programs of the search spaces: no convolution that is not
  cuDNN's on a GPU, no sort but that of an image's ten logits in the measures, no decomposition
  (spectra are computed on the host), no call back to Python. The gathers and scatters pick logits
  and encodings.
- **Compiling for a TPU takes minutes** with the compiler's usual effort. With the least effort, as
  here, the smallest program takes 59 s and not 149 s, and needs a tenth more memory."""


def kept_rows() -> pd.DataFrame:
    """What the compilers left, a row per target and program; empty before the first."""
    return pd.read_csv(ROWS, keep_default_na=False) if ROWS.is_file() else pd.DataFrame()


def compiled_row(rows: pd.DataFrame, target: Target, program: str) -> pd.Series | None:
    """The row of a program that was compiled for a target; None if there is none."""
    if rows.empty:
        return None
    of = (rows["target"] == target.name) & (rows["program"] == program) & (rows["failure"] == "")
    return rows[of].iloc[0] if of.any() else None


def moved_bytes(target: Target, space: NASBench201, samples: int) -> float | None:
    """Bytes that the most expensive network reads and writes, where its program was compiled."""
    for label, fidelity in FIDELITIES.items():
        if samples == fidelity["samples"] and space == space_at(fidelity).on(space.task):
            name = f"NAS-Bench-201, {label}, group of {side_by_side(target.backend)}"
            row = compiled_row(kept_rows(), target, name)
            return None if row is None else 1e9 * float(row["moved_gb"])
    return None


def tables(rows: pd.DataFrame) -> Iterator[str]:
    """A section for each target."""
    for name, target in TARGETS.items():
        of = rows[rows["target"] == name].set_index("program")
        if of.empty:
            continue
        yield f"## {name}: {target.memory / GIB:.3g} GiB, {target.room / GIB:.3g} GiB for programs"
        yield table(list(COLUMNS.values()), [line(of.loc[p], p) for p in PROGRAMS if p in of.index])


def line(row: pd.Series, program: str) -> list[str]:
    """The cells of a program's line."""
    if row["failure"]:
        return [program, str(PROGRAMS[program].networks), str(row["failure"]), *[""] * 9]
    counted = {name: json.loads(row[name]) for name in ("generic", "communication")}
    said = {k: ", ".join(f"{n} {c}" for c, n in v.items()) or "none" for k, v in counted.items()}
    # Where the numbers decide how often a loop runs, a program's work is not known.
    known = float(row["unknown_loops"]) == 0
    return [
        program,
        str(PROGRAMS[program].networks),
        f"{float(row['compiled_seconds']):.0f}",
        f"{float(row['needs_bytes']) / GIB:.3g}",
        f"{float(row['gflop']):.3g}",
        f"{float(row['launches']):,.0f}" if known else "unknown",
        f"{float(row['moved_gb']):.3g}" if known else "unknown",
        f"{float(row['convolutions']):.0f}",
        f"{float(row['choices']):,.0f}" if known else "unknown",
        said["generic"],
        said["communication"],
        f"{float(row['reduced']):.0f}",
    ]


def table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(each)} |" for each in rows)


def bounds() -> Iterator[str]:
    """A bound on the time of the whole space, for each target."""
    yield "## The whole space, at best"
    yield (
        "The arithmetic of the 5,234 distinct cells at one seed, computed one by one, at each "
        "device's published rate for float32 at full precision: a bound below any measurement, and "
        "no measurement. The table's 6,466 cells are 1.24 times as many. TPUs multiply float32 "
        "numbers as six products of bfloat16 ones. "
        "`make accelerator` prints the bound beside what it measures."
    )
    lines = []
    for label, fidelity in FIDELITIES.items():
        space, config = space_at(fidelity), Config(samples=fidelity["samples"])
        cells = select("distinct", space)
        work, mean = arithmetic(space, config, space.parse("333333")), mean_cost(space, cells)
        for target in TARGETS.values():
            seconds = work.seconds(target, len(cells), mean)
            rate = f"{target.rate / 1e12:.3g}"
            lines.append([label, target.name, rate, f"{seconds:.3g}", target.source])
    yield table(["fidelity", "target", "TFLOP/s", "seconds at best", "rate after"], lines)


def limits(rows: pd.DataFrame) -> Iterator[str]:
    """Arithmetic beside reads and writes of a network, at a device's published rates."""
    yield "## What limits a network"
    yield (
        "Milliseconds of the most expensive network's arithmetic at the published rate, and of "
        "what its operations read and write at the published bandwidth, if a cache spares nothing. "
        "The launches come on top: of each, a GPU may take a few microseconds."
    )
    lines = []
    for name in [p for p in PROGRAMS if p.startswith("NAS-Bench-201") and PROGRAMS[p].devices == 1]:
        for target in TARGETS.values():
            row = compiled_row(rows, target, name)
            if row is None or float(row["unknown_loops"]):
                continue
            gflop, moved, launches = (float(row[c]) for c in ("gflop", "moved_gb", "launches"))
            arithmetic, traffic = 1e12 * gflop / target.rate, 1e12 * moved / target.bandwidth
            lines.append(
                [name, target.name, f"{arithmetic:.3g}", f"{traffic:.3g}", f"{launches:,.0f}"]
            )
    yield table(["program", "target", "arithmetic, ms", "reads and writes, ms", "launches"], lines)


def memory(rows: pd.DataFrame) -> Iterator[str]:
    """What a space estimates beside what the compiler says."""
    yield "## Memory: estimated, and by the compiler"
    yield (
        "Groups on accelerators were chosen by the space's own estimate. It is off by more than "
        "20 %, and differently on GPUs and TPUs, so the compiler's figure replaced it: a run "
        "compiles its program, asks what it needs, and takes the largest group that has room, "
        "before anything is computed. Only on CPUs the estimate still says how many cores take "
        "part."
    )
    lines = []
    for name, program in PROGRAMS.items():
        group = program.networks // 4
        if not name.startswith("NAS-Bench-201") or program.devices > 1 or "," in name[22:36]:
            continue
        fidelity = FULL_FIDELITY if "full" in name else SMALL
        estimate = group * space_at(fidelity).memory((), 3 * fidelity["samples"], 4)
        for target in ("h100", "v5e"):
            row = compiled_row(rows, TARGETS[target], name)
            if row is None:
                continue
            needs = float(row["needs_bytes"])
            lines.append(
                [
                    name,
                    target,
                    f"{estimate / GIB:.3g}",
                    f"{needs / GIB:.3g}",
                    f"{estimate / needs:.2f}",
                ]
            )
    yield table(["program", "target", "estimated, GiB", "by the compiler, GiB", "ratio"], lines)


def write(rows: pd.DataFrame) -> str:
    """The whole page."""
    parts = [INTRODUCTION, FOUND, *bounds(), *limits(rows), *memory(rows), *tables(rows)]
    return "\n\n".join(parts) + "\n"
