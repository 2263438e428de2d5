"""The documentation's site: it builds without a warning, leaves nothing out, and loads nothing from the network."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

from docsite.commands import arguments, commands, options
from docsite.figures import OF
from docsite.probes import registered, written
from docsite.schema import anchor, schema_tables
from geomprobe.figures.catalogue import FIGURES

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 150_000  # bytes of a picture

pytestmark = pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is of the development requirements")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return target


def section(page, name):
    """The part of a page from the heading with that id to the next of its kind."""
    return page.split(f'<h2 id="{name}"', 1)[1].split("<h2 id=", 1)[0]


def test_every_command_and_option_is_in_the_reference(site):
    page = (site / "cli.html").read_text(encoding="utf-8")
    known = dict(commands())
    assert {"geomprobe", "geomprobe analyze", "geomprobe models fetch"} <= known.keys()
    for name, command in known.items():
        part = section(page, name.replace(" ", "-"))
        for option in options(command):
            for word in (*option.opts, *option.secondary_opts):
                assert f"<code>{word}</code>" in part, (name, word)
        for argument in arguments(command):
            assert argument.name.upper() in part, (name, argument.name)


def test_defaults_and_choices_are_told(site):
    part = section((site / "cli.html").read_text(encoding="utf-8"), "geomprobe-analyze")
    row = next(row for row in part.split("<tr>") if "<code>--context</code>" in row)
    assert "<code>64</code>" in row
    assert "<code>never</code>" in part
    assert "[default" not in part


def test_every_probe_has_a_page(site):
    for name in registered():
        assert (ROOT / "docs" / "probes" / f"{name}.md").is_file(), name
        page = (site / "probes" / f"{name}.html").read_text(encoding="utf-8")
        for heading in ("what-it-measures", "nulls-and-biases", "source", "parameters", "tables"):
            assert f'id="{heading}"' in page, (name, heading)
        for table in written()[name]:
            assert re.search(rf'<h3 id="{table}(_1)?"', page), (name, table)  # the page's own name takes the id


def test_every_table_of_the_schema_is_reached(site):
    page = (site / "probes" / "index.html").read_text(encoding="utf-8")
    for name, said in schema_tables().items():
        row = next((row for row in page.split("<tr>") if f"<code>{name}</code></a></td>" in row), "")
        cells = row.split("</td>")
        assert len(cells) > 2, name
        assert cells[1].replace("<td>", "").strip(), f"nobody is said to write {name}"
        assert f"schema.html#{anchor(said.section) if said.section else 'tables'}" in row
    columns = {table: columns for tables in written().values() for table, columns in tables.items() if columns}
    assert columns.keys() <= schema_tables().keys()


def test_every_figure_is_in_the_catalogue(site):
    page = (site / "figures.html").read_text(encoding="utf-8")
    missing = [name for name in FIGURES if name not in OF]
    assert not missing, f"docsite/figures.py does not say whose figures these are: {missing}"
    assert all(f'id="{name}"' in page for name in FIGURES)


class Loads(HTMLParser):
    """Addresses that a browser would fetch by itself when it opens a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        wanted = [given.get(name) for name in ("src", "srcset", "poster", "data")]
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev", "alternate"):
            wanted.append(given.get("href"))
        wanted += re.findall(r"url\(([^)]*)\)", given.get("style") or "")
        self.found += [(tag, address) for address in wanted if address and elsewhere(address)]


def elsewhere(address):
    return re.match(r"\s*['\"]?(https?:)?//", address) is not None


def test_no_page_loads_anything_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        reader = Loads()
        reader.feed(page.read_text(encoding="utf-8"))
        assert not reader.found, (page.relative_to(site), reader.found)
        assert 'class="mermaid"' not in page.read_text(encoding="utf-8")  # drawn by a script from elsewhere
    for style in site.rglob("*.css"):
        said = style.read_text(encoding="utf-8")
        assert not [url for url in re.findall(r"(?:url\(|@import\s+)([^);]+)", said) if elsewhere(url)], style


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', 1),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', 1),
        ('<p style="background: url(http://x.example/y.png)">', 1),
        ('<a href="https://example.org">a link</a><img src="pictures/x.png">', 0),
    ],
)
def test_what_loads_is_told_from_what_links(text, found):
    reader = Loads()
    reader.feed(text)
    assert len(reader.found) == found


def test_pictures_are_small():
    pictures = list((ROOT / "docs" / "pictures").rglob("*.png"))
    assert pictures
    assert not [picture.name for picture in pictures if picture.stat().st_size > LARGEST]
