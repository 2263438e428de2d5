"""A run as a notebook shows it."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from geomprobe.pages.findings import findings
from geomprobe.pages.page import write_page
from geomprobe.pages.showing import MOST, chosen
from geomprobe.run.reading import Run, open_run
from tests.synthetic_edits import write_synthetic_edits
from tests.synthetic_run import rewrite, write_synthetic_run

VOID = {"br", "img", "meta", "link", "input", "hr"}


class Shape(HTMLParser):
    """The tags and the text of a fragment; fails where tags do not close in order."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(fragment)
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if "style" not in self.open:
            self.text += data


@pytest.fixture(params=["plain", "normed"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A run without pages; the folder's own may have been given some by then."""
    whole = request.getfixturevalue(request.param)
    kept = shutil.ignore_patterns("report.*", "figures")
    return open_run(shutil.copytree(whole.path, tmp_path / "run", ignore=kept))


def test_a_small_page(run: Run) -> None:
    shape = Shape(run._repr_html_())
    assert run.name in shape.text
    assert "novels <&>" in shape.text
    assert "Parity: passed." in shape.text
    assert f"{run.manifest['corpus']['n_windows']} windows" in shape.text
    assert 3 <= shape.tags.count("li") <= MOST
    assert "sinks, split" in shape.text
    assert "first_mass" in shape.text
    assert "geomprobe.report(run)" in shape.text  # no page is drawn
    assert len(run._repr_html_()) < 12_000


def test_nothing_is_loaded_and_nothing_runs(run: Run) -> None:
    fragment = run._repr_html_()
    shape = Shape(fragment)
    assert {"script", "img", "link", "iframe", "object"}.isdisjoint(shape.tags)
    assert {name for name, _ in shape.attributes} <= {"class"}
    assert not re.search(r"https?:|url\(|@import", fragment)


def test_both_lights(run: Run) -> None:
    style = re.search(r"<style>(.*?)</style>", run._repr_html_(), re.DOTALL)
    assert style is not None
    assert all(rule.strip().startswith(".geomprobe-run") for rule in re.findall(r"([^{}]+)\{", style[1]))
    assert "background: #" not in style[1]
    assert set(re.findall(r"[^-]color: (#\w+)", style[1])) == {"#009e73", "#d55e00"}  # the verdict's, beside its word


def test_findings_are_those_of_the_page(run: Run) -> None:
    told = findings(run)
    taken = chosen(told)
    assert len(taken) == MOST
    assert [finding for finding in told if finding in taken] == taken
    assert {"QK norm", "Where attention sinks", "Length against angle"} <= {finding.topic for finding in taken}


def test_where_the_page_is(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1, q_heads=1, kv_heads=1)
    run = rewrite(run, **{name: None for name in run.tables if name != "sinks"})
    shape = Shape(run._repr_html_())
    assert "Tables, as run.tables[…]: sinks." in shape.text
    assert "not drawn yet" in shape.text
    write_page(run)
    assert f"The whole page: {tmp_path / 'report.html'}." in Shape(run._repr_html_()).text


def test_failed_parity_is_loud(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1, q_heads=1, kv_heads=1)
    run.manifest["parity"]["ok"] = False
    assert "Parity: FAILED." in Shape(run._repr_html_()).text


def test_edits(tmp_path: Path) -> None:
    run = write_synthetic_edits(tmp_path)
    shape = Shape(run._repr_html_())
    assert "edits" in shape.text
    assert "the most of all edits" in shape.text
    assert "dose_response" in shape.text
    assert "interventions, parity" in shape.text


def test_hostile_text(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False)
    hostile = "</code></style><script>alert(1)</script><img src=x onerror=alert(2)>"
    tokens = run.tables["sink_tokens"]
    run = rewrite(run, sink_tokens=tokens.assign(token=[f"{hostile}{at}"[:24] for at in range(len(tokens))]))
    run.manifest["model"] |= {"name": hostile, "family": hostile, "dtype": hostile}
    run.manifest["corpus"]["name"] = hostile
    fragment = run._repr_html_()
    shape = Shape(fragment)
    assert {"script", "img"}.isdisjoint(shape.tags)
    assert shape.tags.count("style") == 1
    assert hostile in shape.text
    assert "<script" not in fragment.split("</style>", 1)[1]


def test_the_short_text_stays(run: Run) -> None:
    assert repr(run) == f"Run(path={run.path!r})"
