"""Every type of a mapping is built and runs, or the table says why not; and what is built is worth testing with."""

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING

from tests.architectures.building import MAPPINGS, CannotBuild, build, run, types_of
from tests.architectures.exceptions import EXCEPTIONS
from tests.architectures.sizes import VOCABULARY, WINDOW
from tests.architectures.text import LENGTH, PADDED, takes
from tests.architectures.verifying import run as every_output
from tests.architectures.weights import is_kept

# A type that leaves this list is a gain, one that joins it is a loss: either way this line changes.
CANNOT = {
    "causal": {"gemma3n"},
    "masked": set(),
    "seq2seq": set(),
    "vision": {"dinat", "edgetam_vision_model", "gemma3n_vision", "timm_backbone", "timm_wrapper"},
    "multimodal": {"evolla", "fast_vlm", "gemma3n", "llama4", "perception_lm"},
    "audio": {"pe_audio_video_encoder", "wavtokenizer_encoder"},
    "text": {"voxtral_realtime_text"},
}
REASONS = "timm|natten|proteins|codes|transformers 5.24"
COUNTS = {
    "causal": 196,
    "masked": 51,
    "seq2seq": 51,
    "vision": 116,
    "multimodal": 111,
    "audio": 42,
    "text": 32,
}
EVERY = [(model_type, mapping) for mapping in MAPPINGS for model_type in types_of(mapping)]
BUILT = [(model_type, mapping) for model_type, mapping in EVERY if model_type not in CANNOT[mapping]]
# Kinds of layers as the classes know them; where a default has none of a kind, a test of defaults cannot ask for it.
KINDS = {
    "qwen3": {"sliding_attention", "full_attention"},
    "dots1": {"sliding_attention", "full_attention"},
    "ministral": {"sliding_attention", "full_attention"},
    "llama4_text": {"chunked_attention", "full_attention"},
    "deepseek_v4": {"sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"},
    "minimax_m3_vl_text": {"minimax_m3_sparse", "full_attention"},
    "granitemoehybrid": {"linear_attention", "full_attention"},
    "lfm3": {"conv", "sliding_attention", "full_attention"},
    "zaya": {"hybrid", "hybrid_sliding"},
}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    """Default configurations are not all consistent, and say so."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


# As the checks of what is captured: the causal types in every run of the tests, the others in `make architectures`.
CASES = [
    pytest.param(each, id=f"{each[1]}-{each[0]}", marks=() if each[1] == "causal" else pytest.mark.architectures)
    for each in BUILT
]


@pytest.fixture(scope="module", params=CASES)
def case(request, _quiet):
    """A model type with its mapping, and what is built of it: once for all tests of it."""
    model_type, mapping = request.param
    return model_type, mapping, build(model_type, mapping)


def test_the_mappings_are_those_of_transformers():
    assert {mapping: len(types_of(mapping)) for mapping in MAPPINGS} == COUNTS


@pytest.mark.parametrize(
    ("mapping", "model_type"), [(m, each) for m, types in CANNOT.items() for each in sorted(types)]
)
def test_what_cannot_be_built_says_why(model_type, mapping):
    with pytest.raises(CannotBuild, match=f"^{model_type}: .*({REASONS})"):
        build(model_type, mapping)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning")
def test_every_type_runs(case):
    _, _, built = case

    outputs, padded = run(built, padded=False), run(built, padded=True)

    assert not built.model.training
    assert {parameter.dtype for parameter in built.model.parameters() if parameter.is_floating_point()} == {
        torch.float32
    }
    assert torch.isfinite(outputs).all()
    assert torch.isfinite(padded).all()
    assert torch.equal(run(built, padded=True), padded)
    assert outputs.std() > 0.01


def test_the_second_sequence_is_padded(case):
    _, _, built = case
    if "attention_mask" not in built.inputs:
        assert "input_ids" not in built.inputs or not takes(built.model, "attention_mask")
        return

    present = built.inputs["attention_mask"].sum(1).tolist()

    assert len(present) == 2
    assert 0 < present[1] < present[0] == built.inputs["attention_mask"].shape[1]
    assert "attention_mask" not in built.plain
    if "input_ids" in built.inputs:
        assert present[0] - present[1] == PADDED
        assert present[0] >= LENGTH


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning")
def test_what_is_seen_and_heard_counts(case):
    _, _, built = case
    names = built.plain.keys() & {"pixel_values", "pixel_values_videos", "input_features", "input_values"}
    before = every_output(built, built.plain)

    for name in sorted(names):
        noise = torch.randn(built.plain[name].shape, generator=torch.Generator().manual_seed(4))
        after = every_output(built, built.plain | {name: built.plain[name] + 0.5 * noise})
        assert max(float((one - other).abs().max()) for one, other in zip(before, after, strict=True)) > 1e-4


def test_nothing_is_left_even(case):
    _, _, built = case

    constant = [
        name
        for name, parameter in built.model.named_parameters()
        if parameter.numel() > 1 and not is_kept(name, parameter) and parameter.std() < 1e-3
    ]

    assert constant == []


def test_every_kind_of_layer_of_the_default_is_there(case):
    model_type, _, built = case
    if EXCEPTIONS.get(model_type) and EXCEPTIONS[model_type].start:
        pytest.skip("it has no default configuration")

    def kinds(config, name):
        return set(vars(config.get_text_config(decoder=True)).get(name) or ())

    default, small = CONFIG_MAPPING[model_type](), built.config

    for name in ("layer_types", "layers_block_type", "block_types", "mlp_layer_types", "indexer_types"):
        assert kinds(default, name) <= kinds(small, name)


@pytest.mark.parametrize("model_type", sorted(KINDS))
def test_every_kind_of_layer_of_the_class_is_there(model_type):
    assert set(build(model_type).config.layer_types) == KINDS[model_type]


@pytest.mark.parametrize("model_type", [case[0] for case in BUILT if case[1] == "causal"])
def test_windows_are_shorter_than_a_sequence(model_type):
    config = build(model_type).config.get_text_config(decoder=True)

    for name in ("sliding_window", "sliding_window_size", "attention_chunk_size", "attention_window_size"):
        assert (vars(config).get(name) or WINDOW) <= WINDOW < LENGTH


def test_layers_without_rope_stand_beside_layers_with_it():
    assert build("smollm3").config.no_rope_layers == [1, 1, 0]
    assert build("llama4").config.no_rope_layers == [1, 0]
    assert build("granite_swa").config.layer_rope_theta == [10000.0, 0.0]
    assert build("cohere_compass_text").config.rope_parameters["full_attention"] is None


def test_layers_that_share_keys_come_after_those_they_share():
    for model_type in ("gemma3n_text", "gemma4_text"):
        layers = build(model_type).model.model.layers
        assert [layer.self_attn.is_kv_shared_layer for layer in layers] == [False, False, True, True]


def test_seeds_decide():
    one, same, other = (build("llama", seed=seed) for seed in (0, 0, 1))

    assert torch.equal(run(one, padded=True), run(same, padded=True))
    assert not torch.equal(one.plain["input_ids"], other.plain["input_ids"])
    assert not torch.equal(one.model.lm_head.weight, other.model.lm_head.weight)


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)

    build("llama")

    assert torch.equal(torch.randn(4), expected)


@pytest.mark.parametrize(("model_type", "flag"), [("stablelm", "qk_layernorm"), ("cohere", "use_qk_norm")])
def test_a_variant_shares_the_weights_that_both_have(model_type, flag):
    without, normed = build(model_type), build(model_type, variant={flag: True})

    weights = dict(normed.model.named_parameters())
    added = set(weights) - set(dict(without.model.named_parameters()))

    assert added
    assert all("norm" in name for name in added)
    assert all(torch.equal(weights[name], weight) for name, weight in without.model.named_parameters())
    assert not torch.allclose(run(without, padded=False), run(normed, padded=False), atol=1e-2)


def test_a_variant_reaches_the_text_model():
    assert build("gemma3", variant={"sliding_window": 4}).config.text_config.sliding_window == 4
    assert build("gemma3", variant={"text_config.sliding_window": 4}).config.text_config.sliding_window == 4
    # not a field of the class, but an argument of it
    layers = build(
        "gemma4_text", variant={"attention_k_eq_v": True, "num_global_key_value_heads": 1}
    ).model.model.layers
    assert [layer.self_attn.num_key_value_groups for layer in layers] == [2, 4, 2, 4]


def test_a_variant_that_no_part_knows_is_refused():
    with pytest.raises(ValueError, match="variant must name fields of Gemma3Config or of its parts; got 'qk_nrom'"):
        build("gemma3", variant={"qk_nrom": True})


@pytest.mark.parametrize("model_type", ["qwen3", "gemma3_text", "gpt_oss", "cohere2", "olmo2"])
def test_a_step_that_is_skipped_shows(model_type):
    built = build(model_type)
    before = run(built, padded=False)
    attention = built.model.model.layers[1].self_attn

    for name in ("q_norm", "sinks", "o_proj"):
        if getattr(attention, name, None) is not None:
            step = getattr(attention, name)
            with torch.no_grad():
                weight = getattr(step, "weight", step)
                kept = weight.clone()
                weight.zero_() if name == "sinks" else weight.fill_(weight.mean())
                assert (run(built, padded=False) - before).abs().max() > 1e-2
                weight.copy_(kept)


def test_words_have_no_meaning_of_their_own():
    ids = build("gemma3").plain["input_ids"]
    special = [value for name, value in vars(build("gemma3").config).items() if name.endswith(("_id", "_index"))]

    assert ids.max() < VOCABULARY
    assert not set(ids.flatten().tolist()) & {value for value in special if isinstance(value, int)}
