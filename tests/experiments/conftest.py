"""What studies read, shared by their tests."""

from pathlib import Path

import pytest

from experiments.data import Data


@pytest.fixture(scope="session")
def data(data_dir: Path) -> Data:
    return Data(data_dir)
