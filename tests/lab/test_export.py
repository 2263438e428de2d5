"""Exported arms give the lab model's logits, by plain transformers and with geomprobe out of reach."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

import geomprobe.lab.export as export_module
from geomprobe.errors import InvalidParameter, RunError
from geomprobe.lab.arms import ARMS
from geomprobe.lab.export import export, exported
from geomprobe.models.quiet import quiet_transformers
from tests.lab.decoders import SMALL, fresh, left_padded, logits_of, shaken, some_ids

TYPES = {"A0": "llama", "A1": "qwen3", "A3": "hunyuan_v1_dense", "A7": "qwen3"}
EXPORTED = pytest.mark.parametrize("arm", list(TYPES))
TOLERANCE = 1e-5
SCRIPT = """
import sys
sys.modules["geomprobe"] = None
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging
logging.disable_progress_bar()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
ids = torch.tensor([[int(token) for token in sys.argv[2].split(",")]])
with torch.no_grad():
    print(type(model).__name__, model(ids).logits.double().sum((0, 1)).tolist())
"""


def loaded(folder):
    with quiet_transformers():
        return AutoModelForCausalLM.from_pretrained(folder)


def check(model, made):
    """Both give the same logits, on whole texts and behind padding."""
    ids, given = left_padded(some_ids(), 5)
    for where, x, options in (("whole", some_ids(), {}), ("padded", ids, given)):
        first = 5 if options else 0
        due, got = logits_of(model, x, **options)[:, first:], logits_of(made, x, **options)[:, first:]
        off = float((got - due).abs().max())
        assert off <= TOLERANCE, f"{where}: logits are off by {off:.1e}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each arm's export, with the model that it was made of."""
    made = {}
    for arm, model_type in TYPES.items():
        model, folder = shaken(arm), tmp_path_factory.mktemp(arm) / "deep" / "export"
        assert export(model, folder) == model_type
        made[arm] = (model, folder)
    return made


# ------------------------------------------------------------------ the same function
@EXPORTED
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_logits_after_saving_and_loading(arm, kernel, folders):
    model, folder = folders[arm]
    made = loaded(folder)
    made.set_attn_implementation(kernel)
    assert type(made).__module__.startswith(f"transformers.models.{TYPES[arm]}.")
    assert made.dtype == torch.float32
    check(model, made)


@EXPORTED
def test_a_cache_changes_nothing(arm, folders):
    """The lab model reads a text anew for each token, the exported one keeps keys."""
    model, folder = folders[arm]
    made = loaded(folder)
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    assert torch.equal(made.generate(some_ids(), **options), model.generate(some_ids(), **options))


@EXPORTED
def test_the_config_says_what_was_trained(arm, folders):
    config = loaded(folders[arm][1]).config
    for name in SMALL.keys() - {"rope_theta"}:
        assert getattr(config, name) == SMALL[name]
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": SMALL["rope_theta"]}
    assert config.rms_norm_eps == 1e-6
    assert config.tie_word_embeddings is True
    assert config.pad_token_id is None
    assert getattr(config, "attention_bias", False) is getattr(config, "mlp_bias", False) is False
    assert set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
    assert getattr(config, "sliding_window", None) is None


@EXPORTED
def test_every_weight_has_its_place(arm, folders):
    """As many numbers as the lab model has; head and embedding are one."""
    model, folder = folders[arm]
    with quiet_transformers():
        made, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert made.lm_head.weight.data_ptr() == made.model.embed_tokens.weight.data_ptr()
    assert sum(p.numel() for p in made.parameters()) == sum(p.numel() for p in model.parameters())


def test_a_process_without_geomprobe_loads_it(folders):
    model, folder = folders["A3"]
    ids = some_ids(1)
    given = [str(folder), ",".join(map(str, ids[0].tolist()))]
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT, *given], capture_output=True, text=True, check=True, cwd=folder, env=os.environ
    ).stdout
    name, sums = told.split(" ", 1)
    assert name == "HunYuanDenseV1ForCausalLM"
    assert json.loads(sums) == pytest.approx(logits_of(model, ids).sum((0, 1)).tolist(), abs=20 * TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions(dtype, tmp_path):
    model = shaken("A7")
    export(model, tmp_path / "out", dtype=dtype)
    made = loaded(tmp_path / "out")
    assert made.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float64 else 0.3
    assert float((logits_of(model, some_ids()) - logits_of(made, some_ids())).abs().max()) <= tolerance


# ------------------------------------------------------------------ planted defects
def drop(made, suffix):
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith(suffix):
                parameter.fill_(1.0)


@pytest.mark.parametrize(
    ("arm", "suffix"),
    [
        ("A0", "input_layernorm.weight"), ("A0", "model.norm.weight"),
        ("A1", "q_norm.weight"), ("A1", "k_norm.weight"),
        ("A3", "query_layernorm.weight"), ("A3", "key_layernorm.weight"),
        ("A7", "k_norm.weight"),
    ],
)  # fmt: skip
def test_a_lost_gain_is_caught(arm, suffix):
    model = shaken(arm)
    made = exported(model)
    check(model, made)
    drop(made, suffix)
    with pytest.raises(AssertionError, match="whole: logits are off"):
        check(model, made)


def test_a_scale_that_is_not_folded_is_caught(monkeypatch):
    plain = export_module._weights

    def unfolded(model, form):
        scale = model.config.head_dim**0.5
        return {name: x / scale if name.endswith("q_norm.weight") else x for name, x in plain(model, form).items()}

    monkeypatch.setattr(export_module, "_weights", unfolded)
    model = shaken("A7")
    with pytest.raises(AssertionError, match="whole: logits are off"):
        check(model, exported(model))


@pytest.mark.parametrize(("arm", "other"), [("A1", "A3"), ("A3", "A1"), ("A1", "A7"), ("A7", "A1")])
def test_the_form_of_another_arm_is_caught(arm, other, monkeypatch):
    forms = {ARMS[arm]: export_module._FORMS[ARMS[other]]}
    model = shaken(arm)
    if TYPES[arm] == TYPES[other]:
        model.config.scale = ARMS[other].scale  # what the export reads; the modules keep theirs
    else:
        monkeypatch.setattr(export_module, "_FORMS", forms)
    with pytest.raises(AssertionError, match="whole: logits are off"):
        check(model, exported(model))


@EXPORTED
def test_other_angles_are_caught(arm):
    model = shaken(arm)
    model.config.rope_theta = 600.0
    made = exported(model)
    model.config.rope_theta = SMALL["rope_theta"]
    with pytest.raises(AssertionError, match="whole: logits are off"):
        check(model, made)


# ------------------------------------------------------------------ what it leaves alone, and what it refuses
@EXPORTED
def test_model_and_random_numbers_are_as_before(arm):
    model = shaken(arm).train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    state = torch.random.get_rng_state()
    made = exported(model)
    assert not made.training
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), state)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm not in TYPES])
def test_other_arms_are_refused(arm, tmp_path):
    with pytest.raises(InvalidParameter, match=rf"one of A0, A1, A3, A7 to be exported, .*; got {arm} \("):
        export(fresh(arm), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_arm_without_a_name_is_refused():
    with pytest.raises(InvalidParameter, match=r"got rms-head-after_rope-one, which geomprobe alone loads\.$"):
        exported(fresh("A3", scale="one"))


def test_widths_that_llama_refuses():
    with pytest.raises(InvalidParameter, match=r"hidden must be a multiple of heads, 4, for Llama .*; got 18\."):
        exported(fresh("A0", hidden_size=18))
    check(*(lambda model: (model, exported(model)))(shaken("A1", hidden_size=18)))


def test_what_is_in_the_way(tmp_path):
    model, full, file = shaken("A0"), tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "kept.txt").write_text("mine")
    file.write_text("mine")
    with pytest.raises(RunError, match=r"full' is not empty; give another folder"):
        export(model, full)
    with pytest.raises(RunError, match=r"file' is a file; an export needs a folder"):
        export(model, file)
    with pytest.raises(RunError, match=r"Cannot write the folder .*below': File exists\."):
        export(model, file / "below")
    assert [path.name for path in full.iterdir()] == ["kept.txt"]
    assert file.read_text() == "mine"


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "out").mkdir()
    export(shaken("A0"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert (tmp_path / "out" / "config.json").exists()


def test_a_failure_on_the_way_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(RunError, match=r"Cannot write the folder .*out': No space left on device\."):
        export(shaken("A0"), tmp_path / "out", tokenizer=folder)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer"]


def test_a_tokenizer_goes_with_it_and_no_other_file(tmp_path):
    """The tokenizer's folder may be a training's checkpoint, whose configuration must not stand in for the export's."""
    beside = tmp_path / "step"
    beside.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "training.json", "model.safetensors"):
        (beside / name).write_text('{"from": "step"}')
    export(shaken("A1"), tmp_path / "out", tokenizer=beside)
    there = {path.name: path for path in (tmp_path / "out").iterdir()}
    expected = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert set(there) == expected
    assert there["tokenizer.json"].read_text() == '{"from": "step"}'
    assert json.loads(there["config.json"].read_text())["model_type"] == "qwen3"


def test_a_folder_without_a_tokenizer_is_told(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidParameter, match="tokenizer must be a folder with the files of one"):
            export(shaken("A0"), tmp_path / "out", tokenizer=folder)
    assert not (tmp_path / "out").exists()
