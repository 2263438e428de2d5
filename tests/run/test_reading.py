"""Opening a finished run."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from geomprobe.errors import RunError
from geomprobe.run.manifest import SCHEMA
from geomprobe.run.reading import Run, Tables, open_run


@pytest.fixture
def run(tmp_path):
    (tmp_path / "tables").mkdir()
    for name in ("sinks", "norms", "sink_rates"):
        pd.DataFrame({"layer": [0, 1], "name": [name, name]}).to_parquet(tmp_path / "tables" / f"{name}.parquet")
    manifest = {"schema": SCHEMA, "model": {"name": "google/gemma-2b"}}
    (tmp_path / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    return open_run(str(tmp_path))


def test_a_run_is_opened(run, tmp_path):
    assert isinstance(run, Run)
    assert run.path == tmp_path
    assert run.name == "google/gemma-2b"
    assert run.manifest["schema"] == SCHEMA
    assert "manifest" not in repr(run)


def test_tables_are_a_mapping(run):
    assert list(run.tables) == ["norms", "sink_rates", "sinks"]
    assert len(run.tables) == 3
    assert "norms" in run.tables
    assert "nomrs" not in run.tables
    assert 3 not in run.tables
    assert repr(run.tables) == "Tables(norms, sink_rates, sinks)"
    assert {name: table["name"][0] for name, table in run.tables.items()} == {name: name for name in run.tables}
    assert run.tables.get("norms")["layer"].tolist() == [0, 1]


def test_a_table_is_read_once(run):
    assert run.tables["norms"] is run.tables["norms"]


def test_an_unknown_table(run):
    said = r"^This run has no table 'sink'\. Did you mean 'sinks'\? It has: norms, sink_rates, sinks\.$"
    with pytest.raises(RunError, match=said):
        run.tables["sink"]
    with pytest.raises(RunError, match=r"^This run has no table 'xyz'\. It has: norms, sink_rates, sinks\.$"):
        run.tables["xyz"]


def test_a_run_without_tables(tmp_path):
    tables = Tables(tmp_path / "tables")
    assert len(tables) == 0
    with pytest.raises(RunError, match=r"has no table 'norms'\. It has: none\.$"):
        tables["norms"]


@pytest.mark.parametrize("damage", ["missing", "unfinished"])
def test_what_is_no_run_is_refused(run, damage):
    path = run.path
    if damage == "missing":
        path = path / "nowhere"
    else:
        (path / "run.json").unlink()
    with pytest.raises(RunError, match=r"no folder|not a finished run"):
        open_run(path)


def test_reading_needs_no_torch(run):
    code = (
        "import sys\n"
        "import geomprobe.run.reading, geomprobe.run.store, geomprobe.pages.page, geomprobe.figures.catalogue\n"
        "import geomprobe.tables\n"
        "from geomprobe import open_run\n"
        "assert len(open_run(sys.argv[1]).tables['norms']) == 2\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run.path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
