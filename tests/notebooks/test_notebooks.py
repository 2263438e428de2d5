"""The notebooks: they run from top to bottom, use what is public, and their pages are of the present source."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import geomprobe
from reports.notebooks import HASH, RENDERED, ROOT, sha256_of_source, sources

# What a notebook may import of the package: the root, and what the contract of a probe and its checks are.
PUBLIC = {"geomprobe", "geomprobe.probes.base", "geomprobe.testing"}
INDEX_SERVED = {"3_sinks"}  # of checkpoints that the package index serves
MOST = 700_000  # bytes of a page

SOURCES = sources()
EACH = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


def checked(page: str) -> None:
    """Raise unless a page stands by itself."""
    assert len(page.encode()) < MOST
    assert not re.search(r"<(script|iframe|object|embed)\b", page)
    loaded = re.findall(r"""<(?:img|link|source|video|audio)\b[^>]*?(?:src|href|srcset)=["']([^"']*)""", page)
    assert all(where.startswith("data:") for where in loaded)
    assert not re.search(r"@import|url\((?!['\"]?data:)", page)
    pictures = re.findall(r"<img\b[^>]*>", page)
    assert pictures
    assert all(re.search(r'alt="[^"]{20,}"', picture) for picture in pictures)


def test_there_are_six() -> None:
    assert [source.stem[:2] for source in SOURCES] == ["1_", "2_", "3_", "4_", "5_", "6_"]


@EACH
def test_only_what_is_public(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "geomprobe":
            assert node.attr in geomprobe.__all__
        assert all(name in PUBLIC for name in names if name.split(".")[0] == "geomprobe")


@EACH
def test_reads_like_a_tutorial(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    assert "format_name: percent" in text
    cells = re.split(r"(?m)^# %%", text)[1:]
    assert cells[0].startswith(" [markdown]\n# # ")
    assert "**Question: " in cells[0]
    assert cells[-1].startswith(" [markdown]")  # it ends in what it shows
    assert "os.chdir(tempfile.mkdtemp())" in text  # runs go to a temporary folder


@EACH
def test_the_page_is_of_this_source(source: Path) -> None:
    page = (RENDERED / f"{source.stem}.html").read_text(encoding="utf-8")
    found = re.search(rf'<meta name="{HASH}" content="(\w+)">', page)
    assert found is not None
    assert found[1] == sha256_of_source(source), f"make notebooks renders {source.name} anew"
    checked(page)


@pytest.mark.parametrize(
    "source",
    [pytest.param(s, id=s.stem, marks=[pytest.mark.real] if s.stem in INDEX_SERVED else []) for s in SOURCES],
)
def test_runs_from_top_to_bottom(source: Path, tmp_path: Path) -> None:
    """An exception, or anything on stderr, ends it; in a process of its own, as in `make notebooks`."""
    pytest.importorskip("nbclient")
    command = [sys.executable, "-m", "reports.notebooks", "--out", str(tmp_path), source.stem]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    checked((tmp_path / f"{source.stem}.html").read_text(encoding="utf-8"))


BAD = {
    "fails": ("1 / 0", "ZeroDivisionError"),
    "warns": ('import warnings\nwarnings.warn("old")', "a cell writes to stderr"),
    "shows nothing": ('# %% alt="A map of layers by heads."\nax = None', "a picture is told of and there is none"),
    "unlabelled": ("import matplotlib.pyplot as plt\n_ = plt.plot([1])", "a picture has no text"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_notebook_is_found(name: str, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    code, said = BAD[name]
    file = tmp_path / f"{name}.py"
    file.write_text(f"# %% [markdown]\n# # Bad\n\n# %%\n{code}\n", encoding="utf-8")
    run = f"from pathlib import Path\nfrom reports.notebooks import executed\nexecuted(Path({str(file)!r}))"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode != 0
    assert "BadNotebook" in done.stderr
    assert said in done.stderr
