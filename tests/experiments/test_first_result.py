"""The clock between the shell and a first number."""

import subprocess
import sys
from types import ModuleType

import pytest
from tiny import refuses

from experiments.recordings import SMALL
from experiments.tools.benchmark import seconds_to_a_result


def test_the_clock_stops_at_a_line_and_refuses_a_program_that_prints_none() -> None:
    assert 0 < seconds_to_a_result("platform") < 60
    with refuses("none", expected="-m antigravity_"):
        seconds_to_a_result("antigravity_")


@pytest.mark.slow
def test_pytorchs_first_result_imports_no_jax(torch: ModuleType) -> None:
    """The rival would else pay for our imports."""
    program = (
        "import sys; from experiments.tools import torch_reference as first\n"
        f"first.main('323133', 4, 1, {SMALL['samples']}); print('jax' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    numbers, imported = subprocess.check_output(command, text=True).splitlines()
    norm, smallest = map(float, numbers.split())
    assert norm > smallest > 0
    assert imported == "False"
