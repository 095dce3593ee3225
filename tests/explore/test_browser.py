"""The page in a real browser: it draws, selects, filters, sorts, adds up and follows addresses.

Needs Chromium and ChromeDriver; `.ci/run` installs them where it may.
"""

import shutil
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

import numpy as np
import pandas as pd
import pytest
from pages import own_table, residual_run, run_of, small_run
from scipy import stats
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from cells.darts import Darts, Genotype
from cells.nasbench201 import Cell
from cells.nasbench201.space import NASBench201
from ntkscore import open_run
from ntkscore.analysis.frames import network_table
from ntkscore.analysis.percentiles import SHIPPED
from ntkscore.analysis.score_names import default_sum
from ntkscore.config import Config
from ntkscore.explore import Content, document, write_page
from ntkscore.explore.content import Column
from ntkscore.results import ResultSet

RUN = SHIPPED / "small-synthetic"
CELLS = "5,234"
"""Different functions among the cells, all of which are in the package."""
DESKTOP, PHONE = (1300, 1000), (390, 844)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)
Y = "cifar10 val_pgd_8_acc"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests; skips where there is none."""
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if chromium is None or driver is None:
        pytest.skip("no chromium and chromedriver on this machine; Debian has both as packages")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all different cells."""
    page = tmp_path_factory.mktemp("pages") / "whole.html"
    keys = ResultSet.open(RUN).read()["cell"].unique()
    write_page([open_run(RUN)], page, own_table(keys))
    return page


class Page:
    """A page in the browser; whatever its console says is an error."""

    def __init__(
        self,
        browser: Any,
        path: Path,
        size: tuple[int, int] = DESKTOP,
        dark: bool = False,
        **view: str,
    ) -> None:
        self.browser = browser
        browser.get("about:blank")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(f"file://{path}" + (f"#{urlencode(view)}" if view else ""))
        WebDriverWait(browser, 20).until(
            lambda b: b.execute_script("return document.documentElement.dataset.ready")
        )

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            assert self.browser.get_log("browser") == []

    def run(self, script: str, *given: Any) -> Any:
        return self.browser.execute_script(script, *given)

    def find(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def choose(self, selector: str, value: str) -> None:
        Select(self.find(selector)).select_by_value(value)

    @property
    def view(self) -> dict[str, str]:
        """The state in the address."""
        parts = parse_qs(urlparse(self.browser.current_url).fragment)
        return {name: value for name, (value,) in parts.items()}

    def column(self, name: str) -> np.ndarray:
        values = self.run("return [...columns.get(arguments[0]).values].map(String)", name)
        return np.array(values, float)

    def wait(self, done: Callable[[], Any]) -> None:
        """Until something holds; what is drawn anew meanwhile does not count."""
        passing = [StaleElementReferenceException]
        waiting = WebDriverWait(self.browser, 10, ignored_exceptions=passing)
        waiting.until(lambda _: done())

    def choose_row(self) -> None:
        """Choose the first row of the table; its network is drawn in the browser's next frame."""
        self.find("#ranking tbody tr").click()
        self.wait(lambda: self.all("#network dl"))

    def drawn(self) -> int:
        """Pixels of the first plot that are neither ground nor grey."""
        return self.run(
            """const layers = document.querySelectorAll("#plot-1 canvas");
               const c = layers[0].cloneNode();
               const context = c.getContext("2d", { willReadFrequently: true });
               for (const layer of layers) context.drawImage(layer, 0, 0);
               const d = context.getImageData(0, 0, c.width, c.height).data;
               let n = 0;
               for (let i = 0; i < d.length; i += 4)
                 n += Math.max(d[i], d[i+1], d[i+2]) - Math.min(d[i], d[i+1], d[i+2]) > 60;
               return n;"""
        )

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Brush in the first plot, from a point to a point in its columns' values."""
        places = [
            self.run("return charts[1].convertToPixel('grid', [arguments[0], arguments[1]])", *each)
            for each in (start, end)
        ]
        plot = self.find("#plot-1")
        self.run("arguments[0].scrollIntoView({block: 'center'})", plot)
        size = plot.size
        (x0, y0), (x1, y1) = [(x - size["width"] / 2, y - size["height"] / 2) for x, y in places]
        chain = ActionChains(self.browser, duration=30)
        chain.move_to_element_with_offset(plot, round(x0), round(y0)).click_and_hold()
        for _ in range(2):
            chain.move_by_offset(round((x1 - x0) / 2), round((y1 - y0) / 2))
        chain.release().perform()
        self.wait(lambda: "box" in self.view)


@pytest.mark.parametrize(
    "dark", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["light", "dark"]
)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_draws_all_cells_without_a_word_in_the_console(
    browser: Any, whole: Path, size: tuple[int, int], dark: bool
) -> None:
    with Page(browser, whole, size, dark) as page:
        page.wait(lambda: page.drawn() > 2000)
        ground = page.run("return getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") is not dark
        # Nothing is wider than the window, or than its own scrolling frame.
        assert page.run("return document.documentElement.scrollWidth") <= size[0]
        whole, measured = page.run("return [N, kept.length]")
        assert whole == measured and f"{whole:,}" == CELLS
        told = page.text("#agreement")
        assert "over 5,227 networks; 7 networks without one of the two" in told
        assert not page.run("return performance.getEntriesByType('resource').length")


def test_correlations_are_scipys_with_ties_too(browser: Any, whole: Path) -> None:
    rng = np.random.default_rng(0)
    with Page(browser, whole) as page:
        for draw in (lambda: rng.normal(size=300), lambda: rng.integers(0, 9, 300).astype(float)):
            a, b = draw(), draw()
            got = page.run(
                "const [a, b] = arguments; return [spearman(a, b), kendall(a, b)]",
                a.tolist(),
                (a + b).tolist(),
            )
            wanted = [stats.spearmanr(a, a + b)[0], stats.kendalltau(a, a + b)[0]]
            np.testing.assert_allclose(got, wanted, atol=1e-12)
        assert page.run("return String(spearman([1, 1, 1], [1, 2, 3]))") == "NaN"


@pytest.mark.thorough
def test_a_brush_selects_and_its_correlation_stands_beside_that_of_all(
    browser: Any, whole: Path
) -> None:
    with Page(browser, whole, x="params", y=Y, sort="params") as page:
        x, y = page.column("params"), page.column(Y)
        low, high = (float(np.quantile(y, share)) for share in (0.05, 0.95))
        page.drag((4e5, low), (9e5, high))
        x0, x1, y0, y1 = (float(v) for v in page.view["box"].split(","))
        assert x0 == pytest.approx(4e5, rel=0.05) and x1 == pytest.approx(9e5, rel=0.05)
        assert y0 == pytest.approx(low, rel=0.05) and y1 == pytest.approx(high, rel=0.05)
        inside = (x >= x0) & (x <= x1) & (y >= y0) & (y <= y1)
        assert inside.sum() > 500
        text = page.text("#agreement")
        for part in (np.isfinite(x), inside):
            wanted = stats.spearmanr(x[part], y[part])[0], stats.kendalltau(x[part], y[part])[0]
            assert f"Spearman {wanted[0]:.3f}, Kendall {wanted[1]:.3f}" in text
        page.wait(
            lambda: page.text("#ranking-title") == f"{inside.sum():,} networks in the selection"
        )
        page.find("#clear").click()
        assert "box" not in page.view and "selection" not in page.text("#agreement")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_second_plot_leaves_the_first_whole(
    browser: Any, whole: Path, size: tuple[int, int]
) -> None:
    widths = """return [...document.querySelectorAll(".plot canvas")].map(
                  (canvas) => [canvas.clientWidth, canvas.closest(".plot").clientWidth])"""
    with Page(browser, whole, size) as page:
        alone = page.run(widths)
        for second, plots in (("params", 2), ("", 1), ("field", 2)):
            page.choose("#x2", second)
            page.wait(lambda: all(drawn == box for drawn, box in page.run(widths)))
            assert page.run("return Object.keys(charts).length") == plots
            assert page.run("return charts[1].getWidth()") == page.run(widths)[0][1]
            # Below each other on a telephone, else side by side.
            halved = plots == 2 and size == DESKTOP
            assert (page.run(widths)[0][0] < alone[0][0] / 1.9) is halved


def test_a_network_is_found_by_any_name_and_its_accuracy_comes_first(
    browser: Any, whole: Path
) -> None:
    with Page(browser, whole, x="params", y=Y) as page:
        page.find("#find").send_keys("323133", Keys.ENTER)
        page.wait(lambda: page.text("#network h2") == "2581, 323133")
        names, values = (
            [each.text for each in page.all(f"#network {tag}")[:3]] for tag in ("dt", "dd")
        )
        assert names[:2] == [Y, "params"] and values[1] == "1,073,466"
        assert page.run("return columns.get('params').whole && !columns.get(state.y).whole")
        page.find("#find").clear()
        page.find("#find").send_keys("999999", Keys.ENTER)
        said = page.find("#find").get_property("validationMessage")
        assert said == "No network 999999 on this page."
        assert page.text("#network h2") == "2581, 323133"


def test_the_listed_networks_are_downloaded_as_a_table(browser: Any, whole: Path) -> None:
    with Page(browser, whole, sort="params") as page:
        page.choose("#edges select[data-edge='0']", "3")
        page.run(
            """window.made = new Promise((done) => { URL.createObjectURL = (blob) => {
                 done(blob.text()); return "data:,"; }; });
               HTMLAnchorElement.prototype.click = () => {};"""
        )
        page.find("#download").click()
        frame = pd.read_csv(StringIO(page.run("return window.made")))
        kept = page.run("return kept.length")
        assert len(frame) == kept > 0 and frame["params"].is_monotonic_decreasing
        wanted = page.column("params")[page.run("return kept")]
        np.testing.assert_array_equal(np.sort(frame["params"]), np.sort(wanted))


def test_operations_filter(browser: Any, whole: Path) -> None:
    with Page(browser, whole) as page:
        digits = [Cell.parse(names[0]).digits for names in page.run("return content.names")]
        page.choose("#edges select[data-edge='0']", "3")
        page.choose("#edges select[data-edge='5']", "1")
        wanted = sum(each[0] == "3" and each[5] == "1" for each in digits)
        assert page.run("return kept.length") == wanted > 0
        assert page.view["edges"] == "3xxxx1"
        assert f"over {wanted:,} networks" in page.text("#agreement")


def test_costs_and_counts_filter(browser: Any, whole: Path) -> None:
    with Page(browser, whole) as page:
        params, pools = page.column("params"), page.column("path_pools")
        wanted = int(np.sum((params <= 3e5) & (pools >= 1)))
        page.find("details summary").click()
        for name, end, value in (("params", "to", "3e5"), ("path_pools", "from", "1")):
            page.find(f"#counts input[aria-label='{name} {end}']").send_keys(value, Keys.TAB)
        assert page.run("return kept.length") == wanted > 0
        assert page.view["ranges"] == "params**300000,path_pools*1*"
    with Page(browser, whole, ranges="params**300000,path_pools*1*,nothing*1*2") as page:
        assert page.run("return kept.length") == wanted


def test_measured_costs_are_axes_and_filters_beside_predicted_accuracies(
    browser: Any, tmp_path: Path
) -> None:
    run = open_run(small_run(tmp_path / "run", count=20))
    keys, values = run.rows["cell"].unique(), np.arange(20) / 20
    run = run.with_costs(pd.DataFrame({"phone_ms": 10 * values[:-1]}, index=keys[:-1]))
    predicted = pd.DataFrame({"mean": values, "low": values - 1, "high": values + 1}, index=keys)
    write_page([run], tmp_path / "page.html", predicted=predicted.assign(measured=np.nan))
    view = {"x": "phone_ms", "y": "predicted mean", "ranges": "phone_ms**5"}
    with Page(browser, tmp_path / "page.html", **view) as page:
        # What was not measured is within no bound.
        of = "Spearman 1.000, Kendall 1.000 over 11 networks"
        assert page.text("#agreement") == f"phone_ms and predicted mean: {of}."
        assert page.find("#counts input[aria-label='phone_ms to']").get_attribute("value") == "5"


def test_a_genotype_is_drawn_with_both_of_its_cells(browser: Any, tmp_path: Path) -> None:
    genotypes = [Genotype.parse(name) for name in ("DARTS", "AdvRush")]
    columns = [Column("clean.trace", "Scores", 1, pd.Series([1.0, 2.0]))]
    first, names = columns[0].id, [[each.digits] for each in genotypes]
    graphs = [Darts().graphs(each) for each in genotypes]
    content = Content("Two.", names, columns, {first: 1}, first, first, "", graphs)
    (tmp_path / "page.html").write_text(document(content, "Two"), encoding="utf-8")
    with Page(browser, tmp_path / "page.html") as page:
        assert not page.find("#counts").is_displayed()
        page.choose_row()
        assert len(page.all("#network path")) == 16
        titles = [
            page.run("return arguments[0].textContent", t) for t in page.all("#network title")
        ]
        assert [t.partition(":")[0] for t in titles] == ["normal cell", "reduction cell"]
        assert "k−1→0 sep 3×3" in titles[0]
        assert titles[0].count("→") == titles[1].count("→") == 8
        assert len(page.all("#network path")) == 16


def test_a_heading_sorts_and_sorts_the_other_way(browser: Any, whole: Path) -> None:
    with Page(browser, whole) as page:
        y, names = page.column(Y), page.run("return content.names")
        heading = f"//th/button[starts-with(., '{Y}')]"
        for order, aria in (
            (np.argsort(-y, kind="stable"), "descending"),
            (np.argsort(y), "ascending"),
        ):
            page.browser.find_element(By.XPATH, heading).click()
            first = page.text("#ranking tbody tr td:nth-child(2)")
            assert first == ", ".join(names[order[0]])
            column = page.browser.find_element(By.XPATH, f"{heading}/..")
            assert column.get_attribute("aria-sort") == aria
        assert len(page.all("#ranking tbody tr")) == 50
        page.find("#more").click()
        assert len(page.all("#ranking tbody tr")) == 250


@pytest.mark.thorough
def test_the_sum_is_the_default_of_the_command_line_and_moves_with_its_sliders(
    browser: Any, whole: Path
) -> None:
    space = NASBench201()
    frame = network_table(ResultSet.open(RUN).read(), space)
    # The page has float32, which makes ties.
    wanted = default_sum(space, frame).of(frame.astype(np.float32))
    with Page(browser, whole) as page:
        got = page.column("sum of log-ranks")
        # Python counts ties from below and adds a half, the page has their mean rank.
        np.testing.assert_allclose(got, wanted.to_numpy(), rtol=1e-5)
        assert f"Pick: {wanted.idxmax()}, " in page.text("#pick")
        assert "rank" in page.text("#pick") and "best" in page.text("#pick")
        for k in range(1, len(page.all(".term"))):
            page.all(".term input")[k].send_keys(Keys.HOME)
        pick = lambda: int(page.text("#pick").split()[1].rstrip(","))  # noqa: E731
        page.wait(lambda: frame.loc[pick(), "params"] == frame["params"].max())
        assert "params*1*+" in page.view["sum"] and "field*0*+" in page.view["sum"]
        page.find(".term button[aria-label^='better']").click()
        page.wait(lambda: frame.loc[pick(), "params"] == frame["params"].min())
        page.choose("#add", Y)
        page.find(".term button[aria-label='remove params']").click()
        assert f"rank 1 of {CELLS}" in page.text("#pick")


def test_an_address_leads_to_its_view(browser: Any, whole: Path) -> None:
    view = {
        "x": "params",
        "y": Y,
        "x2": "field",
        "colour": "edge3",
        "edges": "x3xxxx",
        "sum": "params*0.5*-,flops*2*+",
        "sort": "params",
        "order": "ascending",
        "network": "2581",
        "box": "200000,900000,0.1,0.4",
    }
    with Page(browser, whole, **view) as page:
        assert page.view == view
        for name in ("x", "y", "x2", "colour", "sort"):
            assert page.find(f"#{name}").get_property("value") == view[name]
        assert page.text("#network h2") == "2581, 323133"
        assert len(page.all("#network svg path")) == 6
        assert page.find("#plot-2").is_displayed() and "selection" in page.text("#agreement")
    # What an address asks for and is not there is passed over.
    odd = {
        "x": "nothing",
        "colour": "x",
        "edges": "9zz",
        "box": "1,2",
        "network": "no",
        "sum": "a*b",
    }
    with Page(browser, whole, **odd) as page:
        assert page.view["x"] == "sum of log-ranks" and "box" not in page.view


@pytest.mark.thorough
def test_the_keyboard_walks_through_plot_and_table(browser: Any, whole: Path) -> None:
    with Page(browser, whole, x="params", y=Y) as page:
        plot = page.find("#plot-1")
        plot.send_keys(Keys.ARROW_UP)
        first = page.text("#network h2")
        plot.send_keys(Keys.ARROW_UP)
        y, names = page.column(Y), page.run("return content.names")
        order = np.argsort(y, kind="stable")
        assert first == ", ".join(names[order[0]])
        assert page.text("#network h2") == ", ".join(names[order[1]])
        row = page.find("#ranking tbody tr")
        row.send_keys(Keys.ARROW_DOWN)
        page.browser.switch_to.active_element.send_keys(Keys.ENTER)
        second = page.all("#ranking tbody tr")[1]
        assert second.get_attribute("aria-selected") == "true"
        assert page.text("#network h2") == second.find_elements(By.TAG_NAME, "td")[1].text
        # Everything that is operated has a name.
        unnamed = page.run(
            """return [...document.querySelectorAll("select, button, input")].filter((e) =>
                 !e.labels?.length && !e.getAttribute("aria-label") && !e.textContent).length"""
        )
        assert unnamed == 0
        assert "Spearman" in plot.get_attribute("aria-label")


def test_the_pointer_shows_the_network_under_it(browser: Any, whole: Path) -> None:
    with Page(browser, whole, x="params", y=Y) as page:
        x, y = page.column("params"), page.column(Y)
        top = int(np.argmax(y))
        px, py = page.run(
            "return charts[1].convertToPixel('grid', arguments[0])", [float(x[top]), float(y[top])]
        )
        plot = page.find("#plot-1")
        page.run("arguments[0].scrollIntoView({block: 'center'})", plot)
        size = plot.size
        ActionChains(browser).move_to_element_with_offset(
            plot, round(px - size["width"] / 2), round(py - size["height"] / 2)
        ).perform()
        page.wait(lambda: "," in page.text("#network h2"))
        shown = page.run("return state.network")
        here = [float(column[shown]) for column in (x, y)]
        place = page.run("return charts[1].convertToPixel('grid', arguments[0])", here)
        distance = np.hypot(place[0] - px, place[1] - py)
        assert distance < 3


@pytest.mark.thorough
def test_names_are_shown_and_never_run(browser: Any, tmp_path: Path) -> None:
    evil = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked=2'>"
    values = pd.Series([1.0, 3.0, 2.0])
    columns = [Column(f"{name}{evil}", evil, 1, values) for name in "ab"]
    names = [[f"{i}{evil}"] for i in range(3)]
    first, second = (column.id for column in columns)
    content = Content(evil, names, columns, {first: 1}, first, second, "")
    (tmp_path / "page.html").write_text(document(content, evil), encoding="utf-8")
    with Page(browser, tmp_path / "page.html") as page:
        page.choose_row()
        assert page.text("h1") == page.text("#about") == evil
        assert page.text("#network h2") == f"1{evil}"
        assert page.run("return window.hacked === undefined && document.images.length === 0")


def test_a_run_of_one_cell_and_one_of_another_space(browser: Any, tmp_path: Path) -> None:
    one = run_of(tmp_path / "one", NASBench201(), (2581,), Config())
    for run, networks in ((one, 1), (residual_run(tmp_path / "two"), 2)):
        write_page([open_run(run)], tmp_path / "page.html")
        with Page(browser, tmp_path / "page.html") as page:
            assert page.run("return N") == networks
            assert "too few to correlate" in page.text("#agreement")
            assert page.find("#edges").is_displayed() is (networks == 1)
            page.choose_row()
            assert len(page.all("#network svg")) == (networks == 1)
            assert page.text("#pick").startswith("Pick: ")


def test_joint_kernels_have_a_map_and_two_runs_two_plots(browser: Any, tmp_path: Path) -> None:
    radii = (4 / 255, 8 / 255)
    runs = [
        small_run(tmp_path / "a", rhos=radii, betas=(0.0, 0.5, 1.0)),
        small_run(tmp_path / "b", seed=1),
    ]
    write_page([*map(open_run, runs)], tmp_path / "page.html", own_table(range(0, 6400, 100)))
    with Page(browser, tmp_path / "page.html") as page:
        assert page.find("#plot-2").is_displayed()
        label = page.find("#map").get_attribute("aria-label")
        assert label.count("β ") == 6 and "ρ 8/255" in label
        family = "joint_robust.trace (a)"
        page.choose("#family", family)
        accuracy = page.column(Y)
        name = "joint_robust@0.5.trace, ρ = 4/255 (a)"
        wanted = stats.spearmanr(page.column(name), accuracy)[0]
        told = page.find("#map").get_attribute("aria-label")
        assert f"β 0.5, ρ 4/255: {wanted:.3f}" in told.replace("−", "-")


@pytest.mark.thorough
def test_the_page_goes_on_drawing_while_the_brush_moves(browser: Any, whole: Path) -> None:
    """Frames of this machine are printed, not judged; the selection is of where the brush ends."""
    with Page(browser, whole, x="params", y=Y) as page:
        plot = page.find("#plot-1")
        page.run("arguments[0].scrollIntoView({block: 'center'})", plot)
        page.run(
            """window.frames_ = [];
               const step = (now) => { frames_.push(now); requestAnimationFrame(step); };
               requestAnimationFrame(step);"""
        )
        chain = ActionChains(browser, duration=16)
        chain.move_to_element_with_offset(plot, -200, 60).click_and_hold()
        for _ in range(40):
            chain.move_by_offset(8, -3)
        chain.release().perform()
        page.wait(lambda: "selection" in page.text("#agreement"))
        gaps = np.diff(page.run("return frames_"))
        assert len(gaps) > 5
        print(f"{np.median(gaps):.0f} ms a frame, at most {gaps.max():.0f} ms")
