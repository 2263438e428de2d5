import json

import pytest

from geomprobe.errors import ModelNotFound
from geomprobe.models.folder import has_tokenizer, read_config, weight_files


def test_a_sound_folder(served_gemma):
    assert read_config(served_gemma)["model_type"] == "gemma"
    assert [file.name for file in weight_files(served_gemma)] == ["model.safetensors"]
    assert has_tokenizer(served_gemma)


def test_no_config_is_one_sentence(tmp_path):
    with pytest.raises(ModelNotFound, match=r"has no config.json; give the folder that holds config.json, weights and"):
        read_config(tmp_path)


def test_a_folder_with_a_gguf_file_points_to_it(tmp_path):
    (tmp_path / "it.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match=r"has no config.json; give the GGUF file in it instead: '.*it.gguf'"):
        read_config(tmp_path)


@pytest.mark.parametrize(("content", "said"), [("{", "is not valid JSON"), ("[]", "is not a JSON object")])
def test_a_damaged_config_is_one_sentence(tmp_path, content, said):
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelNotFound, match=f"{said}.*; get the checkpoint again"):
        read_config(tmp_path)


def test_no_weights_is_one_sentence(gemma):
    (gemma / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"has no model.safetensors: it has no weights at all; give one"):
        weight_files(gemma)


def test_pickled_weights_are_never_loaded(gemma):
    (gemma / "model.safetensors").rename(gemma / "pytorch_model.bin")
    with pytest.raises(ModelNotFound, match=r"it has pytorch_model.bin, but pickled weights are never loaded"):
        weight_files(gemma)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content[: len(content) // 2], "incomplete metadata"),
        (lambda content: content[:5], "header too small"),
        (lambda content: b"\xff" * 8 + content[8:], "header too large"),
        (lambda content: content[:8] + b"#" + content[9:], "invalid JSON in header"),
        (lambda content: content + b"more", "incomplete metadata"),
        (lambda _content: b"", "header too small"),
    ],
)
def test_damaged_weights_are_one_sentence(gemma, damage, said):
    file = gemma / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ModelNotFound, match=rf"model.safetensors' are damaged or unfinished \(.*{said}.*\); get them"):
        weight_files(gemma)


def shards(folder, *names):
    index = {"weight_map": {f"weight{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def test_shards_are_found_through_their_index(gemma):
    (gemma / "model.safetensors").rename(gemma / "model-00001-of-00001.safetensors")
    shards(gemma, "model-00001-of-00001.safetensors", "model-00001-of-00001.safetensors")
    assert [file.name for file in weight_files(gemma)] == ["model-00001-of-00001.safetensors"]


def test_a_missing_shard_is_one_sentence(gemma):
    (gemma / "model.safetensors").unlink()
    shards(gemma, "model-00001-of-00001.safetensors")
    with pytest.raises(ModelNotFound, match=r"are incomplete: model-00001-of-00001.safetensors is missing; get it"):
        weight_files(gemma)


def test_an_index_of_nothing_is_one_sentence(gemma):
    (gemma / "model.safetensors").unlink()
    (gemma / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelNotFound, match=r"index.json' lists no weights; get the checkpoint again"):
        weight_files(gemma)


def test_a_tokenizers_settings_alone_are_no_tokenizer(gemma):
    (gemma / "tokenizer.json").unlink()
    assert not has_tokenizer(gemma)
