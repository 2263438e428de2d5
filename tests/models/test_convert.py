import json

import pytest
import torch
from safetensors.torch import load_file

from geomprobe.errors import ModelNotFound, UnsupportedModel
from geomprobe.models.convert import convert
from geomprobe.models.load import load
from geomprobe.models.resolve import Checkpoint

TEXT = "The old house stood at the end of the lane,\nand in 12 weeks no ship came — naïve."


@pytest.fixture
def tokenizer_json(served_gemma):
    return served_gemma / "tokenizer.json"


@pytest.fixture
def llama(gguf_file, tokenizer_json):
    return gguf_file.make_tiny_llama(len(json.loads(tokenizer_json.read_text(encoding="utf-8"))["model"]["vocab"]))


@pytest.fixture
def converted(gguf_file, llama, tokenizer_json, tmp_path):
    """Write the tiny Llama as a GGUF file and convert it; the folder."""

    def make(**options):
        path = gguf_file.write_gguf(tmp_path / "it.gguf", llama, tokenizer_json, **options)
        out = tmp_path / "out"
        out.mkdir()
        convert(path, out)
        return out

    return make


def loaded(folder, **options):
    return load(Checkpoint("it", folder, "gguf", "it.gguf"), **options)


def logits(model, n_tokens):
    ids = torch.arange(4, n_tokens)[None, ::7]
    with torch.no_grad():
        return model(ids).logits


@pytest.mark.parametrize(
    ("storage", "dtype"), [("float32", "float32"), ("float16", "float16"), ("bfloat16", "bfloat16")]
)
def test_what_the_file_holds_comes_back_bit_for_bit(converted, llama, storage, dtype):
    folder = converted(storage=storage)
    held = load_file(folder / "model.safetensors")
    for name, weight in llama.state_dict().items():
        kind = getattr(torch, dtype) if weight.ndim > 1 else torch.float32
        assert held[name].dtype == kind
        assert torch.equal(held[name], weight.to(kind))
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["dtype"] == dtype


def test_quantised_weights_are_unpacked_to_float32(converted, llama):
    held = load_file(converted(storage="q8_0") / "model.safetensors")
    for name, weight in llama.state_dict().items():
        assert held[name].dtype == torch.float32
        torch.testing.assert_close(held[name], weight, rtol=0, atol=0.01)


def test_the_converted_model_computes_what_the_model_did(converted, llama):
    model = loaded(converted()).model
    n_tokens = llama.config.vocab_size
    torch.testing.assert_close(logits(model, n_tokens), logits(llama, n_tokens), rtol=0, atol=1e-5)


def test_the_tokenizer_comes_along(converted, served_gemma):
    ours = loaded(converted()).tokenizer
    theirs = load(Checkpoint("it", served_gemma, "folder", "it")).tokenizer
    assert ours(TEXT).input_ids == theirs(TEXT).input_ids
    assert ours(TEXT).input_ids[0] == ours.bos_token_id
    assert ours(TEXT, return_offsets_mapping=True, add_special_tokens=False).offset_mapping[-1][1] == len(TEXT)


def test_nothing_is_printed_and_verbosity_is_as_before(converted, capfd):
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    converted()
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_an_architecture_that_cannot_be_read_is_one_sentence(converted):
    with pytest.raises(
        UnsupportedModel, match=r"cannot read the GGUF file 'it.gguf' of architecture 'grok' \(.*\); give"
    ):
        converted(architecture="grok")


def test_missing_weights_are_one_sentence(converted):
    with pytest.raises(ModelNotFound, match=r"lacks 1 weights of its model, the first 'model.layers.1.mlp.down_proj"):
        converted(without="blk.1.ffn_down.weight")


def test_rescaled_rotary_frequencies_are_not_dropped_in_silence(converted):
    with pytest.raises(UnsupportedModel, match=r"rescales its rotary frequencies, and transformers .* drops that"):
        converted(extra={"llama.rope.scaling.type": "yarn"})


def test_a_file_that_ends_early_is_one_sentence(gguf_file, llama, tokenizer_json, tmp_path):
    path = gguf_file.write_gguf(tmp_path / "it.gguf", llama, tokenizer_json)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelNotFound, match=r"is damaged or unfinished \(it ends inside the tensor"):
        convert(path, tmp_path)
