"""The folder of a training: whole or not there, whatever it was killed at, and never another's files."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from geomprobe.errors import RunError
from geomprobe.lab.folder import BEGUN, STATE, STEPS, WHOLE, TrainingFolder, write_json

ABOUT = {"arm": "A1"}


class Killed(BaseException):
    """What stands for a kill: nothing catches it."""


class Model:
    """Writes one file of a checkpoint."""

    def __init__(self, weights="weights"):
        self.weights = weights

    def save_pretrained(self, folder):
        (Path(folder) / "model.safetensors").write_text(self.weights, encoding="utf-8")


def kill(*_args, **_kwargs):
    raise Killed("planted")


@pytest.fixture
def folder(tmp_path):
    """A folder that was begun."""
    made = TrainingFolder(tmp_path / "run")
    assert made.open("print", ABOUT, overwrite=False) is False
    return made


def state_of(step):
    return {"step": step, "model": {"weight": torch.full((3,), float(step))}, "losses": [{"loss": float("nan")}]}


def names(path):
    return sorted(found.name for found in path.iterdir())


# ---------------------------------------------------------------------- taking it up
def test_it_is_begun_with_what_it_is_about(folder):
    assert json.loads((folder.path / BEGUN).read_text(encoding="utf-8")) == {"fingerprint": "print", "arm": "A1"}
    assert folder.finished is None
    assert folder.load_state() is None
    assert folder.state_step == 0
    assert folder.steps == []


def test_the_same_training_is_taken_up(folder):
    folder.save_state(3, state_of(3))
    assert folder.open("print", {"arm": "unread"}, overwrite=False) is False
    assert folder.load_state()["step"] == 3
    assert json.loads((folder.path / BEGUN).read_text(encoding="utf-8"))["arm"] == "A1"


def test_a_finished_one_is_left_alone(folder):
    folder.save_step(0, Model(), None, {"step": 0})
    folder.finish({"step": 0})
    before = {file: file.read_bytes() for file in folder.path.rglob("*") if file.is_file()}
    assert folder.open("print", ABOUT, overwrite=False) is True
    assert folder.finished == {"step": 0}
    assert {file: file.read_bytes() for file in folder.path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("finished", [True, False])
def test_another_recipe_is_in_the_way(folder, finished):
    if finished:
        folder.finish({})
    with pytest.raises(RunError, match=r"run' holds a training of another recipe; give another --out, or --overwrite"):
        folder.open("other", ABOUT, overwrite=False)
    assert json.loads((folder.path / BEGUN).read_text(encoding="utf-8"))["fingerprint"] == "print"


@pytest.mark.parametrize("overwrite", [True, False])
def test_other_files_are_in_the_way(tmp_path, overwrite):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(RunError, match="is not empty and holds no training of geomprobe; give another --out"):
        TrainingFolder(tmp_path).open("print", ABOUT, overwrite=overwrite)
    assert names(tmp_path) == ["thesis.txt"]


@pytest.mark.parametrize("note", ["", "{", "[1]", "null", '"print"', "\x00"])
def test_a_damaged_note_is_other_files(tmp_path, note):
    (tmp_path / BEGUN).write_text(note, encoding="utf-8")
    with pytest.raises(RunError, match="holds no training of geomprobe"):
        TrainingFolder(tmp_path).open("print", ABOUT, overwrite=True)
    assert names(tmp_path) == [BEGUN]


def test_a_file_is_in_the_way(tmp_path):
    (tmp_path / "run").write_text("text", encoding="utf-8")
    with pytest.raises(RunError, match="run' is a file; --out must name a folder"):
        TrainingFolder(tmp_path / "run").open("print", ABOUT, overwrite=True)
    with pytest.raises(RunError, match=r"Cannot make the folder .*: Not a directory\."):
        TrainingFolder(tmp_path / "run" / "in").open("print", ABOUT, overwrite=False)


def test_an_empty_folder_is_taken(tmp_path):
    assert TrainingFolder(tmp_path).open("print", ABOUT, overwrite=False) is False
    assert names(tmp_path) == [BEGUN, STEPS]


@pytest.mark.parametrize("fingerprint", ["print", "other"])
@pytest.mark.parametrize("finished", [True, False])
def test_overwriting_drops_what_was_there(folder, fingerprint, finished):
    folder.save_state(2, state_of(2))
    folder.save_step(2, Model(), None, {"step": 2})
    if finished:
        folder.finish({"step": 2})
    assert folder.open(fingerprint, ABOUT, overwrite=True) is False
    assert names(folder.path) == [BEGUN, STEPS]
    assert (folder.load_state(), folder.finished, folder.steps) == (None, None, [])
    assert json.loads((folder.path / BEGUN).read_text(encoding="utf-8"))["fingerprint"] == fingerprint


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_while_it_was_overwritten(folder, monkeypatch, nth):
    folder.save_state(2, state_of(2))
    folder.save_step(2, Model(), None, {"step": 2})
    write_json(folder.path / WHOLE, {"step": 2})
    calls = []

    def watched(whole):
        def drop(*args, **kwargs):
            calls.append(args)
            if len(calls) == nth:
                raise Killed("planted")
            whole(*args, **kwargs)

        return drop

    monkeypatch.setattr(shutil, "rmtree", watched(shutil.rmtree))
    monkeypatch.setattr(Path, "unlink", watched(Path.unlink))
    with pytest.raises(Killed, match="planted"):
        folder.open("other", ABOUT, overwrite=True)
    monkeypatch.undo()
    assert folder.finished is None or folder.steps == [2]
    with pytest.raises(RunError, match="holds a training of another recipe"):
        folder.open("other", ABOUT, overwrite=False)
    assert folder.open("other", ABOUT, overwrite=True) is False
    assert names(folder.path) == [BEGUN, STEPS]


@pytest.mark.parametrize("method", ["mkdir", "write_text", "replace"])
@pytest.mark.parametrize("nth", [1, 2])
def test_killed_while_it_began(tmp_path, monkeypatch, method, nth):
    run, whole, calls = tmp_path / "run", getattr(Path, method), []

    def killed(self, *args, **kwargs):
        calls.append(self)
        if len(calls) == nth:
            raise Killed("planted")
        return whole(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, method, killed)
        with suppress(Killed):
            TrainingFolder(run).open("print", ABOUT, overwrite=False)
    assert TrainingFolder(run).open("print", ABOUT, overwrite=False) is False
    assert names(run) == [BEGUN, STEPS]


def test_what_a_killed_run_was_writing_is_dropped(folder):
    folder.save_state(1, state_of(1))
    folder.save_step(0, Model(), None, {"step": 0})
    (folder.path / STEPS / ".00000001.part").mkdir()
    (folder.path / STEPS / ".00000001.part" / "model.safetensors").write_text("half", encoding="utf-8")
    for part in (".metrics.parquet.part", ".training.json.part", f"{STATE}/.00000002.part"):
        (folder.path / part).write_text("half", encoding="utf-8")
    assert folder.open("print", ABOUT, overwrite=False) is False
    assert names(folder.path) == [BEGUN, STATE, STEPS]
    assert names(folder.path / STATE) == ["00000001.pt"]
    assert names(folder.path / STEPS) == ["00000000"]


# ---------------------------------------------------------------------- the state
def test_the_newest_state_is_kept_alone(folder):
    for step in (1, 9, 10, 100):
        folder.save_state(step, state_of(step))
        assert names(folder.path / STATE) == [f"{step:08d}.pt"]
        found = folder.load_state()
        assert found["step"] == folder.state_step == step
        assert torch.equal(found["model"]["weight"], torch.full((3,), float(step)))


def test_a_state_is_written_again(folder):
    folder.save_state(4, state_of(4))
    folder.save_state(4, {"step": 4, "again": True})
    assert folder.load_state() == {"step": 4, "again": True}


def test_of_two_states_the_later_is_read(folder):
    folder.save_state(9, state_of(9))
    earlier = (folder.path / STATE / "00000009.pt").read_bytes()
    folder.save_state(10, state_of(10))
    (folder.path / STATE / "00000009.pt").write_bytes(earlier)  # killed before it was dropped
    assert folder.load_state()["step"] == folder.state_step == 10


@pytest.mark.parametrize(
    ("place", "name"), [("torch", "save"), ("os", "fsync"), ("pathlib.Path", "replace"), ("pathlib.Path", "unlink")]
)
def test_killed_while_a_state_was_written(folder, monkeypatch, place, name):
    folder.save_state(1, state_of(1))
    with monkeypatch.context() as patch:
        patch.setattr(f"{place}.{name}", kill)
        with pytest.raises(Killed, match="planted"):
            folder.save_state(2, state_of(2))
    there = 2 if name == "unlink" else 1
    assert folder.load_state()["step"] == there
    assert folder.open("print", ABOUT, overwrite=False) is False
    assert folder.load_state()["step"] == there
    assert not any(file.name.endswith(".part") for file in folder.path.rglob("*"))
    folder.save_state(3, state_of(3))
    assert names(folder.path / STATE) == ["00000003.pt"]


def test_a_state_is_on_the_disk_before_it_has_its_name(folder, monkeypatch):
    seen = []
    sync = os.fsync

    def watched(descriptor):
        seen.append((names(folder.path / STATE), os.fstat(descriptor).st_size))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    folder.save_state(1, state_of(1))
    assert [found for found, _ in seen] == [[".00000001.part"]]
    assert seen[0][1] == (folder.path / STATE / "00000001.pt").stat().st_size  # all of it


def test_what_has_its_name_is_on_the_disk(folder, tmp_path, monkeypatch):
    """Else a folder could look whole after the power failed, and hold empty files."""
    synced = set()
    sync = os.fsync

    def watched(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}", encoding="utf-8")
    folder.save_step(1, Model(), tokenizer, {"step": 1})
    folder.finish({"step": 1})
    made = [*folder.step_path(1).iterdir(), folder.path / WHOLE]
    assert len(made) == 4
    assert {file.stat().st_ino for file in made} <= synced


# ---------------------------------------------------------------------- checkpoints and the end
def test_a_step_holds_checkpoint_tokenizer_and_note(folder, tmp_path):
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}", encoding="utf-8")
    folder.save_step(12, Model(), tokenizer, {"step": 12})
    folder.save_step(2, Model(), tokenizer, {"step": 2})
    assert folder.steps == [2, 12]
    assert names(folder.step_path(12)) == ["model.safetensors", "tokenizer.json", WHOLE]
    assert json.loads((folder.step_path(12) / WHOLE).read_text(encoding="utf-8")) == {"step": 12}
    assert names(folder.path / STEPS) == ["00000002", "00000012"]


def test_a_saved_step_is_not_written_again(folder):
    folder.save_step(1, Model("first"), None, {"step": 1})
    folder.save_step(1, Model("second"), None, {"step": 1})
    assert (folder.step_path(1) / "model.safetensors").read_text(encoding="utf-8") == "first"


@pytest.mark.parametrize(
    ("place", "name"),
    [("tests.lab.test_folder.Model", "save_pretrained"), ("pathlib.Path", "replace"), ("pathlib.Path", "rename")],
)
def test_a_step_comes_by_rename(folder, monkeypatch, place, name):
    owner = Model if place.endswith("Model") else Path
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        with pytest.raises(Killed, match="planted"):
            folder.save_step(1, Model("half"), None, {"step": 1})
    assert folder.steps == []
    assert not folder.step_path(1).exists()
    folder.save_step(1, Model("whole"), None, {"step": 1})  # over what was left, and without open() between
    assert (folder.step_path(1) / "model.safetensors").read_text(encoding="utf-8") == "whole"
    assert names(folder.path / STEPS) == ["00000001"]


def test_the_end_drops_the_state(folder):
    folder.save_state(5, state_of(5))
    folder.finish({"step": 5})
    assert names(folder.path) == [BEGUN, STEPS, WHOLE]
    assert folder.finished == {"step": 5}


@pytest.mark.parametrize("name", ["write_text", "replace"])
def test_killed_at_the_end(folder, monkeypatch, name):
    folder.save_state(5, state_of(5))
    with monkeypatch.context() as patch:
        patch.setattr(Path, name, kill)
        with pytest.raises(Killed, match="planted"):
            folder.finish({"step": 5})
    assert folder.finished is None
    assert folder.open("print", ABOUT, overwrite=False) is False
    assert folder.load_state()["step"] == 5
    assert names(folder.path) == [BEGUN, STATE, STEPS]


def test_json_is_written_by_rename(tmp_path, monkeypatch):
    file = tmp_path / "note.json"
    write_json(file, {"name": "é"})
    assert file.read_text(encoding="utf-8") == '{\n  "name": "é"\n}\n'
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kill)
        with pytest.raises(Killed, match="planted"):
            write_json(file, {"name": "new"})
    assert json.loads(file.read_text(encoding="utf-8")) == {"name": "é"}
    write_json(file, {"name": "new"})
    assert names(tmp_path) == ["note.json"]
