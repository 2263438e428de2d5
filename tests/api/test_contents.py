"""What a run folder holds, and the package's names once a run was made."""

import importlib
import pkgutil
import re
import types
from pathlib import Path

import torch

import geomprobe
from geomprobe.labels import CLASS_ROWS, GAUGES, STAGES, TOKEN_CLASSES, VECTORS
from geomprobe.run.manifest import sha256_of
from geomprobe.testing import tiny_model

SCHEMA_PAGE = Path(__file__).parents[2] / "docs" / "schema.md"


# ------------------------------------------------------------------ what a run folder holds
def schema_columns():
    """The tables of docs/schema.md: name → columns."""
    page = SCHEMA_PAGE.read_text(encoding="utf-8")
    section = page[page.index("## Tables") :]
    rows = re.findall(r"^\| (\w+) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    tables = {}
    for name, *cells in rows:
        if name == "table":
            continue
        words = [word.strip() for cell in cells for word in re.sub(r"\([^()]*\)", "", cell).split(",")]
        tables[name] = [column for word in words for column in expand(word, tables)]
    return tables


def expand(word, tables):
    if word.startswith("as "):
        key = word.removeprefix("as ")
        return tables[key][: tables[key].index("n")]  # its key columns
    if word.strip("`").startswith("lift_<class>"):
        return [f"lift_{name}" for name in CLASS_ROWS]
    return [word]


# Of words in context, which only clusters and neighbours look at (test_words.py).
OF_WORDS = {"types", "contexts", "clusters", "neighbours", "map", "word_neighbours", "hubs"}
OF_EDITS = {"interventions"}  # in the folder of an intervention (tests/interventions)


def test_the_schema_is_read_as_it_is_meant():
    tables = schema_columns()
    assert len(tables) == 20 + len(OF_WORDS) + len(OF_EDITS)
    assert set(tables) >= OF_WORDS
    assert tables["norm_histograms"][:3] == ["layer", "vector", "head"]
    assert "lift_function" in tables["document_stats"]
    assert all(re.fullmatch(r"\w+", column) for columns in tables.values() for column in columns)


def test_every_table_of_the_schema_is_there(whole):
    expected = {name: columns for name, columns in schema_columns().items() if name not in OF_WORDS | OF_EDITS}
    assert set(whole.tables) == set(expected)
    for name, columns in expected.items():
        table = whole.tables[name]
        assert set(columns) <= set(table.columns), name
        assert len(table) > 0 or name in ("sink_tokens", "massive"), name
        assert not table.duplicated([c for c in columns if c in KEYS]).any(), name
        assert (whole.path / "tables" / f"{name}.csv").exists()


KEYS = ("layer", "vector", "head", "q_head", "stage", "token_class", "gauge", "capped", "epsilon", "token_id")
KEYS += ("document", "type", "edge_low", "first", "channel", "bucket", "length_low", "lift_low")


def test_only_known_words_stand_in_the_tables(whole):
    known = {"token_class": CLASS_ROWS, "stage": STAGES, "vector": VECTORS, "gauge": GAUGES}
    known |= {"axis": ("head", "full"), "order": ("before_rope", "after_rope", "no_rope", "unknown")}
    known |= {
        "capped": ("before", "after"),
        "layer": (-1, 0, 1),
        "q_head": (0, 1, 2, 3),
        "document": (-1, 0, 1),
        "first": ("out", "in", True, False),  # position 0 in a row's sums, or whether a row is of it
    }
    found = set()
    for name, table in whole.tables.items():
        for column, values in known.items():
            if column in table:
                strange = set(table[column]) - set(values)
                assert not strange, f"{name}.{column} holds {strange}"
                found.add(column)
    assert found == set(known)
    assert set(whole.tables["type_stats"]["token_class"]) <= set(TOKEN_CLASSES) - {"first"}
    assert set(whole.tables["norms"]["head"]) == {0, 1, 2, 3}
    keys = whole.tables["norms"].query("vector == 'k'")
    assert set(keys["head"]) == {0, 1}


def test_counts_are_those_of_the_text(whole):
    corpus = whole.manifest["corpus"]
    assert (corpus["n_windows"], corpus["window"], corpus["n_tokens"]) == (5, 48, 240)
    norms = whole.tables["norms"].set_index(["layer", "vector", "head", "stage", "token_class"])["n"]
    assert norms[0, "k", 0, "scored", "first"] == 5
    assert norms[1, "q", 3, "content", "all"] == 5 * 47
    assert set(whole.tables["sinks"]["n_rows"]) == {240}
    by_document = whole.tables["document_stats"].query("layer == 0")["n_tokens"]
    assert by_document.sum() == 240
    counted = whole.tables["norm_histograms"].groupby(norms.index.names)["count"].sum()
    assert counted.sort_index().equals(norms[norms > 0].sort_index().rename("count"))


def test_the_manifest_says_everything(whole):
    manifest = whole.manifest
    page = SCHEMA_PAGE.read_text(encoding="utf-8")
    for entry in ("model", "corpus", "parity"):
        row = re.search(rf"^\| {entry} \| (.+) \|$", page, re.MULTILINE).group(1)
        outer = re.sub(r"\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]", "", row)
        outer = outer.split("anatomy:")[0] + ("anatomy" if "anatomy:" in outer else "")
        named = {re.split(r"[: ]", word.strip())[0] for word in outer.split(",")}
        assert named <= set(manifest[entry]), entry
    top = {"schema", "geomprobe", "command", "created", "seed", "versions", "timings", "files", "probes"}
    assert top <= set(manifest)
    layer = {
        "layer",
        "module",
        "q_heads",
        "kv_heads",
        "head_dim",
        "window",
        "scale",
        "softcap",
        "learned_sinks",
        "causal",
        "part",
    }
    assert all(set(entry) == layer | {"stages", "q_norm", "k_norm"} for entry in manifest["model"]["anatomy"])
    assert [entry["window"] for entry in manifest["model"]["anatomy"]] == [40, None]
    assert manifest["model"]["source"] == "object"
    assert manifest["model"]["dtype"] == "float32"
    assert manifest["corpus"]["name"] == "tales"
    assert manifest["corpus"]["documents"] == ["first", "second"]
    assert manifest["corpus"]["bos"] is True
    assert manifest["parity"]["ok"] is True
    assert manifest["parity"]["max_abs_output"] == 0
    assert list(manifest["probes"]) == [
        "norms",
        "gains",
        "logits",
        "sinks",
        "class_attention",
        "loss",
        "split",
        "values",
        "order",
        "massive",
    ]
    assert {"load", "corpus", "parity", "pass", "tables"} <= set(manifest["timings"])
    assert "NaN" not in (whole.path / "run.json").read_text(encoding="utf-8")


def test_files_are_named_by_their_sha256(whole):
    files = whole.manifest["files"]
    assert set(files) == {f"tables/{name}.parquet" for name in whole.tables}
    assert all(sha256_of(whole.path / name) == sha256 for name, sha256 in files.items())


def test_the_page_is_there_and_the_state_is_gone(whole):
    assert "<html" in (whole.path / "report.html").read_text(encoding="utf-8")
    assert (whole.path / "report.md").stat().st_size > 0
    assert list((whole.path / "figures").glob("*.png"))
    assert not (whole.path / "state").exists()


def test_a_report_can_be_drawn_anew(whole):
    before = (whole.path / "report.html").read_text(encoding="utf-8")
    (whole.path / "report.html").unlink()
    assert geomprobe.report(whole.path, quiet=True) == whole.path / "report.html"
    assert (whole.path / "report.html").read_text(encoding="utf-8") == before


def test_parity_stands_in_its_table(whole):
    table = whole.tables["parity"]
    assert table["layer"].tolist() == [-1, 0, 1]
    assert table["ok"].all()


# ------------------------------------------------------------------ the package's names
def test_public_names_are_no_submodules(whole):
    """A submodule that is imported becomes an attribute of the package and would hide a function of its name."""
    assert whole is not None  # an analyze has run
    with torch.no_grad(), geomprobe.capture(tiny_model("llama")):
        pass
    submodules = {module.name for module in pkgutil.iter_modules(geomprobe.__path__)}
    for name in sorted(submodules - {"__main__"}):
        importlib.import_module(f"geomprobe.{name}")
    for name in geomprobe.__all__:
        assert name not in submodules
        assert not isinstance(getattr(geomprobe, name), types.ModuleType)
        if name != "__version__":
            home = importlib.import_module(geomprobe._HOMES[name])
            assert getattr(geomprobe, name) is getattr(home, name)
            assert callable(getattr(geomprobe, name))


def test_capture_works_after_an_analyze(whole):
    assert whole.manifest["parity"]["ok"]
    model = tiny_model("llama")
    with torch.no_grad(), geomprobe.capture(model) as seen:
        model(torch.arange(3, 20)[None])
    assert [record.layer for record in seen] == [0, 1]
