"""Predictions from a few accuracies, against the equations of a Gaussian process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import invoke, refused, refuses

import ntkscore
from cells.nasbench201 import Cell
from ntkscore.analysis.prediction import FEWEST, Predictor, inputs_of
from ntkscore.analysis.process import WITHOUT_MEAN, Process
from ntkscore.cli.display import print_frame
from ntkscore.results import ResultSet


def scored(size: int = 80, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Inputs of networks, and accuracies that depend on two of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(size, 4)), columns=list("abcd"))
    return frame, 0.4 + 0.05 * frame["a"] - 0.02 * frame["b"] ** 2


def told(size: int, **how: bool) -> tuple[Predictor, pd.Series]:
    frame, accuracy = scored()
    predictor = Predictor(frame, **how)
    predictor.tell(accuracy[:size])
    return predictor, accuracy


def settings(predictor: Predictor) -> tuple[float, float, float, float]:
    """Variances of the two terms and of the noise, and the length, in standardised units."""
    linear, nearby, length, noise = np.exp(predictor._process.settings)
    return linear**2, nearby**2, length, noise**2


def covariance(predictor: Predictor, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    linear, nearby, length, _ = settings(predictor)
    squares = ((a[:, None] - b[None]) ** 2).sum(-1)
    return linear * a @ b.T + nearby * np.exp(-squares / length**2 / 2)


def test_is_the_posterior_of_a_gaussian_process() -> None:
    predictor, accuracy = told(20)
    noise = settings(predictor)[3] * np.eye(20)
    x = predictor.inputs.to_numpy() / 2  # of four inputs
    y = accuracy[:20].to_numpy()
    inverse = np.linalg.inv(covariance(predictor, x[:20], x[:20]) + noise)
    across = covariance(predictor, x, x[:20])
    mean = y.mean() + across @ inverse @ (y - y.mean())
    variance = np.diag(covariance(predictor, x, x) - across @ inverse @ across.T) + noise[0, 0]
    found = predictor.predict()
    assert found["mean"].to_numpy() == pytest.approx(mean, abs=1e-8)
    reach = 1.6448536 * np.sqrt(variance) * y.std()
    assert (found["high"] - found["mean"]).to_numpy() == pytest.approx(reach, rel=1e-5)
    assert (found["mean"] - found["low"]).to_numpy() == pytest.approx(reach, rel=1e-5)
    assert found["measured"].notna().sum() == 20


def test_settings_have_the_largest_posterior_density() -> None:
    """No step away from the fitted settings is better, by the formula with a plain determinant."""
    predictor, accuracy = told(20)
    x = predictor.inputs.to_numpy()[:20] / 2
    z = (accuracy[:20] - accuracy[:20].mean()) / accuracy[:20].std(ddof=0)
    squares = ((x[:, None] - x[None]) ** 2).sum(-1)

    def density(logs: np.ndarray) -> float:
        means, widths = np.array(list(WITHOUT_MEAN.values())).T
        linear, nearby, length, noise = np.exp(logs * [2, 2, 1, 2])
        k = linear * x @ x.T + nearby * np.exp(-squares / length**2 / 2) + noise * np.eye(20)
        fit = -z @ np.linalg.solve(k, z) / 2 - np.linalg.slogdet(k)[1] / 2
        return float(fit - (((logs - means) / widths) ** 2).sum() / 2)

    best = np.log(settings(predictor)) / [2, 2, 1, 2]
    for place in range(4):
        for step in (-0.05, 0.05):
            assert density(best + step * np.eye(4)[place]) < density(best)


def test_the_surprise_has_its_gradient() -> None:
    predictor, accuracy = told(20)
    x = np.column_stack([predictor.inputs["a"], predictor._x[:, 1:]])[:20]
    start, y = np.array([-1.0, -0.5, 0.3, -1.2]), accuracy[:20].to_numpy()

    def surprise(settings: np.ndarray) -> float:
        return Process(x, y, settings).surprise()[0]

    _, slope = Process(x, y, start).surprise()
    steps = 1e-5 * np.eye(4)
    naive = [(surprise(start + step) - surprise(start - step)) / 2e-5 for step in steps]
    assert slope == pytest.approx(naive, rel=1e-5)


def test_a_prior_is_one_more_term_of_the_covariance() -> None:
    frame, accuracy = scored()
    order = pd.Series(frame["a"].rank(), name="order")
    predictor = Predictor(frame, prior=order)
    predictor.tell(accuracy[:20])
    m = predictor.prior.to_numpy()
    assert m.mean() == pytest.approx(0) and m.std() == pytest.approx(1)
    x, y = predictor.inputs.to_numpy() / 2, accuracy[:20].to_numpy()
    (*_, noise), seen = settings(predictor), slice(20)
    within = covariance(predictor, x[seen], x[seen]) + np.outer(m[seen], m[seen]) + 1
    across = covariance(predictor, x, x[seen]) + np.outer(m, m[seen]) + 1
    mean = y.mean() + across @ np.linalg.solve(within + noise * np.eye(20), y - y.mean())
    assert predictor.predict()["mean"].to_numpy() == pytest.approx(mean, abs=1e-8)
    whole = covariance(predictor, x, x) + np.outer(m, m) + 1
    variance = np.diag(whole - across @ np.linalg.solve(within + noise * np.eye(20), across.T))
    found = predictor.predict()
    reach = 1.6448536 * y.std() * np.sqrt(variance + noise)
    assert (found["high"] - found["mean"]).to_numpy() == pytest.approx(reach, rel=1e-5)
    moved = predictor.moved_by([30])
    assert list(moved) == [*"abcd", "order"]
    without = predictor._x[[30]].copy()
    without[0, 0] = 0
    (less,) = predictor._process.mean(without)
    assert moved["order"].item() == pytest.approx(mean[30] - less)


def test_few_accuracies_leave_the_order_that_was_known() -> None:
    """An order that holds, and inputs that say nothing: three labels keep it, eighty find it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 12)), columns=list("abcdefghijkl"))
    frame["params"] = rng.lognormal(size=300)
    accuracy = 0.4 + 0.02 * np.log(frame["params"]) + 0.004 * rng.normal(size=300)
    found = {}
    for prior in ("params", None):
        agreed = []
        for draw in range(10):
            predictor = Predictor(frame, prior=prior)
            chosen = np.random.default_rng(draw).permutation(300)[:5]
            predictor.tell(accuracy[chosen])
            agreed.append(predictor.predict()["mean"].corr(accuracy, "spearman"))
        found[prior] = np.median(agreed)
    assert found["params"] > 0.9 > 0.6 > found[None]


def test_what_is_no_order_is_nothing() -> None:
    frame, _ = scored()
    same, missing = pd.Series(1.0, frame.index), pd.Series(np.nan, frame.index)
    for prior in (same, None):
        assert Predictor(frame, prior=prior).follows == "no order"
    assert Predictor(frame, prior="a").follows == "a"
    with refuses("params"):
        Predictor(frame, prior="params")
    with refuses("none", expected="prior"):
        Predictor(frame, prior=missing)


def test_labels_of_the_best_leave_the_order_of_the_others() -> None:
    """As `choose` picks them: their accuracies are alike, which says nothing about the order."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 6)), columns=list("abcdef"))
    order = frame["a"].rank()
    accuracy = 0.4 + 0.02 * frame["a"] + 0.01 * rng.normal(size=300)
    predictor = Predictor(frame, prior=order)
    predictor.tell(accuracy[order.nlargest(20).index])
    assert predictor.predict()["mean"].corr(accuracy, "spearman") > 0.7


def test_intervals_hold_the_share_that_they_claim() -> None:
    inside = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
        accuracy = 0.3 * frame["a"] + np.sin(frame["b"]) + 0.1 * rng.normal(size=300)
        predictor = Predictor(frame)
        predictor.tell(accuracy[:40])
        found = predictor.predict()[40:]
        inside.append((found["low"] < accuracy[40:]) & (accuracy[40:] < found["high"]))
    assert 0.85 < np.mean(inside) < 0.96


def test_units_do_not_matter() -> None:
    frame, accuracy = scored()
    one, other = Predictor(frame), Predictor(frame * [1, 100, -3, 1e-4])
    one.tell(accuracy[:15])
    other.tell(1000 * accuracy[:15] - 7)
    columns = ["mean", "low", "high"]
    expected = 1000 * one.predict()[columns] - 7
    assert other.predict()[columns].to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-4)


def test_the_next_of_a_batch_believes_the_one_before() -> None:
    """As if a process of the same settings had been told the predicted mean of the first."""
    predictor, _ = told(20)
    first, second = predictor.ask(2)
    means = predictor.predict()["mean"]
    x, (*_, noise) = predictor.inputs.to_numpy() / 2, settings(predictor)
    seen = [*range(20), first]
    y = np.array([*predictor.measured[:20], means[first]])
    shift, scale = predictor.measured.mean(), predictor.measured.std(ddof=0)
    inverse = np.linalg.inv(covariance(predictor, x[seen], x[seen]) + noise * np.eye(21))
    across = covariance(predictor, x, x[seen])
    mean = shift + across @ inverse @ (y - shift)
    assert mean == pytest.approx(means.to_numpy(), abs=1e-7)
    deviation = scale * np.sqrt(
        np.maximum(np.diag(covariance(predictor, x, x) - across @ inverse @ across.T), 1e-18)
    )
    # E max(0, f − best), by the plain integral.
    grid = np.linspace(-8, 8, 4001)
    density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    values = mean[:, None] + deviation[:, None] * grid
    gain = (np.maximum(0, values - y.max()) * density).sum(1)
    gain[seen] = -1
    assert second == gain.argmax()
    assert predictor.ask(1, pending=[first]) == [second]
    assert predictor.ask(2)[1] not in predictor.ask(3, pending=[second])


def test_less_can_be_better() -> None:
    frame, accuracy = scored()
    most, least = Predictor(frame), Predictor(frame, minimise=True)
    most.tell(accuracy[:10])
    least.tell(1 - accuracy[:10])
    assert most.ask(5) == least.ask(5)


def test_before_enough_is_told_networks_lie_apart() -> None:
    frame, accuracy = scored()
    predictor = Predictor(frame)
    apart = predictor.ask(4)
    x = predictor.inputs.to_numpy()
    near = min(np.linalg.norm(x[i] - x[j]) for i in apart for j in apart if i != j)
    drawn = [np.random.default_rng(i).choice(80, 4, False) for i in range(200)]
    random = [min(np.linalg.norm(x[i] - x[j]) for i in d for j in d if i != j) for d in drawn]
    assert near > max(random)
    predictor.tell(accuracy[apart])
    assert not set(predictor.ask(4)) & set(apart)


def test_networks_of_equal_inputs_are_asked_for_once_each() -> None:
    frame = pd.DataFrame({"clean.trace": [1, 1, 2, 2]}, ["00", "01", "10", "11"])
    predictor = Predictor(frame)
    assert sorted(predictor.ask(4)) == list(frame.index)
    assert len({*predictor.ask(2)} & {"00", "01"}) == 1


def test_asks_for_each_network_once_and_then_for_none() -> None:
    frame, accuracy = scored(12)
    predictor, seen = Predictor(frame), []
    while new := predictor.ask(5):
        seen += new
        predictor.tell(accuracy[new])
    assert sorted(seen) == list(range(12))


def test_finds_the_best_sooner_than_chance() -> None:
    needed = []
    for seed in range(5):
        frame, accuracy = scored(400, seed)
        predictor = Predictor(frame)
        while accuracy.idxmax() not in predictor.measured.index:
            predictor.tell(accuracy[predictor.ask(2)])
        needed.append(len(predictor.measured))
    assert max(needed) < 40  # at random 200


def test_inputs_move_what_depends_on_them() -> None:
    predictor, _ = told(40)
    moved = predictor.moved_by([50, 51, 52])
    means, x = predictor.predict()["mean"], predictor.inputs
    assert list(moved.columns) == list(x.columns) and list(moved.index) == [50, 51, 52]
    assert (moved[["a", "b"]].abs().sum(axis=1) > 3 * moved[["c", "d"]].abs().sum(axis=1)).all()
    without = x.copy()
    without.loc[50, "a"] = 0
    process = predictor._process
    (expected,) = process.mean(np.hstack([[[0]], without.loc[[50]].to_numpy() / 2]))
    assert moved.loc[50, "a"] == pytest.approx(means[50] - expected, abs=1e-9)


def test_settings_are_fitted_to_some_and_all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ntkscore.analysis.process.MOST_FITTED", 10)
    predictor, accuracy = told(40)
    assert len(predictor._process.y) == 40
    few = np.random.default_rng(0).permutation(40)[:10]
    fitted = Process.fitted(predictor._x[few], accuracy[few].to_numpy())
    assert predictor._process.settings == pytest.approx(fitted.settings, abs=1e-3)
    assert predictor.predict()["mean"][:40].corr(accuracy[:40]) > 0.95


def test_inputs_are_left_out_for_a_reason() -> None:
    rng = np.random.default_rng(0)
    size = rng.lognormal(size=50)
    frame = pd.DataFrame({"params": size, "flops": 3 * size**2, "same": 1.0, "failed": np.nan})
    frame["few"] = rng.normal(size=50)
    frame.loc[0, "few"] = np.inf
    inputs, left_out = inputs_of(frame)
    assert dict(left_out) == {
        "flops": "redundant: params",
        "same": "constant",
        "failed": "missing for 50 of 50 networks",
    }
    assert list(inputs) == ["params", "few"]
    assert inputs.to_numpy().mean(0) == pytest.approx([0, 0], abs=1e-12)
    assert inputs.to_numpy().std(0) == pytest.approx([1, 1])
    assert np.corrcoef(np.log(size), inputs["params"])[0, 1] == pytest.approx(1)
    # As a network in the middle; another's number would say more than is known.
    assert inputs["few"][0] == pytest.approx(inputs["few"][1:].median(), abs=0.05)


def test_a_run_is_predicted_from_its_order_and_what_is_known(tmp_path: Path) -> None:
    run = ntkscore.open_run("recorded").of("random:400")
    cells = sorted(run.scores().index)
    order = run.rank().set_index("cell")["rank"]
    accuracies = {cell: 0.5 - 1e-4 * order[cell] for cell in cells[:4]}
    by_order = run.predict(accuracies).set_index("cell")["mean"]
    assert by_order.corr(-order, "spearman") > 0.95
    without = run.predict(accuracies, prior="none").set_index("cell")["mean"]
    assert without.corr(-order, "spearman") < by_order.corr(-order, "spearman")
    same = "params+layers+path_pools+field+clean.lambda_min_normalized"
    named = run.predict(accuracies, prior=same)
    pd.testing.assert_series_equal(named.set_index("cell")["mean"], by_order)
    assert same in named["moved_by"][0]
    with refuses("clean.zico"):
        few = run.scores()[["clean.trace", "clean.frobenius"]]
        ntkscore.predict(few, accuracies, prior="params+clean.zico")
    # What is known elsewhere is one more input, and may be negative.
    rng = np.random.default_rng(0)
    truth = pd.Series(rng.normal(size=len(cells)), cells)
    known = tmp_path / "known.csv"
    truth.rename("elsewhere").rename_axis("cell").to_csv(known)
    learnt = run.predict(truth[cells[:60]], known=known).set_index("cell")["mean"]
    rest = cells[60:]
    assert (
        learnt[rest].corr(truth[rest])
        > 0.9
        > 0.5
        > abs(run.predict(truth[cells[:60]]).set_index("cell")["mean"][rest].corr(truth[rest]))
    )
    known.write_text(f"cell,params\n{cells[0]},1\n")
    with refuses("params"):
        run.predict(accuracies, known=known)


def test_nothing_is_predicted_where_most_measures_failed() -> None:
    frame, accuracy = scored()
    broken = frame.copy()
    broken.loc[[7, 70], ["a", "b", "c"]] = np.nan
    predictor, without = Predictor(broken), Predictor(frame.drop([7, 70]))
    predictor.tell(accuracy[:20])  # 7 among them
    without.tell(accuracy[:20].drop(7))
    found, expected = predictor.predict(), without.predict()
    assert found.loc[[7, 70], ["mean", "low", "high"]].isna().all(axis=None)
    assert found.loc[7, "measured"] == accuracy[7]
    pd.testing.assert_frame_equal(found.drop([7, 70]), expected)
    assert predictor.ask(60) == without.ask(60) and 70 not in predictor.ask(60)
    assert predictor.moved_by([70, 8]).isna().all(axis=1).tolist() == [True, False]
    assert predictor.ask(1, pending=[70]) == without.ask(1)


def test_a_network_far_away_is_clipped() -> None:
    values = np.r_[np.random.default_rng(0).normal(size=500), 1e6, -1e6]
    assert np.abs(inputs_of(pd.DataFrame({"a": values}))[0]["a"]).max() <= 5


def test_refuses_what_it_cannot_predict_from() -> None:
    frame, accuracy = scored()
    predictor = Predictor(frame)
    predictor.tell(accuracy[: FEWEST - 1])
    with refuses(2, expected=3):
        predictor.predict()
    with refuses("1000"):
        predictor.tell({1000: 0.5})
    for unknown in (lambda: predictor.ask(1, pending=["x"]), lambda: predictor.moved_by(["x"])):
        with refuses("x"):
            unknown()
    with refuses("nan", expected=7):
        predictor.tell({7: float("nan")})
    with refuses(0, expected="network"):
        predictor.ask(0)
    predictor = Predictor(frame)
    predictor.tell(dict.fromkeys(range(5), 0.1))
    with refuses(0.1, 5):
        predictor.predict()
    assert len(predictor.ask(2)) == 2  # which may differ
    for name, twice in ((0, pd.concat([frame, frame])), ("a", pd.concat([frame, frame], axis=1))):
        with refuses(name, expected=("network", "input")):
            Predictor(twice)
    with refuses("text", expected="inputs"):
        Predictor(frame.assign(d="text"))
    assert list(Predictor(frame.set_axis(range(4), axis=1)).inputs) == ["0", "1", "2", "3"]
    with refuses("none", 1):
        Predictor(pd.DataFrame({"a": [1, 1]}))


def accuracies(path: Path, rows: str) -> Path:
    path.write_text(rows)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some of the recorded cells at one seed, the five without a prediction too."""
    recorded, folder = ResultSet.open("recorded"), tmp_path_factory.mktemp("few")
    rows = recorded.read()
    cells = {2581, 1462, 0, 7, 5, 10, 12, 74, 172, 879, 13714, *range(1000, 1800)}
    some = ResultSet.create_or_resume(folder, recorded.configuration, recorded.identity)
    some.append(rows[(rows["seed"] == 0) & rows["cell"].isin(cells)])
    return folder


def test_the_command_predicts_every_network_of_a_run(run: Path, tmp_path: Path) -> None:
    rows = "cell,pgd8\n2581,0.48\n1462,0.47\n0,0.30\n7,0.2\n333123,0.46\n5,0.2\n000000,0.1\n"
    file = accuracies(tmp_path / "mine.csv", rows)
    picture = tmp_path / "picture.png"
    options = (run, "--table", file)
    text = invoke("predict", *options, "--top", 3, "--plot", picture, "--format", "csv").stdout
    assert text.splitlines()[0] == "rank,cell,digits,mean,low,high,measured,moved_by"
    assert len(text.splitlines()) == 4
    assert picture.stat().st_size > 10_000
    table = " ".join(invoke("predict", *options, "--suggest", 2).stdout.split())
    assert "To train next, of val_pgd_8_acc on cifar10" in table
    assert "more were constant, redundant or missing" in table
    frame = ntkscore.predict(run, file)
    assert len(frame) == 431 and frame["mean"].dropna().is_monotonic_decreasing
    # Cells whose input does not reach the output come last.
    assert frame["mean"].isna().sum() == frame["mean"][-5:].isna().sum() == 5
    assert "5 networks most of whose measures failed have no prediction" in table
    assert frame["measured"].notna().sum() == int(table.split("from ")[1].split()[0])
    assert set(frame["measured"].dropna()) >= {0.48, 0.47, 0.46}
    asked = ntkscore.predict(run, file, suggest=2)
    assert asked["measured"].isna().all() and len(asked) == 2
    scores = ntkscore.open_run(run).rows.query("kernel == 'clean' and cell in [2581, 1462, 10, 0]")
    # Names of the scores may be any that the space knows.
    worse = scores.pivot_table(index="cell", columns="score", values="value")
    worse = worse.rename(index=lambda cell: Cell(cell).digits)
    found = ntkscore.predict(worse, {2581: 0.52, 1462: 0.53, 0: 0.7}, minimise=True)
    assert 2581 in found["cell"].tolist()
    assert found["mean"].is_monotonic_increasing


def test_a_front_of_predictions_has_what_none_beats(run: Path, tmp_path: Path) -> None:
    rows = "cell,pgd8\n2581,0.48\n1462,0.47\n0,0.30\n7,0.2\n5,0.2\n"
    file = accuracies(tmp_path / "mine.csv", rows)
    every = ntkscore.predict(run, file).set_index("cell")
    ms = pd.Series(np.random.default_rng(0).uniform(-1, 1, len(every)), every.index, name="ms")
    known = tmp_path / "known.csv"
    ms.drop(every.index[0]).to_csv(known)  # a network without a latency is on no front
    for minimise in (False, True):
        how: dict[str, Any] = {"minimise": minimise, "known": known, "prior": "none"}
        every = ntkscore.open_run(run).predict(file, **how).set_index("cell")
        front = ntkscore.open_run(run).predict(file, **how, pareto=["ms"])
        there = pd.read_csv(known, index_col="cell").join(every, how="inner").dropna(subset="mean")
        there = there.sort_values("rank")
        fastest = there["ms"].cummin().shift(fill_value=np.inf)
        wanted = there[there["ms"] < fastest]
        assert front["cell"].tolist() == wanted.index.tolist() and len(front) > 2
        assert front["rank"].tolist() == wanted["rank"].tolist()
        assert list(front)[-3:] == ["measured", "ms", "moved_by"]
    picture, options = tmp_path / "front.png", (run, "--table", file)
    table = invoke("predict", *options, "--pareto", "params,flops", "--plot", picture).stdout
    title = "networks that none beats in predicted val_pgd_8_acc on cifar10, params, flops at once"
    assert title in " ".join(table.split()) and picture.stat().st_size > 10_000
    shown = json.loads(
        invoke("predict", *options, "--pareto", "params,flops", "--format", "json").stdout
    )
    assert int(table.split()[0]) == len(shown) > 2
    refused("got 'ms'; name some of these", "predict", *options, "--pareto", "ms")
    refused("each cost once", "predict", *options, "--pareto", "params,params")
    both = ("--pareto", "params", "--suggest", 2)
    refused("a front, or networks to train next, got both; leave", "predict", *options, *both)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("2581,0.48\n1462,0.47\n", "accuracies of at least 3 of the 431 scored networks, got 2"),
        ("a,0.48\nb,0.47\nc,0.4\n", "got 3, of which 0 are of these networks"),
        ("2581,48\n1462,47\n0,30\n", "divide percentages by 100"),
        ("2581,0.4\n1462,0.4\n0,0.4\n", "expected accuracies that differ, got 0.4"),
        ("2581,0.4\n2581,0.5\n0,0.3\n", "got 2581 twice; keep one row"),
        ("2581,0.4\n323133,0.5\n7,0.3\n", "are names of the same one; keep one row"),
        (None, "expected a header with the names of the columns"),
    ],
)
def test_the_command_refuses_bad_accuracies(
    run: Path, tmp_path: Path, rows: str | None, message: str
) -> None:
    content = f"cell,pgd8\n{rows}" if rows else "2581,0.48\n1462,0.47\n0,0.3\n"
    file = accuracies(tmp_path / "bad.csv", content)
    refused(message, "predict", run, "--table", file)


def test_a_frame_may_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_frame(pd.DataFrame(columns=["rank", "mean"]), "csv")
    assert capsys.readouterr().out.splitlines() == ["rank,mean"]
    predictor = Predictor(pd.DataFrame({"a": [1.0, 2, 4]}))
    predictor.tell({0: 0.1, 1: 0.2, 2: 0.3})
    assert predictor.moved_by(predictor.ask(2)).shape == (0, 1)


def test_the_command_asks_which_accuracy(run: Path, tmp_path: Path) -> None:
    rows = "cell,clean,pgd8\n2581,0.8,0.48\n1462,0.7,0.47\n0,0.6,0.30\n"
    options = ("predict", run, "--table", accuracies(tmp_path / "two.csv", rows))
    refused("expected a metric of two, val_acc, val_pgd_8_acc, got none", *options)
    refused("expected a metric of two", *options, "--metric", "fgsm3")
    refused("picture that ends in", *options, "--metric", "clean", "--plot", tmp_path / "a.txt")
