"""run.json: written whole or not at all, and what is said where it cannot be read."""

import hashlib
import json
from pathlib import Path

import pytest

from geomprobe.errors import RunError
from geomprobe.run.manifest import SCHEMA, read_manifest, sha256_of, write_manifest


def test_round_trip(tmp_path):
    manifest = {"schema": SCHEMA, "model": {"name": "google/gemma-2b", "anatomy": [{"window": None, "scale": 0.0625}]}}
    manifest["corpus"] = {"documents": ["Ångström", "‘so’", "名前"]}
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]
    assert "名前" in (tmp_path / "run.json").read_text(encoding="utf-8")  # a person can read it


def test_an_older_manifest_is_replaced(tmp_path):
    for seed in (0, 1):
        write_manifest(tmp_path, {"schema": SCHEMA, "seed": seed})
    assert read_manifest(tmp_path)["seed"] == 1


def test_it_appears_by_rename(tmp_path, monkeypatch):
    """A process that dies while it writes leaves no run.json."""

    def fail(_self, _target):
        raise OSError("killed")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="killed"):
        write_manifest(tmp_path, {"schema": SCHEMA})
    assert not (tmp_path / "run.json").exists()


def test_a_missing_folder(tmp_path):
    with pytest.raises(
        RunError, match=r"^There is no folder '.*nowhere'; give the folder that `geomprobe analyze` printed"
    ):
        read_manifest(tmp_path / "nowhere")


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "run.json"
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match=r"^There is no folder '.*run\.json'"):
        read_manifest(file)


def test_a_folder_without_a_manifest(tmp_path):
    (tmp_path / "tables").mkdir()
    with pytest.raises(
        RunError, match=r"is not a finished run: it has no run\.json, which `geomprobe analyze` writes last"
    ):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1,}', "\x00"])
def test_bad_json(tmp_path, text):
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"run\.json' is not valid JSON \(.*\); analyze the model again\."):
        read_manifest(tmp_path)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(RunError, match=r"run\.json' is not valid JSON"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("content", "found"), [({"schema": 2}, "2"), ({"schema": "1"}, "'1'"), ({}, "None"), ([], "None"), (1, "None")]
)
def test_another_schema(tmp_path, content, found):
    (tmp_path / "run.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RunError, match=rf"has schema {found}; this geomprobe reads schema {SCHEMA}: analyze again\."):
        read_manifest(tmp_path)


@pytest.mark.parametrize("size", [0, 5, (1 << 20) + 3])
def test_sha256(tmp_path, size):
    file = tmp_path / "file"
    data = bytes(range(256)) * (size // 256 + 1)
    file.write_bytes(data[:size])
    assert sha256_of(file) == hashlib.sha256(data[:size]).hexdigest()
