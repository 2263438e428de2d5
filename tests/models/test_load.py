import json
import logging

import pytest
import torch
from safetensors.torch import load_file, save_file

from geomprobe.errors import InvalidParameter, ModelNotFound, UnsupportedModel
from geomprobe.models import load as load_module
from geomprobe.models.load import choose_device, load
from geomprobe.models.resolve import Checkpoint


@pytest.fixture
def ready(gemma):
    """Load the tiny Gemma with the options given."""
    return lambda **options: load(Checkpoint("it", gemma, "folder", "gemma"), **options)


def test_a_loaded_model_is_ready_to_be_watched(ready, gemma):
    it = ready()
    assert not it.model.training
    assert not any(weight.requires_grad for weight in it.model.parameters())
    assert (it.dtype, it.device) == ("float32", "cpu")
    assert it.checkpoint.path == gemma
    assert it.tokenizer("The old house").input_ids[0] == it.tokenizer.bos_token_id
    held = load_file(gemma / "model.safetensors")
    assert all(torch.equal(it.model.state_dict()[name], weight) for name, weight in held.items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_dtype_is_the_one_asked_for(ready, dtype):
    it = ready(dtype=dtype)
    assert it.dtype == dtype
    assert {weight.dtype for weight in it.model.parameters()} == {getattr(torch, dtype)}


def test_auto_is_float32_on_a_cpu_whatever_the_files_hold(ready, gemma, edit_config):
    held = {name: weight.bfloat16() for name, weight in load_file(gemma / "model.safetensors").items()}
    save_file(held, gemma / "model.safetensors", metadata={"format": "pt"})
    edit_config(gemma, dtype="bfloat16")
    it = ready()
    assert it.dtype == "float32"
    assert all(torch.equal(it.model.state_dict()[name], weight.float()) for name, weight in held.items())


def test_an_unknown_dtype_is_one_sentence(ready):
    with pytest.raises(InvalidParameter, match=r"dtype must be one of 'auto', .*; got 'float64'\."):
        ready(dtype="float64")


@pytest.mark.parametrize(
    ("n_cuda", "mps", "asked", "given"),
    [
        (0, False, "auto", "cpu"),
        (0, True, "auto", "mps"),
        (2, True, "auto", "cuda:0"),
        (2, False, "cuda", "cuda:0"),
        (2, False, "cuda:1", "cuda:1"),
        (2, True, "mps", "mps"),
        (2, True, "cpu", "cpu"),
    ],
)
def test_the_device_is_one_that_is_there(monkeypatch, n_cuda, mps, asked, given):
    machine(monkeypatch, n_cuda=n_cuda, mps=mps)
    assert choose_device(asked) == given


@pytest.mark.parametrize(
    ("n_cuda", "asked", "said"),
    [
        (0, "cuda", r"device must be one that this machine has, and it has no CUDA device; got 'cuda'\."),
        (0, "cuda:3", r"it has no CUDA device; got 'cuda:3'\."),
        (1, "cuda:1", r"it has only 1 CUDA device; got 'cuda:1'\."),
        (2, "cuda:2", r"it has only 2 CUDA devices; got 'cuda:2'\."),
        (0, "mps", r"it has no mps device; got 'mps'\."),
        (0, "tpu", r"device must be 'auto', 'cpu', 'mps', 'cuda' or 'cuda:N'; got 'tpu'\."),
        (1, "cuda:x", r"device must be 'auto', 'cpu', 'mps', 'cuda' or 'cuda:N'; got 'cuda:x'\."),
        (1, "cpu:0", r"device must be 'auto', 'cpu', 'mps', 'cuda' or 'cuda:N'; got 'cpu:0'\."),
    ],
)
def test_a_device_that_is_not_there_is_one_sentence(monkeypatch, n_cuda, asked, said):
    machine(monkeypatch, n_cuda=n_cuda, mps=False)
    with pytest.raises(InvalidParameter, match=said):
        choose_device(asked)


def machine(monkeypatch, *, n_cuda, mps):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: n_cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


def test_a_device_map_is_handed_on(ready, monkeypatch):
    theirs = load_module.transformers.AutoModelForCausalLM.from_pretrained
    seen = {}

    def spy(folder, **options):
        seen.update(options)
        return theirs(folder, **options)

    monkeypatch.setattr(load_module.transformers.AutoModelForCausalLM, "from_pretrained", spy)
    it = ready(device_map={"": "cpu"})
    assert (it.device, it.dtype) == ("map", "float32")
    assert seen["device_map"] == {"": "cpu"}
    assert seen["use_safetensors"] is True


def test_a_device_map_and_a_device_exclude_each_other(ready):
    with pytest.raises(InvalidParameter, match=r"device must be left at 'auto' where a device_map is given; got 'cpu'"):
        ready(device_map="auto", device="cpu")


def test_an_unknown_device_map_is_one_sentence(ready):
    with pytest.raises(ModelNotFound, match=r"cannot load the model in '.*' \(.*nonsense"):
        ready(device_map="nonsense")


def test_no_config_is_one_sentence(ready, gemma):
    (gemma / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"has no config.json; give the folder"):
        ready()


def test_no_weights_is_one_sentence(ready, gemma):
    (gemma / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"has no model.safetensors: it has no weights at all"):
        ready()


def test_damaged_weights_are_one_sentence(ready, gemma):
    content = (gemma / "model.safetensors").read_bytes()
    (gemma / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(ModelNotFound, match=r"model.safetensors' are damaged or unfinished \(.*\); get them again"):
        ready()


def test_missing_weights_are_not_made_up(ready, gemma, edit_config):
    edit_config(gemma, num_hidden_layers=3)
    expected = r"config.json: 9 are missing, the first 'model.layers.2.input_layernorm.weight', 'model.layers.2.mlp"
    with pytest.raises(ModelNotFound, match=expected):
        ready()


def test_weights_of_another_shape_are_not_made_up(ready, gemma, edit_config):
    edit_config(gemma, intermediate_size=96)
    expected = (
        r"6 have another shape, the first 'model.layers.0.mlp.down_proj.weight', \(32, 64\) instead of \(32, 96\)"
    )
    with pytest.raises(ModelNotFound, match=expected):
        ready()


def test_weights_that_the_model_has_no_place_for_are_named(ready, gemma, caplog):
    held = load_file(gemma / "model.safetensors")
    held["model.layers.0.self_attn.q_norm.weight"] = torch.ones(8)
    save_file(held, gemma / "model.safetensors", metadata={"format": "pt"})
    with caplog.at_level(logging.WARNING, logger="geomprobe"):
        ready()
    assert "leaves 1 weights unused, the first 'model.layers.0.self_attn.q_norm.weight'." in caplog.text


def test_no_tokenizer_is_one_sentence(ready, gemma):
    (gemma / "tokenizer.json").unlink()
    with pytest.raises(ModelNotFound, match=r"has no tokenizer; copy the files of the checkpoint's tokenizer"):
        ready()


def test_a_damaged_tokenizer_is_one_sentence(ready, gemma):
    (gemma / "tokenizer.json").write_text('{"model": 7}', encoding="utf-8")
    with pytest.raises(ModelNotFound, match=r"The tokenizer in '.*' cannot be loaded \(.+\); get its files again"):
        ready()


def test_a_tokenizer_without_offsets_is_one_sentence(ready, monkeypatch):
    class Slow:
        is_fast = False

    monkeypatch.setattr(load_module.transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: Slow())
    with pytest.raises(UnsupportedModel, match=r"\(Slow\) does not tell which characters a token stands for; give a"):
        ready()


@pytest.mark.parametrize("kind", ["foo", None])
def test_an_unknown_model_type_is_one_sentence(ready, gemma, edit_config, kind):
    edit_config(gemma, model_type=kind)
    what = "the model type 'foo'" if kind else "the model"
    with pytest.raises(
        UnsupportedModel, match=rf"transformers 5.* does not know {what} that .*; a newer transformers may"
    ):
        ready()


def test_a_model_of_no_text_is_one_sentence(ready, gemma, edit_config):
    edit_config(gemma, model_type="vit")
    with pytest.raises(
        UnsupportedModel, match=r"The model type 'vit' of '.*' is no model of text; give images with --input"
    ):
        ready()


@pytest.mark.parametrize("kind", ["foo", "vit"])
def test_code_of_the_checkpoint_is_not_run_unasked(ready, gemma, edit_config, kind):
    (gemma / "code.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    edit_config(gemma, model_type=kind, auto_map={"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"})
    with pytest.raises(UnsupportedModel, match=rf"The model type '{kind}' .* needs Python code .* --trust-remote-code"):
        ready()


def test_code_of_the_checkpoint_runs_when_asked(ready, gemma, edit_config, monkeypatch, tmp_path):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    (gemma / "its_code.py").write_text(
        "from transformers import GemmaConfig, GemmaForCausalLM\n"
        "class C(GemmaConfig):\n    model_type = 'own-gemma'\n"
        "class M(GemmaForCausalLM):\n    config_class = C\n",
        encoding="utf-8",
    )
    edit_config(
        gemma, model_type="own-gemma", auto_map={"AutoConfig": "its_code.C", "AutoModelForCausalLM": "its_code.M"}
    )
    assert type(ready(trust_remote_code=True).model).__name__ == "M"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": "x"}, r"does not take the config .*'hidden_size': .* expected int, got str .*; get it again"),
        ({"num_attention_heads": 5, "head_dim": 7}, r"does not take the config '.*' \(.*\); get it again"),
        ({"hidden_act": "nonsense"}, r"cannot load the model in '.*' \(KeyError: .*nonsense"),
        ({"vocab_size": -1}, r"cannot load the model in '.*' \(RuntimeError: "),
    ],
)
def test_a_config_that_makes_no_model_is_one_sentence(ready, gemma, edit_config, changes, said):
    edit_config(gemma, **changes)
    with pytest.raises(ModelNotFound, match=said):
        ready()


def test_a_quantisation_that_lacks_its_package_is_one_sentence(ready, gemma, edit_config):
    edit_config(gemma, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(ModelNotFound, match=r"cannot load the model in '.*' \(ImportError: Loading a GPTQ quantized"):
        ready()


def test_too_little_memory_is_one_sentence(ready, monkeypatch):
    def fail(*_args, **_options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(load_module.transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(ModelNotFound, match=r"does not fit into the device's memory; give --dtype bfloat16"):
        ready()


def test_nothing_is_printed_and_verbosity_is_as_before(ready, gemma, edit_config, capfd):
    from transformers.utils import logging as their_logging

    before = their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()
    ready()
    edit_config(gemma, num_hidden_layers=3)
    with pytest.raises(ModelNotFound, match="are missing"):
        ready()
    assert capfd.readouterr() == ("", "")
    assert (their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()) == before


def test_only_the_files_of_the_folder_are_used(ready, gemma):
    (gemma / "generation_config.json").unlink()
    config = json.loads((gemma / "config.json").read_text(encoding="utf-8"))
    assert ready().model.config.hidden_size == config["hidden_size"]
