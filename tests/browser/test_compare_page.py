"""The page of a comparison in a real browser: of two real runs, and of runs whose names are hostile."""

from pathlib import Path

import pytest
from selenium import webdriver

import geomprobe
from geomprobe.comparison.comparison import Comparison, compare_runs
from geomprobe.pages.side_findings import amount, between, gap
from geomprobe.pages.side_page import write_comparison
from geomprobe.run.manifest import write_manifest
from geomprobe.run.reading import open_run
from tests.browser.page_seen import PageSeen
from tests.synthetic_run import write_synthetic_run

pytestmark = pytest.mark.browser

NAMES = ("<script>alert(1)</script>", "\u202egpj.exe & <b>bold</b>")

EVIDENCE = Path(__file__).parents[2] / "reports" / "qk-norm-evidence" / "evidence.html"


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """The packaged pair on as many windows as give intervals."""
    runs = [
        geomprobe.analyze(
            name, windows=12, window=128, out=tmp_path_factory.mktemp("twin") / name, page=False, quiet=True
        )
        for name in ("plain", "qknorm")
    ]
    return geomprobe.compare(*runs, out=tmp_path_factory.mktemp("twins"), quiet=True)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three made-up runs, two of which have names that are markup or turn text around."""
    runs = []
    for index, name in enumerate((*NAMES, "plain")):
        run = write_synthetic_run(tmp_path_factory.mktemp("side"), qk_norm=index == 0, seed=index)
        run.manifest["model"] |= {"name": name, "source": "hub"}
        write_manifest(run.path, run.manifest)
        runs.append(open_run(run.path))
    folder = tmp_path_factory.mktemp("named")
    return write_comparison(compare_runs(runs), folder, ["html"])[0]


@pytest.fixture(params=["twins", "named"])
def opened(driver: webdriver.Chrome, request: pytest.FixtureRequest) -> PageSeen:
    made = request.getfixturevalue(request.param)
    return PageSeen(driver, made if isinstance(made, Path) else made.files[0])


@pytest.mark.parametrize("width", [1280, 390])
def test_no_complaint_no_request_nothing_wider_than_the_page(opened: PageSeen, width: int) -> None:
    opened.open(width=width, scheme="dark")
    opened.until("return window.Plotly !== undefined")
    for holder in opened.run(
        "return [...document.querySelectorAll('.chart')].map((e) => '#' + e.closest('figure').id)"
    ):
        opened.draw(f"{holder} .chart")
    for file in opened.run(
        "return [...document.querySelectorAll('details.data[data-file]')].map((e) => e.dataset.file)"
    ):
        opened.unfold(f'details[data-file="{file}"]')
    assert opened.complaints() == []
    assert opened.requests() == []
    assert opened.run("return document.documentElement.scrollWidth") <= width


def widths_of_tables(page: PageSeen) -> dict[str, tuple[int, int]]:
    """By table: how wide it is, and how much of that is seen without scrolling, at the width of a laptop."""
    page.open(width=1280)
    found = page.run(
        "return [...document.querySelectorAll('h3[id^=table-] + .scroll')].map("
        "(e) => [e.previousElementSibling.id, e.scrollWidth, e.clientWidth])"
    )
    return {name: (whole, shown) for name, whole, shown in found}


def test_its_tables_are_as_wide_as_the_page_of_a_laptop(driver: webdriver.Chrome, twins: Comparison) -> None:
    widths = widths_of_tables(PageSeen(driver, twins.files[0]))
    assert list(widths) == ["table-differing", "table-differences", "table-ledgers"]
    assert [name for name, (whole, shown) in widths.items() if whole > shown] == []


def test_so_are_those_of_the_evidence(driver: webdriver.Chrome) -> None:
    widths = widths_of_tables(PageSeen(driver, EVIDENCE))
    assert {"table-losses", "table-backcopy", "table-lengths", "table-contrasts-H9"} <= set(widths)
    assert [name for name, (whole, shown) in widths.items() if whole > shown] == []


def test_a_difference_under_the_pointer_is_that_of_the_table(driver: webdriver.Chrome, twins: Comparison) -> None:
    page = PageSeen(driver, twins.files[0])
    page.draw("#differences .chart")
    said = page.run(
        "return document.querySelector('#differences .chart .js-plotly-plot').data.flatMap((t) => t.hovertext)"
    )
    for row in twins.differences.query("where == 'all layers' and low == low").to_dict("records"):
        unit = row["unit"]
        values = f"{amount(row['estimate_a'], unit)} → {amount(row['estimate_b'], unit)}"
        due = f"{values}, {gap(row['difference'], unit)} ({between(row)})"
        assert any(text.endswith(due) for text in said), due


def test_the_table_of_differences_sorts(driver: webdriver.Chrome, twins: Comparison) -> None:
    page = PageSeen(driver, twins.files[0])
    table = "#table-differences + .scroll table"
    before = page.column(table, "effect") if page.all(table) else []
    assert before
    button = page.run(
        "return [...document.querySelectorAll(arguments[0] + ' thead th')].find((c) => c.textContent.includes('where'))"
        ".querySelector('button')",
        table,
    )
    page.run("arguments[0].click()", button)
    wheres = page.run(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map((r) => r.cells[1].textContent)", table
    )
    assert wheres == sorted(wheres)
    assert len(wheres) == len(twins.differences)


def test_names_are_text(driver: webdriver.Chrome, named: Path) -> None:
    page = PageSeen(driver, named)
    assert page.run("return document.querySelectorAll('main script:not([type])').length") == 0
    assert page.run("return document.querySelectorAll('main b').length") == 0
    whole = page.run("return document.body.textContent")
    assert "<script>alert(1)</script>" in whole
    assert "\u202e" not in page.run("return document.querySelector('#findings').textContent")


def test_it_prints_its_pictures_and_no_charts(driver: webdriver.Chrome, twins: Comparison) -> None:
    page = PageSeen(driver, twins.files[0])
    page.draw("#differences .chart")
    assert len(page.printed()) > 100_000
    page.tell("Emulation.setEmulatedMedia", media="print")
    hidden = page.run("return getComputedStyle(document.querySelector('#differences .chart')).display")
    shown = page.run("return getComputedStyle(document.querySelector('#differences .still')).display")
    page.tell("Emulation.setEmulatedMedia", media="")
    assert (hidden, shown) == ("none", "block")
