"""The page: one file, nothing from the network, token text escaped, every figure and table there."""

import base64
import gzip
import hashlib
import itertools
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest

from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.pages.page import write_page
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run


class Seen(HTMLParser):
    """What a page holds: elements, links, text (that of scripts and styles apart)."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.scripts: list[tuple[str, str]] = []  # type, text
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data) -> None:
        if self.cdata_elem == "script":
            self.scripts.append((self.tags[-1][1].get("type", ""), data))
        elif self.cdata_elem is None:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module", params=["plain", "normed"])
def written(request: pytest.FixtureRequest) -> tuple[Run, str, str]:
    """A run, its page and its Markdown."""
    run = request.getfixturevalue(request.param)
    page = write_page(run)
    assert page == run.path / "report.html"
    return run, page.read_text(encoding="utf-8"), (run.path / "report.md").read_text(encoding="utf-8")


def test_nothing_is_loaded(written: tuple[Run, str, str]) -> None:
    _, page, _ = written
    seen = Seen(page)
    ids = {attributes["id"] for _, attributes in seen.tags if "id" in attributes}
    for tag, attributes in seen.tags:
        assert tag not in {"iframe", "object", "embed", "base", "link"} or attributes.get("rel") == "icon"
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert (tag, name) != ("script", "src")
            if name in {"href", "src", "srcset", "action", "poster"}:
                assert value.startswith(("#", "data:")), (tag, value[:80])
                if value.startswith("#"):
                    assert value[1:] in ids
    assert "url(" not in page
    assert "@import" not in page
    assert len(page.encode()) < 8_000_000
    for image in seen.all("img"):
        if image["src"].startswith("data:image/svg+xml"):
            svg = base64.b64decode(image["src"].split(",", 1)[1]).decode()
            loads = re.findall(r'(?:xlink:href|href|src)="([^"]*)"', svg)
            assert all(value.startswith(("#", "data:")) for value in loads)


def test_token_text_is_escaped(written: tuple[Run, str, str]) -> None:
    _, page, markdown = written
    assert "&lt;script&gt;alert(" in page
    assert page.count("<script") == len(Seen(page).all("script"))  # none inside another
    assert "novels &lt;&amp;&gt;" in page
    text = "".join(Seen(page).text)
    assert "\\u202e" in text
    assert "<bdi><code>\\n\\n</code></bdi>" in page
    for written_text in (page, markdown):
        odd = {c for c in written_text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co"}}
        assert odd <= {"\n", "\u2068", "\u2069"}, odd


def test_figures(written: tuple[Run, str, str]) -> None:
    run, page, markdown = written
    seen = Seen(page)
    drawn = [name for name in figures_of(run) if FIGURES[name].missing(run) is None]
    assert [figure["id"] for figure in seen.all("figure")] == drawn
    images = seen.all("img")
    assert len(images) == len(drawn)
    assert all(len(image["alt"]) > 40 for image in images)
    text = " ".join("".join(seen.text).split())
    for name in figures_of(run):
        said = FIGURES[name].caption(run) if name in drawn else FIGURES[name].missing(run)
        assert " ".join(said.split()) in text
        assert (f"figures/{name}.png" in markdown) == (name in drawn)
        assert (run.path / "figures" / f"{name}.png").exists() == (name in drawn)


def test_figures_of_edits_are_not_even_missing(written: tuple[Run, str, str]) -> None:
    _, page, markdown = written
    for text in (page, markdown):
        for name in ("edit_layers", "dose_response"):
            assert name not in text
            assert FIGURES[name].title not in text


def test_the_run_without_a_norm_says_so_in_words(written: tuple[Run, str, str]) -> None:
    run, page, _ = written
    assert ("No QK norm was found in this model" in page) == (run.name == "synthetic-plain")


def test_headings_and_sections(written: tuple[Run, str, str]) -> None:
    run, page, _ = written
    sections = [section["id"] for section in Seen(page).all("section")]
    assert sections == ["findings", "heads", "figures", "tables", "method", "parity", "provenance"]
    levels = [int(tag[1]) for tag, _ in Seen(page).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for said in (run.manifest["model"]["sha256"], run.manifest["command"], "transformers 5.24.0", "Passed."):
        assert said in page


def test_markdown_tables_are_whole(written: tuple[Run, str, str]) -> None:
    _, _, markdown = written
    blocks = re.findall(r"(?:^\|.*\n)+", markdown, flags=re.MULTILINE)
    assert len(blocks) == 7
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}
        assert len(widths) == 1, block
    assert "\n\n\n\n" not in markdown


def test_layer_table_has_the_numbers(written: tuple[Run, str, str]) -> None:
    run, page, _ = written
    sinks = run.tables["sinks"]
    for _, rows in sinks.groupby("layer"):
        assert f"<td>{100 * rows['first_mass'].mean():.1f}%</td>" in page


def test_another_folder(normed: Run, tmp_path: Path) -> None:
    page = write_page(normed, tmp_path / "out")
    assert page.parent == tmp_path / "out"
    assert {file.name for file in page.parent.iterdir()} == {"report.html", "report.md", "figures"}


def test_only_the_two_scripts_of_the_policy_can_run(written: tuple[Run, str, str]) -> None:
    _, page, _ = written
    (policy,) = [meta["content"] for meta in Seen(page).all("meta") if "http-equiv" in meta]
    assert "default-src 'none'" in policy
    assert not re.search(r"script-src[^;]*(unsafe|data:|blob:|http|\*)", policy)
    scripts = Seen(page).scripts
    (own,) = [text for kind, text in scripts if not kind]
    (packed,) = [text for kind, text in scripts if kind == "text/plain"]
    for text in (own.encode(), gzip.decompress(base64.b64decode(packed))):
        assert base64.b64encode(hashlib.sha256(text).digest()).decode() in policy
    assert {kind for kind, _ in scripts} == {"", "text/plain", "application/json"}


def test_every_figure_has_its_rows(written: tuple[Run, str, str]) -> None:
    run, page, _ = written
    drawn = [name for name in figures_of(run) if FIGURES[name].missing(run) is None]
    assert [details["data-file"] for details in Seen(page).all("details")] == drawn


def test_same_run_same_page(normed: Run, tmp_path: Path) -> None:
    one, other = (write_page(normed, tmp_path / name) for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_a_run_with_one_table(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1, q_heads=1, kv_heads=1)
    run = rewrite(run, **{name: None for name in run.tables if name != "sinks"})
    page = write_page(run).read_text(encoding="utf-8")
    assert page.count("<figure") == 1
    assert "This run has no values in the table norms." in page
    assert not re.search(r"\bnan\b", " ".join(Seen(page).text))


def test_failed_parity_is_loud(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1, q_heads=1, kv_heads=1)
    run = rewrite(run, **dict.fromkeys(run.tables))
    run.manifest["parity"]["ok"] = False
    page = write_page(run).read_text(encoding="utf-8")
    assert "FAILED." in page
    assert 'class="bad"' in page
