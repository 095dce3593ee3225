"""What cells are ranked by."""

import numpy as np
import pandas as pd
import pytest

from ntkscore.errors import InputError
from ntkscore.ranking import DEFAULT, combined, direction_of, parse_terms, ranking

SCORES = pd.DataFrame(
    {"params": [10, 20, 30, 40], "clean.condition": [5.0, 1.0, np.nan, 2.0]},
    index=pd.Index([1, 2, 3, 4], name="cell"),
)


def test_terms() -> None:
    assert parse_terms("robust.frobenius") == ("robust.frobenius",)
    assert parse_terms("flops+joint_clean.trace", (0.25,)) == ("flops", "joint_clean@0.25.trace")
    assert parse_terms(DEFAULT)
    for text in ("params+", "size", "robust.frobenius+ params"):
        with pytest.raises(
            InputError,
            match=r"expected KERNEL\.SCORE with .* or params, flops, or several joined by \+",
        ):
            parse_terms(text)


def test_directions() -> None:
    assert direction_of("clean.condition") == -1
    assert direction_of("cross.sigma_min") == direction_of("params") == +1


def test_one_score_keeps_its_value_up_to_the_sign() -> None:
    found = combined(SCORES, ["clean.condition"])
    np.testing.assert_array_equal(found, [-5, -1, np.nan, -2])


def test_several_become_a_sum_of_log_ranks_among_the_cells_that_have_all() -> None:
    found = combined(SCORES, ["params", "clean.condition"])
    np.testing.assert_allclose(found, [np.log(1 * 1), np.log(2 * 3), np.nan, np.log(3 * 2)])


def test_ranking_puts_failed_cells_last() -> None:
    values = {2581: 3.0, 0: 7.0, 1462: np.nan}
    rows = pd.DataFrame(
        [
            {"cell": cell, "seed": 0, "kernel": "clean", "beta": np.nan, "score": "trace"}
            | {"value": value}
            for cell, value in values.items()
        ]
    )
    by_trace = ranking(rows, ["clean.trace"])
    assert list(by_trace["cell"]) == [0, 2581, 1462]
    assert list(by_trace["rank"]) == [1, 2, 3]
    by_both = ranking(rows, ["flops", "clean.trace"])
    assert list(by_both["sum of log-ranks"])[:2] == pytest.approx([np.log(2), np.log(2)])
    assert by_both["cell"].iloc[-1] == 1462
    assert list(ranking(rows, ["params"])["cell"]) == [1462, 2581, 0]
