"""Where the tests find real data, and the strictness they run under."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("NTKSCORE_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets, tables and parity files; skips where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"real data not found at {DATA}; set NTKSCORE_DATA to a folder that has it")
    return DATA
