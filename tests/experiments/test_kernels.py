"""Kernel scores beside accuracies: coefficients, differences of them, and figures of any run."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.data import METRIC, RESAMPLES, Data, bootstrap
from experiments.frame import Interval
from experiments.page import write_files
from experiments.paper import PAPER, conventions, ntk_correlation
from experiments.paper.contrasts import by_seed, coefficients, interval, sure_interval
from experiments.paper.ntk_correlation import ABOVE_CLEAN, CLEAN, FGSM_ABOVE_PGD, GROWS, Kernel
from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.paired import difference

CELLS = [0, 7, 11, 13, 17, 300, 301, 302, 303, 1462, 2581, 15624]


def tidy(seeds: int = 3) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of two scores, the first near the accuracy and the second not; and the accuracy."""
    rng = np.random.default_rng(0)
    accuracy = rng.uniform(size=len(CELLS))
    rows = [
        {"cell": cell, "seed": seed, "score": score, "value": of + spread * rng.normal()}
        for score, spread in (("good", 0.1), ("bad", 1.0))
        for seed in range(seeds)
        for cell, of in zip(CELLS, accuracy, strict=True)
    ]
    return pd.DataFrame(rows), accuracy


def test_coefficients_are_those_of_agreement_and_their_difference_is_paired() -> None:
    rows, accuracy = tidy()
    scores = by_seed(rows, "score")
    found = coefficients(scores, accuracy)
    means = rows.groupby(["score", "cell"])["value"].mean()
    for name in ("good", "bad"):
        wanted = agreement(means[name], accuracy, **bootstrap(CELLS))
        limits = wanted.spearman, wanted.spearman_low, wanted.spearman_high
        assert interval(found[(name,)]) == pytest.approx(limits)
        own = [agreement(scores[name, seed], accuracy, resamples=1).spearman for seed in range(3)]
        assert found[(name,)][1:-RESAMPLES] == pytest.approx(own)
    gap = found["good",] - found["bad",]
    wanted = difference(means["good"], means["bad"], accuracy, **bootstrap(CELLS))
    assert interval(gap) == pytest.approx((wanted.value, wanted.low, wanted.high))


def test_a_cell_that_failed_once_is_left_out() -> None:
    rows, _ = tidy()
    rows.loc[(rows["cell"] == 7) & (rows["seed"] == 1) & (rows["score"] == "bad"), "value"] = np.nan
    assert list(by_seed(rows, "score").index) == [cell for cell in CELLS if cell != 7]


def test_a_sure_interval_holds_every_seeds_own() -> None:
    resampled = 0.05 + np.linspace(-0.004, 0.004, RESAMPLES)
    for seeds, low, high in (((0.04, 0.06, 0.1), 0.04, 0.1), ((0.05, 0.05), 0.0462, 0.0538)):
        found = sure_interval(np.array([0.05, *seeds, *resampled]))
        assert found == pytest.approx((0.05, low, high), abs=1e-4)


def test_each_finding_is_a_mean_over_attacked_kernels() -> None:
    kernels = [
        Kernel(attack, rho, kernel)
        for attack in ("fgsm", "pgd")
        for rho in (3 / 255, 8 / 255)
        for kernel in ("robust", "twice")
    ]
    level = {CLEAN: 0.5} | dict.fromkeys(kernels, 0.6) | {kernels[0]: 0.68}
    found = {
        metric: {kernel: np.full(504, value + more) for kernel, value in level.items()}
        for metric, more in zip(ntk_correlation.BY_RADIUS, (-0.3, -0.1, 0.0), strict=True)
    }
    (above, up), (fgsm, beside), *steps = ntk_correlation.findings(found)
    assert (above, fgsm) == (ABOVE_CLEAN, FGSM_ABOVE_PGD)
    assert [what for what, _ in steps] == [GROWS, GROWS]
    assert up == pytest.approx(0.11) and beside == pytest.approx(0.02)
    assert [float(step[0]) for _, step in steps] == pytest.approx([0.2, 0.1])
    one_attack = {m: {k: v for k, v in of.items() if k.attack != "pgd"} for m, of in found.items()}
    assert FGSM_ABOVE_PGD not in dict(ntk_correlation.findings(one_attack))


@pytest.mark.parametrize("name", ["ntk-correlation", "sweep"])
def test_figures_of_any_run(name: str, data: Data, tmp_path: Path) -> None:
    """A recording by its path is a run like any other; here on a few of its cells."""
    whole = data.result_set("radii" if name == "sweep" else "findings/instance-loss-pgd")
    rows = whole.read()
    few = rows[rows["cell"].isin(sorted(rows["cell"].unique())[:30])]
    run = type(whole).create_or_resume(tmp_path / "run", whole.configuration)
    run.append(few)
    study = PAPER[name].at(runs=(str(tmp_path / "run"),))
    paths = write_files(name, study, data, tmp_path / "out")
    assert {path.suffix for path in paths} == {".png", ".svg", ".csv", ".md", ".json"}
    frame = pd.read_csv(tmp_path / "out" / f"{name}.csv")
    assert 25 < frame["cells"].min() == frame["cells"].max() <= 30
    texts = [claim.text for claim in study.claims(frame)]
    assert len(texts) == (6 if name == "sweep" else 2)  # of one attack: not the second finding
    if name == "sweep":
        clean = frame[frame["rho"] == 0]
        assert (clean[["value", "low", "high"]] == 0).all(axis=None) and len(clean) == 3
        assert frame.groupby(["score", "rho"]).size().max() == 11


@pytest.mark.thorough
def test_the_three_findings(data: Data) -> None:
    study = PAPER["ntk-correlation"]
    frame = study.frame(data)
    verdicts = [claim.verdict for claim in study.claims(frame)]
    assert verdicts == ["false", "false", "holds", *["false"] * 3, *["holds"] * 3]
    robust = frame[frame["metric"] == METRIC].query("kernel == 'robust' and attack == 'fgsm'")
    shown = robust[(robust["what"] == "spearman") & (robust["rho"] > 7 / 255)]["value"]
    assert shown.to_numpy()[:2] == pytest.approx([0.580, 0.720], abs=5e-4)


def test_what_a_convention_does_to_a_coefficient() -> None:
    up, down = Interval(0.5, 0.3, 0.7), Interval(-0.5, -0.7, -0.3)
    sure, unsure = Interval(-1.0, -1.2, -0.8), Interval(-0.1, -0.2, 0.01)
    assert conventions.kind(down, up, sure) == "turns the sign"
    assert conventions.kind(up, up, sure) == "moves it by more than 0.05"
    assert conventions.kind(up, up, unsure) == "neither"
    usual: dict[str, str] = dict.fromkeys(conventions.CHOICES, "x")
    assert conventions.options(usual, usual) == "default"
    assert conventions.options(usual | {"bn": "init", "attack": "pgd"}, usual) == (
        "--bn init --attack pgd"
    )


def test_depth_decides_the_sign_and_few_images_keep_the_order(data: Data) -> None:
    settings = "fidelity/full", "fidelity/samples-8", "fidelity/moderate"
    study = PAPER["fidelity"].at(recordings=settings)
    claims = list(study.claims(study.frame(data)))
    values = [claim.each[0].value for claim in claims]
    assert values == pytest.approx([0.982, 0.978, 0.904, 0.986, 0.944, -0.284, 0.473], abs=5e-4)
    assert [claim.verdict for claim in claims[-2:]] == ["holds", "holds"]
