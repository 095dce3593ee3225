"""The rows of a result set: their schema, and the Parquet parts that hold them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ntkscore.errors import InputError

_TYPES = {
    "cell": pa.int32(),
    "string": pa.string(),
    "seed": pa.int64(),
    "dataset": pa.string(),
    "samples": pa.int32(),
    "channels": pa.int32(),
    "cells_per_stage": pa.int32(),
    "init": pa.string(),
    "bn": pa.string(),
    "output": pa.string(),
    "parameters": pa.string(),
    "attack": pa.string(),
    "rho": pa.float64(),
    "steps": pa.int32(),
    "step_size": pa.float64(),
    "beta": pa.float64(),
    "kernel": pa.string(),
    "score": pa.string(),
    "value": pa.float64(),
    "status": pa.string(),
}
SCHEMA = pa.schema([pa.field(name, type_, name == "beta") for name, type_ in _TYPES.items()])
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
UNIT = ("cell", "seed")
ORDER = ["cell", "seed", "kernel", "rho", "beta", "score"]


def to_table(frame: pd.DataFrame) -> pa.Table:
    """Rows as a table of `SCHEMA`; refuses what does not fit."""
    if set(frame.columns) != set(COLUMNS):
        missing = sorted(set(COLUMNS) - set(frame.columns))
        unknown = sorted(set(frame.columns) - set(COLUMNS))
        raise InputError(
            f"rows must have exactly the columns {', '.join(COLUMNS)}, but {missing} are missing "
            f"and {unknown} are unknown; give rows of ntkscore.parts.SCHEMA"
        )
    arrays = []
    for field in SCHEMA:
        column = frame[field.name]
        try:
            # In `value` NaN means failed and must stay NaN; elsewhere it means absent.
            array = pa.array(
                column.to_numpy("float64") if field.name == "value" else column, type=field.type
            )
        except (TypeError, ValueError) as error:
            raise InputError(
                f"column {field.name} must hold {field.type}, but holds something else "
                f"({_line(error)}); convert it first"
            ) from error
        if array.null_count and not field.nullable:
            raise InputError(
                f"column {field.name} must be filled in every row, but is empty in "
                f"{array.null_count}; only beta may be absent"
            )
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def merge(tables: Mapping[str, pa.Table], keys: Sequence[str]) -> pd.DataFrame:
    """The rows of all parts in order; a unit that several parts hold counts from the first."""
    table = pa.concat_tables(tables.values()) if tables else SCHEMA.empty_table()
    frame = table.to_pandas()
    part = pd.Series(range(len(tables))).repeat([len(table) for table in tables.values()])
    part.index = frame.index
    first = part.groupby([frame[key] for key in keys], dropna=False).transform("min")
    return frame[part == first].sort_values(ORDER, kind="stable", ignore_index=True)


def read_part(path: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of a part, its checksums verified."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(
            f"expected a readable part, but {path} cannot be read ({error.strerror}); mend its "
            "permissions and run the same command again"
        ) from error
    try:
        part = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        if not part.schema_arrow.equals(SCHEMA):
            raise pa.ArrowInvalid("its columns are not those of a result set")
        return part.read(columns=list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"expected a whole part, but {path} is damaged ({_line(error)}); delete it and run the "
            "same command again, which recomputes only its cells"
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
