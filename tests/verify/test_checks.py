"""The self-check passes on real reference values, and fails where something is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import invoke, refuses

from cells import NASBench201
from cells.nasbench201.parity import load_parity
from ntkscore.verify.checks import Check, kink_bound, verify

FILE = "cell_00173_c4_n1.npz"


@pytest.mark.thorough
@pytest.mark.parametrize("x64", [False, True])
def test_a_parity_file_passes(data_dir: Path, x64: bool) -> None:
    checks = list(verify(NASBench201.reference(data_dir / "parity" / FILE), x64))
    assert len(checks) == 26
    assert [check.quantity for check in checks if not check.passed] == []
    if x64:
        assert max(check.error for check in checks) < 1e-9


@pytest.mark.thorough
def test_an_altered_file_fails_with_exit_code_1(data_dir: Path, tmp_path: Path) -> None:
    arrays = load_parity(data_dir / "parity" / FILE)
    arrays["ntk_trace_all"] = arrays["ntk_trace_all"] * 1.01
    altered = tmp_path / "altered.npz"
    np.savez(altered, **arrays)  # type: ignore[arg-type]
    result = invoke("verify", altered, "--format", "json", code=1)
    failed = [row["quantity"] for row in json.loads(result.stdout) if row["result"] != "pass"]
    assert failed == ["ntk_trace_all"]


def test_files_that_cannot_be_used(data_dir: Path, tmp_path: Path) -> None:
    with refuses("FileNotFoundError", expected=tmp_path / "none.npz"):
        load_parity(tmp_path / "none.npz")
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes((data_dir / "parity" / FILE).read_bytes()[:1000])
    with refuses("BadZipFile", expected=damaged):
        load_parity(damaged)
    np.savez(tmp_path / "other.npz", images=np.zeros(3))
    with refuses(15, expected=("arch_str", tmp_path / "other.npz")):
        load_parity(tmp_path / "other.npz")


def test_the_kink_bound_is_a_second_chance_only() -> None:
    assert Check("x", 1e-4, 1e-3).passed
    assert not Check("x", 2e-3, 1e-3).passed
    assert Check("x", 2e-3, 1e-3, kink_bound=3e-3).passed
    assert not Check("x", 4e-3, 1e-3, kink_bound=3e-3).passed


def test_the_kink_bound_allows_its_own_rounding() -> None:
    move, tolerance = 0.0030590, 1e-3
    assert Check("x", 0.0030595, tolerance, kink_bound(move)).passed
    assert not Check("x", 0.0032, tolerance, kink_bound(move)).passed
    # Where nothing moves, a kernel's own rounding is all that is allowed.
    assert 1e-6 < kink_bound(0.0) < tolerance
