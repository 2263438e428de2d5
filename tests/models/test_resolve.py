import hashlib
import json

import pytest

from geomprobe.errors import InvalidParameter, ModelNotFound
from geomprobe.models.load import load
from geomprobe.models.packaged import PAIR, packaged_folder
from geomprobe.models.resolve import Checkpoint, resolve


def test_a_folder_is_itself(gemma):
    found = resolve(str(gemma))
    weights = (gemma / "model.safetensors").read_bytes()
    assert found == Checkpoint(str(gemma), gemma, "folder", "gemma", None, hashlib.sha256(weights).hexdigest())
    assert found.slug == "gemma"


def test_a_folder_may_be_named_from_here_or_from_home(gemma, monkeypatch):
    monkeypatch.chdir(gemma.parent)
    monkeypatch.setenv("HOME", str(gemma.parent))
    assert resolve("gemma").path == resolve("./gemma/").path == resolve("~/gemma").path == gemma


def test_a_folder_goes_before_an_alias(gemma, monkeypatch):
    gemma.rename(gemma.with_name("gpt2"))
    monkeypatch.chdir(gemma.parent)
    assert resolve("gpt2").source == "folder"


def test_a_folder_without_config_does_not_hide_an_alias(tmp_path, monkeypatch):
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr("geomprobe.models.hub.download", lambda hub_id, **_: asked.append(hub_id) or (_ for _ in ()))
    with pytest.raises(AttributeError, match="path"):
        resolve("gpt2")
    assert asked == ["openai-community/gpt2"]


def test_a_folder_without_config_is_one_sentence(tmp_path):
    with pytest.raises(ModelNotFound, match=r"has no config.json; give the folder"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    "name", ["./nothing", "~/nothing", "../nothing", "/nothing/here", "nothing.gguf", "a/b/c", "", " "]
)
def test_a_path_that_is_not_there_is_one_sentence(name):
    with pytest.raises(ModelNotFound, match=r"There is no file or folder '.*'; check the path, or give a hub id"):
        resolve(name)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody-of-that-name"])
def test_a_name_that_no_file_can_have_is_one_sentence(name):
    with pytest.raises(ModelNotFound, match=r"Unknown model|There is no file or folder"):
        resolve(name)


def test_a_file_that_is_no_gguf_is_one_sentence(gemma):
    with pytest.raises(ModelNotFound, match=r"model.safetensors' is a file, but not a .gguf file; give the folder"):
        resolve(str(gemma / "model.safetensors"))


def test_an_unknown_bare_name_is_one_sentence():
    with pytest.raises(ModelNotFound, match=r"Unknown model 'gemma-2c'\. Did you mean 'gemma-2b'\? Give a short name"):
        resolve("gemma-2c")


def test_a_revision_belongs_to_the_hub(gemma):
    with pytest.raises(InvalidParameter, match=r"revision must be left out for the local path '.*'; got 'main'\."):
        resolve(str(gemma), revision="main")
    with pytest.raises(InvalidParameter, match=r"left out for 'smollm2-135m', which a package index serves; got 'v1'"):
        resolve("smollm2-135m", revision="v1")


@pytest.mark.parametrize(
    ("name", "source", "given", "slug"),
    [
        ("google/gemma-2b", "hub", "google/gemma-2b", "google--gemma-2b"),
        ("qwen2.5-0.5b", "hub", "Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"),
        ("/some/where/My model (1)/", "folder", "My model (1)", "My-model-1"),
        ("../..", "folder", "..", "model"),
        ("x/a.b.gguf", "gguf", "a.b.gguf", "a.b"),
    ],
)
def test_a_slug_can_name_a_folder(tmp_path, name, source, given, slug):
    assert Checkpoint(name, tmp_path, source, given).slug == slug


# ------------------------------------------------------------------ what comes with the package
@pytest.mark.parametrize("name", PAIR)
def test_a_packaged_checkpoint_is_found_without_a_network(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = resolve(name)
    assert (found.name, found.source, found.id, found.slug) == (name, "package", name, name)
    assert found.path == packaged_folder(name)
    assert len(found.sha256) == 64
    with pytest.raises(InvalidParameter, match="revision must be left out"):
        resolve(name, revision="main")


def test_packaged_checkpoints_are_twins_that_plain_transformers_loads():
    notes = [json.loads((packaged_folder(name) / "training.json").read_text(encoding="utf-8")) for name in PAIR]
    assert notes[0]["pair"] == notes[1]["pair"]
    assert [note["arm"] for note in notes] == ["A0", "A1"]
    weights = [file for name in PAIR for file in packaged_folder(name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in weights) < 20e6
    for name, family in zip(PAIR, ("llama", "qwen3"), strict=True):
        model = load(resolve(name)).model
        assert model.config.model_type == family
        assert "held-out loss" in (packaged_folder(name) / "README.md").read_text(encoding="utf-8")
