"""The page of a run in a real browser: quiet, read by pointer and by keys, filtered, sorted, saved, printed."""

import csv
import io
import re

import pytest
from selenium.webdriver.common.keys import Keys

from geomprobe.pages.wording import number
from tests.browser.page_seen import PageSeen
from tests.synthetic_run import TOKENS

pytestmark = pytest.mark.browser

HEADS = ".explorer"
FIRST_MASS = "#first_mass .data"


def plain_number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["opened", "opened_hostile"])
def test_no_complaint_no_request_nothing_wider_than_the_page(kind, width, request) -> None:
    page: PageSeen = request.getfixturevalue(kind)
    page.open(width=width)
    page.until("return window.Plotly !== undefined")
    for holder in page.run("return [...document.querySelectorAll('.chart')].map((e) => '#' + e.closest('figure').id)"):
        page.draw(f"{holder} .chart")
    page.draw(HEADS)
    for details in page.run(
        "return [...document.querySelectorAll('details.data[data-file]')].map((e) => e.dataset.file)"
    ):
        page.unfold(f'details[data-file="{details}"]')
    assert page.complaints() == []
    assert page.requests() == []
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_a_head_under_the_pointer_is_read(opened: PageSeen, real) -> None:
    sinks = real.tables["sinks"]
    layers, heads = sinks["layer"].nunique(), sinks["q_head"].nunique()
    opened.draw(HEADS)
    opened.point(HEADS, ((2 + 0.5) / heads, (1 + 0.5) / layers))
    row = sinks[(sinks["layer"] == 1) & (sinks["q_head"] == 2)].iloc[0]
    due = f"layer 1, head 2: {number(row['first_mass'])} (n = {int(row['n_rows']):,} queries)"
    assert opened.said(HEADS, "layer 1, head 2:") == due
    assert due in opened.texts(".hoverlayer")[0]
    table = opened.unfold(f"{HEADS} .data")
    read = dict(
        zip(
            zip(opened.column(table, "layer"), opened.column(table, "head"), strict=True),
            opened.column(table, "first_mass"),
            strict=True,
        )
    )
    assert plain_number(read["1", "2"]) == pytest.approx(row["first_mass"], rel=1e-5)


def test_a_quantity_and_a_class_are_chosen_and_layers_kept(opened: PageSeen, real) -> None:
    opened.draw(HEADS)
    names = opened.texts(f'{HEADS} [data-part="quantity"] option')
    place = next(index for index, name in enumerate(names) if "(class_sink)" in name)
    opened.choose(f'{HEADS} [data-part="quantity"]', str(place))
    assert "class_sink" in opened.texts(f"{HEADS} .cbtitle")[0]  # a colour bar says of what it is
    classes = opened.texts(f'{HEADS} [data-part="class"] option')
    assert classes[0] == "function"
    opened.choose(f'{HEADS} [data-part="class"]', str(classes.index("punctuation")))
    opened.choose(f'{HEADS} [data-part="from"]', "1")
    opened.choose(f'{HEADS} [data-part="to"]', "2")
    opened.choose(f'{HEADS} [data-part="head"]', "3")
    table = opened.unfold(f"{HEADS} .data")
    assert opened.column(table, "layer") == ["1", "2"]
    assert opened.column(table, "head") == ["3", "3"]
    assert set(opened.column(table, "token_class")) == {"punctuation"}
    rows = real.tables["class_attention"]
    rows = rows[(rows["token_class"] == "punctuation") & (rows["q_head"] == 3) & rows["layer"].isin([1, 2])]
    shown = [plain_number(text) for text in opened.column(table, "class_sink")]
    assert shown == pytest.approx(rows.sort_values("layer")["class_sink"].tolist(), rel=1e-5)


def test_arrow_keys_read_heads(opened: PageSeen) -> None:
    opened.draw(HEADS)
    opened.run("document.querySelector('.explorer .area').focus()")
    opened.press(Keys.ARROW_DOWN)
    opened.said(HEADS, "layer 0, head 0:")
    opened.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    opened.said(HEADS, "layer 1, head 2:")


def test_rows_are_filtered_and_counted(opened: PageSeen, real) -> None:
    details = '#key_lengths details[data-file="key_lengths"]'
    table = opened.unfold(details)
    opened.choose(f'{details} [data-column="token_class"]', "content")
    opened.choose(f'{details} [data-column="layer-from"]', "2")
    assert set(opened.column(table, "token_class")) == {"content"}
    assert min(int(layer) for layer in opened.column(table, "layer")) == 2
    opened.choose(f'{details} [data-column="head"]', "1")
    assert set(opened.column(table, "head")) == {"1"}
    n = len(opened.column(table, "head"))
    assert n == len(real.manifest["model"]["anatomy"]) - 2
    assert opened.texts(f"{details} .count")[0].startswith(f"{n} of ")
    opened.choose(f'{details} input[type="search"]', "no such text")
    assert opened.column(table, "head") == []


def test_tab_reaches_the_columns_and_enter_sorts(opened: PageSeen, real) -> None:
    summary = opened.one(f"{FIRST_MASS} summary")
    opened.run("arguments[0].focus()", summary)
    opened.press(Keys.ENTER)
    table = f"{FIRST_MASS} table"
    opened.until("return document.querySelector(arguments[0] + ' tbody tr') !== null", table)
    for _ in range(12):
        opened.press(Keys.TAB)
        if opened.run("return document.activeElement.textContent") == "first_mass":
            break
    opened.press(Keys.ENTER)
    values = [plain_number(text) for text in opened.column(table, "first_mass")]
    assert values == sorted(values)
    assert len(values) == len(real.tables["sinks"])
    heads = f"{table} th[aria-sort]:not([aria-sort='none'])"
    assert [head.get_attribute("aria-sort") for head in opened.all(heads)] == ["ascending"]
    opened.press(Keys.ENTER)
    values = [plain_number(text) for text in opened.column(table, "first_mass")]
    assert values == sorted(values, reverse=True)


def test_the_pages_own_tables_sort(opened: PageSeen) -> None:
    table = "#table-layers + .scroll table"
    opened.run("document.querySelector(arguments[0] + ' th:nth-child(3) button').click()", table)
    values = [plain_number(text) for text in opened.column(table, "key length")]
    assert values == sorted(values)


def test_rows_are_saved_as_csv(opened: PageSeen, tmp_path, real) -> None:
    opened.tell("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    opened.unfold(FIRST_MASS)
    opened.choose(f'{FIRST_MASS} [data-column="layer-to"]', "0")
    opened.run("document.querySelector(arguments[0] + ' .save').click()", FIRST_MASS)
    rows = list(csv.DictReader(io.StringIO(opened.saved(tmp_path / "first_mass.csv"))))
    due = real.tables["sinks"]
    due = due[due["layer"] == 0]
    assert [int(row["q_head"]) for row in rows] == due["q_head"].tolist()
    assert [float(row["first_mass"]) for row in rows] == pytest.approx(due["first_mass"].tolist(), rel=1e-5)


def test_classes_are_shown_or_not(opened: PageSeen) -> None:
    chart = "#key_lengths .chart"
    opened.draw(chart)
    lines = "return document.querySelectorAll('#key_lengths .scatterlayer .trace').length"
    before = opened.run(lines)
    opened.run("document.querySelector(arguments[0] + ' .legend input').click()", chart)
    opened.until(f"{lines} < arguments[0]", before)


def test_charts_take_the_colours_of_dark_and_light(opened: PageSeen) -> None:
    opened.draw("#first_mass .chart")
    ink = "return getComputedStyle(document.querySelector('#first_mass .xtick text')).fill"
    light = opened.run(ink)
    opened.scheme("dark")
    opened.until(f"{ink} !== arguments[0]", light)
    ground = opened.run("return getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in re.findall(r"\d+", ground)[:3]) < 60
    assert min(int(part) for part in re.findall(r"\d+", opened.run(ink))[:3]) > 180


def test_on_paper_there_are_pictures_and_no_charts(opened: PageSeen) -> None:
    opened.draw("#first_mass .chart")
    opened.unfold(FIRST_MASS)
    opened.tell("Emulation.setEmulatedMedia", media="print")
    try:
        seen = "return [...document.querySelectorAll(arguments[0])].filter((e) => e.offsetParent !== null).length"
        assert opened.run(seen, ".js-plotly-plot, .explorer, .data, nav") == 0
        assert opened.run(seen, "figure .still img") == len(opened.all("figure"))
        printed = opened.printed()
    finally:
        opened.tell("Emulation.setEmulatedMedia", media="")
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 5


def test_without_scripts_it_is_whole(opened: PageSeen) -> None:
    opened.open(scripts=False)
    try:
        assert len(opened.all("figure .still img")) == len(opened.all("figure"))
        assert all(image.is_displayed() for image in opened.all("figure .still img"))
        assert not any(one.is_displayed() for one in opened.all(".chart, .explorer, .data"))
        assert "needs scripts" in opened.one("#heads noscript").text
    finally:
        opened.open()


def test_the_contents_say_where_one_is(opened: PageSeen) -> None:
    opened.draw("#first_mass .chart")
    opened.run("document.querySelector('#entropy').scrollIntoView()")
    opened.until("return document.querySelector('nav [aria-current]')?.hash === '#entropy'")


def test_hostile_tokens_are_text(opened_hostile: PageSeen) -> None:
    page = opened_hostile
    table = page.unfold('details[data-file="sink_tokens"]')
    tokens = page.column(table, "token")
    assert "<script>alert('x')</script>" in tokens
    assert "\\u202e\u0645\u0631" in tokens
    assert "\\u0007\\u001b" in tokens
    assert len(tokens) <= len(TOKENS)
    page.draw("#word_map .chart")
    page.run("for (const box of document.querySelectorAll('#word_map .words input')) box.click()")
    page.until("return [...document.querySelectorAll('#word_map text')].some((e) => e.textContent === '<b>bold</b>')")
    words = page.column(page.unfold('details[data-file="hubs"]'), "word")
    assert "<b>bold</b>" in words
    assert "\\u202e\u0645\u0631" in words
    assert page.run("return document.querySelectorAll('main b, main script:not([type])').length") == 0
    assert page.complaints() == []
