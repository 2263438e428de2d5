"""The folder of a run in the making: what is taken up, what is refused, what is left behind."""

import hashlib
import json

import pandas as pd
import pytest

from geomprobe.errors import RunError
from geomprobe.run.manifest import SCHEMA
from geomprobe.run.reading import open_run
from geomprobe.run.store import RunFolder, open_folder

TABLES = {
    "norms": pd.DataFrame({"layer": [0, 1], "token_class": ["all", "first"], "mean": [1.5, float("nan")], "n": [3, 0]}),
    "gains": pd.DataFrame({"layer": pd.Series([], dtype="int64"), "axis": pd.Series([], dtype=str)}),
}


def take(path, fingerprint="abc", *, named=True, overwrite=False):
    return open_folder(path, fingerprint, named=named, overwrite=overwrite)


def finished(path, fingerprint="abc"):
    folder = take(path, fingerprint)
    files = folder.write_tables(TABLES)
    folder.finish({"schema": SCHEMA, "geomprobe": "0.1.0", "fingerprint": fingerprint, "files": files})
    return folder


def stopped(path, fingerprint="abc"):
    folder = take(path, fingerprint)
    (folder.state / "progress.json").write_text("{}", encoding="utf-8")
    return folder


def content(path):
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


# ------------------------------------------------------------------ taking a folder
@pytest.mark.parametrize("there", [False, True])
def test_a_new_folder_is_made(tmp_path, there):
    path = tmp_path / "runs" / "deep" / "one"
    if there:
        path.mkdir(parents=True)
    folder = take(path)
    assert (folder.path, folder.finished) == (path, False)
    assert folder.state.is_dir()
    assert not (path / "run.json").exists()


def test_a_finished_run_of_the_same_settings_is_found(tmp_path):
    finished(tmp_path / "run")
    before = content(tmp_path)
    folder = take(tmp_path / "run", named=False)
    assert folder.finished
    assert content(tmp_path) == before


@pytest.mark.parametrize(("fingerprint", "named"), [("abc", True), ("other", True), ("other", False)])
def test_a_finished_run_is_in_the_way(tmp_path, fingerprint, named):
    finished(tmp_path / "run")
    before = content(tmp_path)
    with pytest.raises(
        RunError, match=r"run' holds a finished run; give another --out, or --overwrite to replace it\."
    ):
        take(tmp_path / "run", fingerprint, named=named)
    assert content(tmp_path) == before


# JSON that is no object has no .get, and the person sees a traceback.
@pytest.mark.parametrize("text", ["{", "[]", "1", '{"schema": 7}'])
def test_a_damaged_manifest_is_in_the_way(tmp_path, text):
    finished(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(text, encoding="utf-8")
    before = content(tmp_path)
    with pytest.raises(RunError, match="give another --out"):
        take(tmp_path / "run", named=False)
    assert content(tmp_path) == before


@pytest.mark.parametrize("named", [True, False])
def test_an_unfinished_run_of_the_same_settings_is_taken_up(tmp_path, named):
    stopped(tmp_path / "run")
    folder = take(tmp_path / "run", named=named)
    assert not folder.finished
    assert (folder.state / "progress.json").exists()


def test_an_unfinished_run_of_other_settings_is_in_the_way(tmp_path):
    stopped(tmp_path / "run")
    before = content(tmp_path)
    said = r"run' holds an unfinished run with other settings; give another --out, or --overwrite to drop it\."
    with pytest.raises(RunError, match=said):
        take(tmp_path / "run", "other")
    assert content(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_run_is_never_touched(tmp_path, overwrite):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    (tmp_path / "state").mkdir()
    before = content(tmp_path)
    said = "--overwrite will not delete it" if overwrite else "is not empty and holds no run of geomprobe"
    with pytest.raises(RunError, match=said):
        take(tmp_path, overwrite=overwrite)
    assert content(tmp_path) == before


# Any file named run.json makes a folder a run of ours, and --overwrite deletes it.
def test_a_run_of_another_tool_is_never_deleted(tmp_path):
    (tmp_path / "run.json").write_text('{"experiment": "theirs"}', encoding="utf-8")
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    before = content(tmp_path)
    with pytest.raises(RunError, match="--overwrite will not delete it"):
        take(tmp_path, overwrite=True)
    assert content(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_in_the_way(tmp_path, overwrite):
    file = tmp_path / "run"
    file.write_text("a file", encoding="utf-8")
    with pytest.raises(RunError, match=r"run' is a file; --out must name a folder\."):
        take(file, overwrite=overwrite)
    with pytest.raises(RunError, match=r"^Cannot make the folder '.*run/below': Not a directory\."):
        take(file / "below", overwrite=overwrite)
    assert file.read_text(encoding="utf-8") == "a file"


@pytest.mark.parametrize("make", [finished, stopped])
def test_overwrite_drops_a_run(tmp_path, make):
    make(tmp_path / "run", "other")
    folder = take(tmp_path / "run", overwrite=True)
    assert not folder.finished
    assert list(content(tmp_path / "run")) == ["state/begun.json"]
    assert json.loads((folder.state / "begun.json").read_text(encoding="utf-8")) == {"fingerprint": "abc"}


def test_overwrite_drops_a_run_of_the_same_settings(tmp_path):
    finished(tmp_path / "run")
    assert not take(tmp_path / "run", named=False, overwrite=True).finished


# Begun.json is not written by rename and is read without a net, so a
# process that is killed as it begins leaves a folder that later ones stop at with a traceback.
@pytest.mark.parametrize("text", ["", '{"finger', "[]"])
def test_a_damaged_note_of_what_was_begun(tmp_path, text):
    folder = take(tmp_path / "run")
    (folder.state / "begun.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match="--out"):
        take(tmp_path / "run")


# ------------------------------------------------------------------ leaving it
def test_abandon_removes_what_nobody_can_go_on_from(tmp_path):
    folder = take(tmp_path / "run")
    folder.write_tables(TABLES)
    folder.abandon()
    assert not (tmp_path / "run").exists()
    assert tmp_path.exists()


def test_abandon_keeps_what_a_stopped_run_can_go_on_from(tmp_path):
    folder = stopped(tmp_path / "run")
    before = content(tmp_path)
    folder.abandon()
    assert content(tmp_path) == before


def test_abandon_keeps_a_run_that_is_whole(tmp_path):
    """What fails after run.json is written (the page) costs the page and not the run."""
    folder = finished(tmp_path / "run")
    before = content(tmp_path)
    folder.abandon()
    assert content(tmp_path) == before
    assert "norms" in open_run(tmp_path / "run").tables


def test_finish_writes_the_manifest_and_drops_the_state(tmp_path):
    finished(tmp_path / "run")
    assert sorted(content(tmp_path / "run")) == ["run.json", "tables/gains.parquet", "tables/norms.parquet"]
    assert not (tmp_path / "run" / "state").exists()


# ------------------------------------------------------------------ tables
@pytest.mark.parametrize("csv", [False, True])
def test_tables_come_back_as_they_were(tmp_path, csv):
    folder = take(tmp_path / "run")
    files = folder.write_tables(TABLES, csv=csv)
    assert list(files) == ["tables/gains.parquet", "tables/norms.parquet"]
    for name, sha256 in files.items():
        assert sha256 == hashlib.sha256((folder.path / name).read_bytes()).hexdigest()
    folder.finish({"schema": SCHEMA})
    run = open_run(folder.path)
    for name, table in TABLES.items():
        pd.testing.assert_frame_equal(run.tables[name], table)
    assert sorted(file.name for file in folder.path.glob("tables/*.csv")) == (["gains.csv", "norms.csv"] if csv else [])
    if csv:
        assert pd.read_csv(folder.path / "tables" / "norms.csv")["n"].tolist() == [3, 0]


def test_tables_of_an_earlier_try_are_gone(tmp_path):
    folder = take(tmp_path / "run")
    folder.write_tables(TABLES)
    folder.write_tables({"sinks": TABLES["norms"]})
    assert [file.name for file in (folder.path / "tables").iterdir()] == ["sinks.parquet"]


def test_a_run_folder_is_a_value(tmp_path):
    assert RunFolder(tmp_path, "abc") == RunFolder(tmp_path, "abc")
    assert RunFolder(tmp_path, "abc").state == tmp_path / "state"
