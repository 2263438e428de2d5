"""One pass, however it is cut: batches, stops, failures."""

import json
import re
import types

import pandas as pd
import pytest

import geomprobe
from geomprobe import observation
from geomprobe.attention.batch import Visibilities
from geomprobe.errors import ParityError, RunError
from geomprobe.progress import Bar
from geomprobe.run.manifest import read_manifest
from tests.api.shared import SHAPE, assert_same_tables, stop_at

# ------------------------------------------------------------------ one pass, however it is cut
BIN = 2 ** (1 / 32) - 1  # a length that rounding moves over an edge moves a quantile by a bin


def test_batch_size_changes_nothing(analyze, tmp_path):
    one, three = (analyze(out=tmp_path / str(size), batch_size=size) for size in (1, 3))
    assert (one.manifest["batch_size"], three.manifest["batch_size"]) == (1, 3)
    assert list(one.tables) == list(three.tables)
    for name, table in one.tables.items():
        other = three.tables[name]
        if name == "norm_histograms":
            keys = ["layer", "vector", "head", "stage", "token_class"]
            pd.testing.assert_series_equal(table.groupby(keys)["count"].sum(), other.groupby(keys)["count"].sum())
            continue
        binned = [column for column in table if re.fullmatch(r"p\d+", column)]
        pd.testing.assert_frame_equal(table[binned], other[binned], rtol=1.1 * BIN, obj=f"table {name}")
        rest = table.columns.difference(binned)
        pd.testing.assert_frame_equal(table[rest], other[rest], rtol=1e-4, atol=1e-5, obj=f"table {name}")


def test_nothing_is_kept_from_batch_to_batch(analyze, model_of, monkeypatch):
    """Masks belong to one forward pass: what is remembered of them does not grow with the text."""
    sizes = []
    forget = Visibilities.forget

    def counted(self):
        sizes.append(len(self._kept))
        forget(self)

    monkeypatch.setattr(Visibilities, "forget", counted)
    analyze(model_of("gemma3"), batch_size=1)
    assert len(sizes) == SHAPE["windows"]
    assert len(set(sizes[1:])) == 1


@pytest.fixture
def stop(monkeypatch):
    def at(done, error=KeyboardInterrupt):
        monkeypatch.setattr(Bar, "update", stop_at(done, error))
        monkeypatch.setattr(observation, "SAVE_EVERY", -1.0)  # save after every batch

    def go_on():
        monkeypatch.undo()
        monkeypatch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")

    return types.SimpleNamespace(at=at, go_on=go_on)


def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(analyze, stop, tmp_path, capfd):
    expected = analyze(out=tmp_path / "in one go")
    stop.at(4)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        analyze()
    folder = tmp_path / "run"
    assert not (folder / "run.json").exists()
    assert json.loads((folder / "state" / "progress.json").read_text(encoding="utf-8"))["done"] == 2
    with pytest.raises(RunError, match="is not a finished run"):
        geomprobe.open_run(folder)

    stop.go_on()
    capfd.readouterr()
    run = analyze(quiet=False)
    assert "going on from window 2" in capfd.readouterr().err
    assert_same_tables(run, expected, check_exact=True)
    assert not (folder / "state").exists()
    assert run.manifest["fingerprint"] == expected.manifest["fingerprint"]
    assert run.manifest["files"] == expected.manifest["files"]


def test_a_run_may_be_stopped_again_and_again(analyze, stop, tmp_path):
    expected = analyze(out=tmp_path / "in one go", batch_size=1)
    for at in (2, 3, 5):
        stop.at(at)
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            analyze(batch_size=1)
    assert len(list((tmp_path / "run" / "state").glob("state-*.safetensors"))) == 1
    stop.go_on()
    assert_same_tables(analyze(batch_size=1), expected, check_exact=True)


def test_other_settings_do_not_go_on_from_it(analyze, stop):
    stop.at(4)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        analyze()
    stop.go_on()
    with pytest.raises(RunError, match="holds an unfinished run with other settings"):
        analyze(windows=4)
    assert analyze(windows=4, overwrite=True).manifest["corpus"]["n_windows"] == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_without_a_saved_state_nothing_is_left(analyze, monkeypatch, tmp_path, error):
    monkeypatch.setattr(Bar, "update", stop_at(2, error("tripped")))
    with pytest.raises(error, match="tripped"):
        analyze()
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_comes_last(analyze, monkeypatch, tmp_path):
    seen = []

    def fail(folder, manifest):
        seen.append(sorted(file.name for file in folder.rglob("*") if file.is_file()))
        assert set(manifest["files"]) == {f"tables/{file.name}" for file in (folder / "tables").iterdir()}
        raise OSError("the disk is full")

    monkeypatch.setattr("geomprobe.run.store.write_manifest", fail)
    with pytest.raises(OSError, match="the disk is full"):
        analyze()
    assert "norms.parquet" in seen[0]
    assert "run.json" not in seen[0]
    assert not (tmp_path / "run").exists()


def test_a_page_that_fails_costs_the_page_only(analyze, monkeypatch, tmp_path):
    def fail(_run):
        raise ZeroDivisionError("tripped")

    monkeypatch.setattr("geomprobe.pages.page.write_page", fail)
    with pytest.raises(ZeroDivisionError, match="tripped"):
        analyze()
    assert read_manifest(tmp_path / "run")["parity"]["ok"]
    assert "norms" in geomprobe.open_run(tmp_path / "run").tables


def test_a_capture_that_is_off_stops_the_run(analyze, monkeypatch, tmp_path):
    from geomprobe.attention import seam
    from geomprobe.attention.call import read_call

    def lying(*given):
        call = read_call(*given)
        return type(call)(**{**vars(call), "scale": call.scale * 1.01})

    monkeypatch.setattr(seam, "read_call", lying)
    with pytest.raises(ParityError, match="Parity failed at layer 0"):
        analyze()
    assert list(tmp_path.iterdir()) == []
