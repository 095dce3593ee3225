"""Parquet parts of a result set: their schema, written and read with checksums."""

from collections.abc import Mapping, Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ntkscore.errors import InputError
from ntkscore.results.rows import CELL, VARYING
from ntkscore.text import one_line

_TYPES = {
    "seed": pa.int64(),
    "rho": pa.float64(),
    "steps": pa.int32(),
    "step_size": pa.float64(),
    "beta": pa.float64(),
    "kernel": pa.string(),
    "score": pa.string(),
    "value": pa.float64(),
    "status": pa.string(),
}
ORDER = ["seed", "kernel", "rho", "beta", "score"]
"""Columns that rows are sorted by, behind the network's key."""


def to_table(frame: pd.DataFrame, identity: Sequence[str]) -> pa.Table:
    """Rows of `identity` and `VARYING` as a table; refuses other columns, types and gaps."""
    columns = (*identity, *VARYING)
    if set(frame.columns) != set(columns):
        missing = sorted(set(columns) - set(frame.columns))
        unknown = sorted(set(frame.columns) - set(columns))
        raise InputError(
            f"rows with exactly the columns {', '.join(columns)}",
            f"but {missing} are missing and {unknown} are unknown",
            "give the rows of a run",
        )
    types = {"cell": pa.int64(), **_TYPES} if tuple(identity) == CELL else _TYPES
    arrays, fields = [], []
    for name in columns:
        column = frame[name]
        whole = pd.api.types.is_integer_dtype(column)
        type_ = types.get(name, pa.int64() if whole else pa.string())
        try:
            # NaN is a value that failed, or the step of an attack that has none; else it is absent.
            stays = name in ("value", "step_size")
            array = pa.array(column.to_numpy("float64") if stays else column, type=type_)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{type_} in the column {name}",
                f"something else ({one_line(error)})",
                "convert it first",
            ) from error
        if array.null_count and name != "beta":
            raise InputError(
                f"the column {name} filled in every row",
                f"but it is empty in {array.null_count}",
                "only beta may be absent",
            )
        arrays.append(array)
        fields.append(pa.field(name, type_, name == "beta"))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def to_bytes(frame: pd.DataFrame, identity: Sequence[str]) -> bytes:
    """Rows as the content of a Parquet file."""
    table, sink = to_table(frame, identity), pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name != "value"],
        use_byte_stream_split=["value"],
        write_page_checksum=True,
    )
    return sink.getvalue().to_pybytes()


def one_table(tables: Mapping[str, pa.Table]) -> pa.Table:
    """The parts as one table, with the wider type where an old part has a narrower one."""
    return pa.concat_tables(tables.values(), promote_options="permissive")


def merge(tables: Mapping[str, pa.Table], keys: Sequence[str]) -> pd.DataFrame:
    """The rows of all parts, at least one, in order; a unit in several counts from the first."""
    frame = one_table(tables).to_pandas()
    if len(tables) == 1:
        return frame.sort_values([keys[0], *ORDER], kind="stable", ignore_index=True)
    part = pd.Series(range(len(tables))).repeat([len(table) for table in tables.values()])
    part.index = frame.index
    first = part.groupby([frame[key] for key in keys], dropna=False).transform("min")
    return frame[part == first].sort_values([keys[0], *ORDER], kind="stable", ignore_index=True)


def read_part(content: bytes, columns: Sequence[str], name: str) -> pa.Table:
    """Some columns of a part, its checksums verified; it may have others."""
    try:
        part = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        schema = part.schema_arrow
        for column in (*columns, *VARYING):
            if column not in schema.names or (
                column in VARYING and schema.field(column).type != _TYPES[column]
            ):
                raise pa.ArrowInvalid("its columns are not those of a result set")
        return part.read(columns=list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            "a whole part",
            f"but {name} is damaged ({one_line(error)})",
            "delete it and run the same command again, which recomputes only its networks",
        ) from error
