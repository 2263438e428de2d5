"""The page of a comparison: one file, nothing from the network, names as text; tables for a paper that are whole."""

import base64
import re
import subprocess
import sys
import unicodedata

import pandas as pd
import pytest

from geomprobe.comparison.comparison import Comparison, compare_runs
from geomprobe.errors import InvalidParameter
from geomprobe.figures.side_catalogue import SIDE_FIGURES, side_figures_of
from geomprobe.pages.side_page import FORMATS, chosen_formats, write_comparison
from geomprobe.pages.side_showing import small_comparison
from geomprobe.pages.side_tables import latex, side_tables
from tests.comparison.made import made_run, written
from tests.pages.test_page import Seen
from tests.synthetic_run import write_synthetic_run

HOSTILE = "<script>alert('x')</script>\u202e_a|b & 50% $x_1$ #{~^\\\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A comparison with a hostile name, its folder and files by name."""
    root = tmp_path_factory.mktemp("page")
    one = write_synthetic_run(root / "one", qk_norm=False, n_layers=3, q_heads=2, kv_heads=1)
    other = write_synthetic_run(root / "other", qk_norm=True, n_layers=2, q_heads=3, kv_heads=1, seed=1)
    other.manifest["model"] |= {"name": HOSTILE, "source": "hub"}  # of a folder the last part would be its name
    comparison = compare_runs([one, other])
    comparison.files = tuple(write_comparison(comparison, root / "out", FORMATS))
    return comparison, {file.name: file.read_text(encoding="utf-8") for file in comparison.files}


@pytest.fixture(scope="module")
def trio():
    """Three runs without words."""
    return compare_runs([made_run(name, seed=at) for at, name in enumerate(("one", "two", "a_b & 5%"))])


def rows_of(tex):
    """The cells of a LaTeX table's rows."""
    body = tex.split(r"\midrule")[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.strip()]
    assert all(line.endswith(r" \\") for line in lines)
    return [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in lines]


# ------------------------------------------------------------------ the page
def test_files_are_the_pages_and_the_tables(whole):
    comparison, files = whole
    tables = [f"{name}.csv" for name in comparison.tables]
    assert list(files) == ["compare.html", "compare.md", "compare.tex", *tables]
    folder = comparison.files[0].parent
    drawn = {name for name in side_figures_of(comparison) if SIDE_FIGURES[name].missing(comparison) is None}
    assert {file.name for file in (folder / "figures").iterdir()} == {f"{n}.{e}" for n in drawn for e in ("png", "svg")}
    assert {file.name for file in folder.iterdir()} == {*files, "figures"}


def test_nothing_is_loaded(whole):
    page = whole[1]["compare.html"]
    seen = Seen(page)
    ids = {attributes["id"] for _, attributes in seen.tags if "id" in attributes}
    for tag, attributes in seen.tags:
        assert tag not in {"iframe", "object", "embed", "base", "link"} or attributes.get("rel") == "icon"
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert (tag, name) != ("script", "src")
            if name in {"href", "src", "srcset", "action", "poster"}:
                assert value.startswith(("#", "data:")), (tag, value[:80])
                assert not value.startswith("#") or value[1:] in ids
    assert "@import" not in page
    assert "url(" not in page
    assert len(page.encode()) < 8_000_000
    for image in seen.all("img"):
        if image["src"].startswith("data:image/svg+xml"):
            svg = base64.b64decode(image["src"].split(",", 1)[1]).decode()
            assert all(one.startswith(("#", "data:")) for one in re.findall(r'(?:xlink:href|href|src)="([^"]*)"', svg))


def test_names_are_text(whole):
    _, files = whole
    page = files["compare.html"]
    seen = Seen(page)
    assert page.count("<script") == len(seen.all("script"))
    text = "".join(seen.text)
    assert "<script>alert('x')</script>\\u202e_a|b" in text
    for name in ("compare.html", "compare.md", "compare.tex"):
        odd = {one for one in files[name] if unicodedata.category(one) in {"Cc", "Cf", "Cs", "Co"}}
        assert odd <= {"\n", "\u2068", "\u2069"}, (name, odd)
    assert "<script>" not in re.sub(r"`[^`]*`", "", files["compare.md"])


def test_every_figure_is_there_or_says_why_not(whole):
    comparison, files = whole
    seen = Seen(files["compare.html"])
    drawn = [name for name in side_figures_of(comparison) if SIDE_FIGURES[name].missing(comparison) is None]
    assert [figure["id"] for figure in seen.all("figure")] == drawn
    assert len(seen.all("img")) == len(drawn)
    text = " ".join("".join(seen.text).split())
    for name in side_figures_of(comparison):
        said = SIDE_FIGURES[name].caption(comparison) if name in drawn else SIDE_FIGURES[name].missing(comparison)
        assert " ".join(said.split()) in text, name


def test_the_page_has_its_parts(whole):
    seen = Seen(whole[1]["compare.html"])
    assert [one["id"] for one in seen.all("section")] == ["findings", "figures", "tables", "method", "provenance"]
    assert not re.search(r"\bnan\b", " ".join(seen.text))


def test_markdown_tables_are_whole(whole):
    blocks = re.findall(r"(?:^\|.*\n)+", whole[1]["compare.md"], flags=re.MULTILINE)
    assert len(blocks) == len(side_tables(whole[0]))
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1, block
    assert "\n\n\n\n" not in whole[1]["compare.md"]


def test_the_same_comparison_has_the_same_text(whole, tmp_path):
    comparison, files = whole
    again = compare_runs(comparison.sides.runs)
    assert latex(again) == files["compare.tex"]
    assert again.differences.to_csv(index=False) == files["differences.csv"]


# ------------------------------------------------------------------ tables
def test_tables_can_be_read_again(whole):
    comparison, _ = whole
    folder = comparison.files[0].parent
    for name, table in comparison.tables.items():
        read = pd.read_csv(folder / f"{name}.csv", keep_default_na=False)
        assert read.columns.tolist() == table.columns.tolist()
        assert len(read) == len(table)
    read = pd.read_csv(folder / "differences.csv")
    assert read["difference"].tolist() == pytest.approx(comparison.differences["difference"].tolist(), rel=1e-15)


@pytest.mark.parametrize("kind", ["pair", "trio"])
def test_latex_is_whole(kind, whole, trio):
    comparison = trio if kind == "trio" else whole[0]
    tex = latex(comparison)
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{table}", r"\end{table}", r"\begin{tabular}"):
        assert tex.count(rule) == 1
    bare = re.sub(r"\\[\\{}]", "", tex)
    depth = 0
    for one in bare:
        depth += {"{": 1, "}": -1}.get(one, 0)
        assert depth >= 0
    assert depth == 0
    table = comparison.differences
    rows = rows_of(tex)
    assert len(rows) == (table["where"] == "all layers").sum()
    columns = 6 if kind == "pair" else 7
    head = tex.split(r"\toprule")[1].split(r"\midrule")[0]
    assert len(re.split(r"(?<!\\)&", head)) == columns
    assert f"{{l{'r' * (columns - 1)}}}" in tex
    for row in rows:
        assert len(row) == columns
        for cell in row:
            outside = re.sub(r"(?<!\\)\$[^$]*\$", "", cell)  # formulas apart
            assert not re.search(r"(?<!\\)[%_&#$^~]", outside), cell
    text = tex.split(r"\begin{tabular}")[1]
    assert not re.search("[Λ−–×⁻ε\u2068\u2069]", text)


def test_latex_takes_a_name_for_no_command(trio):
    tex = latex(trio)
    assert r"a\_b \& 5\%" in tex
    assert "a_b" not in tex


def test_the_table_of_differences_says_what_the_rows_say(whole):
    comparison, _ = whole
    (table,) = (one for one in side_tables(comparison) if one.name == "differences")
    row = comparison.differences.iloc[0]
    shown = dict(zip(table.columns, table.rows[0], strict=True))
    assert shown["quantity"] == "attention on position 0"
    assert shown[comparison.labels[0]] == f"{100 * row['estimate_a']:.1f}%"
    assert shown["n"] == "32"
    assert shown["beyond"] == ("yes" if row["beyond"] else "no")
    assert len(table.rows) == len(comparison.differences)


def test_ranks_have_a_table_where_there_are_three(trio, whole):
    assert [one.name for one in side_tables(whole[0])] == ["differing", "differences", "ledgers"]
    named = {one.name: one for one in side_tables(trio)}
    assert "ranking" in named
    assert named["ranking"].columns == ["quantity", *trio.labels]
    assert all(sorted(re.findall(r"\((\d)\)", " ".join(row))) == ["1", "2", "3"] for row in named["ranking"].rows)


# ------------------------------------------------------------------ formats
@pytest.mark.parametrize(
    ("given", "names"),
    [("html", ("html",)), ("md, latex", ("md", "latex")), (["csv", "html", "csv"], ("csv", "html"))],
)
def test_formats_are_words_or_a_list(given, names):
    assert chosen_formats(given) == names


@pytest.mark.parametrize("given", ["pdf", "html,pdf", ["HTML"]])
def test_an_unknown_format(given):
    with pytest.raises(InvalidParameter, match="format must be one of 'html', 'md', 'latex', 'csv'; got"):
        chosen_formats(given)


@pytest.mark.parametrize("given", ["", " , ", []])
def test_no_format(given):
    with pytest.raises(InvalidParameter, match="format must name at least one of html, md, latex, csv"):
        chosen_formats(given)


def test_tables_alone_draw_nothing(trio, tmp_path):
    files = write_comparison(trio, tmp_path / "out", ("latex",))
    assert [file.name for file in files] == ["compare.tex"]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["compare.tex"]


# ------------------------------------------------------------------ in a notebook
def test_a_fragment_names_everything_as_text(whole):
    comparison, _ = whole
    fragment = small_comparison(comparison)
    seen = Seen(fragment)
    assert not seen.all("script")
    assert {tag for tag, _ in seen.tags} <= {
        *("div", "h4", "ul", "li", "strong", "span", "bdi", "code", "p", "table", "thead", "tbody", "tr", "th", "td")
    }
    assert "<script>alert('x')</script>" in "".join(seen.text)
    assert "\u202e" not in fragment
    assert comparison._repr_html_() == fragment
    assert str(comparison.files[0]) in "".join(seen.text)


def test_a_fragment_of_what_was_not_written(trio):
    assert isinstance(trio, Comparison)
    assert "Written: nothing yet." in "".join(Seen(small_comparison(trio)).text)


def test_comparing_finished_runs_needs_no_torch(tmp_path):
    for at, name in enumerate(("one", "other")):
        written(made_run(name, seed=at, layers=1), tmp_path / name)
    code = (
        "import sys\nfrom geomprobe.side_by_side import compare\n"
        f"compare({str(tmp_path / 'one')!r}, {str(tmp_path / 'other')!r}, formats='latex,csv', quiet=True, "
        f"out={str(tmp_path / 'out')!r})\nimport geomprobe.figures.side_catalogue, geomprobe.pages.side_page\n"
        "bad = {'torch', 'transformers', 'matplotlib.pyplot'} & set(sys.modules)\nassert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "compare.tex").is_file()
