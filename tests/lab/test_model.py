"""The decoder of every arm: against a slow oracle, against its twins, and as geomprobe reads it."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import geomprobe
import geomprobe.lab.model as model_module
from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import logits, watching
from geomprobe.lab.arms import ARMS
from geomprobe.lab.model import LabConfig, LabForCausalLM, initialise
from geomprobe.models.quiet import quiet_transformers
from tests.lab.by_hand import TABLE, Decoder
from tests.lab.decoders import SMALL, fresh, give, hashes, left_padded, logits_of, shaken, some_ids

EVERY = pytest.mark.parametrize("arm", list(ARMS))
TOLERANCE = 1e-5  # of float32, and of the angles, which are float32 in every dtype


# ------------------------------------------------------------------ the oracle
@cache
def oracle_logits(arm):
    """Of the two texts of `some_ids`: (batch, pos, vocabulary)."""
    read = Decoder(arm, shaken(arm, dtype=torch.float64)).read
    return np.stack([read(ids)[0] for ids in some_ids().tolist()])


def check(model, arm, ids=None, **given):
    first = 0 if ids is None else ids.shape[1] - oracle_logits(arm).shape[1]
    got = logits_of(model, some_ids() if ids is None else ids, **given)[:, first:].numpy()
    off = np.abs(got - oracle_logits(arm)).max()
    assert off <= TOLERANCE, f"logits are off by {off:.1e}"


@EVERY
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_the_whole_decoder_is_that_of_the_oracle(arm, kernel, dtype):
    model = shaken(arm, dtype=dtype)
    model.set_attn_implementation(kernel)
    check(model, arm)


@EVERY
def test_the_oracle_tells_arms_apart(arm):
    """Weights that two arms share, and another result: no arm passes for another."""
    for other in TABLE:
        same = {arm, other} == {"A2", "A4"}  # the same function: no gain, and a rotation keeps lengths
        if arm != other and not same:
            model = shaken(arm, dtype=torch.float64)
            give(model, shaken(other, dtype=torch.float64))
            with pytest.raises(AssertionError, match="logits are off"):
                check(model, other)


@EVERY
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_padding_on_the_left_leaves_the_rest_unchanged(arm, kernel):
    ids, given = left_padded(some_ids(), 7)
    model = shaken(arm)
    model.set_attn_implementation(kernel)
    check(model, arm, ids, **given)
    ids[:, :7] = 11  # whatever stands there
    check(model, arm, ids, **given)


@EVERY
def test_positions_tell_only_by_their_distance_but_with_a_gain_behind_rope(arm):
    model, ids = shaken(arm, dtype=torch.float64), some_ids()
    moved = logits_of(model, ids, position_ids=torch.arange(13, 13 + ids.shape[1])[None])
    off = float((moved - logits_of(model, ids)).abs().max())
    assert (off > 0.01) if arm == "A3" else (off <= TOLERANCE)


@EVERY
def test_the_future_does_not_show(arm):
    model, ids = shaken(arm), some_ids()
    other = ids.clone()
    other[:, 12:] = 5
    before = float((logits_of(model, ids)[:, :12] - logits_of(model, other)[:, :12]).abs().max())
    assert before <= TOLERANCE
    assert float((logits_of(model, ids)[:, 12:] - logits_of(model, other)[:, 12:]).abs().max()) > 0.1


# ------------------------------------------------------------------ planted defects
def no_turn(x, _cos, _sin):
    return x


def other_pairs(x, cos, sin):
    one, two = x[..., ::2], x[..., 1::2]
    return x * cos + torch.stack((-two, one), dim=-1).flatten(-2) * sin


def backwards(x, cos, sin):
    one, two = x.chunk(2, dim=-1)
    return x * cos - torch.cat((-two, one), dim=-1) * sin


@pytest.mark.parametrize("arm", ["A1", "A3", "A5", "A6"])
@pytest.mark.parametrize("turn", [no_turn, other_pairs, backwards])
def test_a_wrong_rotation_is_caught(arm, turn, monkeypatch):
    model = shaken(arm)
    monkeypatch.setattr(model_module, "apply_rotary", turn)
    with pytest.raises(AssertionError, match="logits are off"):
        check(model, arm)


@pytest.mark.parametrize(
    ("arm", "change"),
    [
        ("A1", {"order": "after_rope"}), ("A3", {"order": "before_rope"}), ("A1", {"scale": "one"}),
        ("A6", {"scale": "one"}), ("A5", {"qk_norm": "rms_gainless"}), ("A0", {"scale": "one"}),
    ],
)  # fmt: skip
def test_the_norm_or_scale_of_another_arm_is_caught(arm, change):
    model = shaken(arm, **change)
    give(model, shaken(arm))
    with pytest.raises(AssertionError, match="logits are off"):
        check(model, arm)


def test_a_gain_that_is_lost_is_caught():
    model = shaken("A1")
    torch.nn.init.ones_(model.model.layers[1].self_attn.k_norm.weight)
    with pytest.raises(AssertionError, match="logits are off"):
        check(model, "A1")


# ------------------------------------------------------------------ twins
def matrices(model):
    return {name for name, parameter in model.named_parameters() if parameter.dim() > 1}


@EVERY
def test_arms_of_a_seed_share_all_that_they_have_in_common(arm):
    plain, twin = hashes(fresh("A0", seed=3)), hashes(fresh(arm, seed=3))
    assert {name: twin[name] for name in plain} == plain
    own = {name.rsplit(".self_attn.", 1)[1] for name in twin.keys() - plain.keys()}
    norms = {"q_norm.weight", "k_norm.weight"} if ARMS[arm].qk_norm == "rms" else set()
    assert own == norms | ({"log_temperature"} if ARMS[arm].scale == "learned" else set())


@EVERY
def test_another_seed_draws_every_matrix_anew(arm):
    model = fresh(arm, seed=3)
    one, other = hashes(model), hashes(fresh(arm, seed=4))
    assert {name for name in one if one[name] != other[name]} == matrices(model)


def test_no_two_matrices_are_alike():
    model = fresh("A1")
    drawn = [hashes(model)[name] for name in matrices(model)]
    assert len(set(drawn)) == len(drawn) == 1 + 7 * SMALL["num_hidden_layers"]


def test_other_parameters_change_no_draw():
    """One more matrix, before all others, and another order of the layers' parts."""
    model = LabForCausalLM(LabConfig(**SMALL))
    plain = hashes(fresh("A0", seed=3))
    model.model.first = nn.Linear(3, 3)
    model.model._modules = dict(reversed(model.model._modules.items()))
    initialise(model, 3)
    more = hashes(model)
    assert list(more) != list(plain)
    assert {name: more[name] for name in plain} == plain


def test_torch_seed_and_dtype_change_no_draw_and_are_left_alone():
    plain = hashes(fresh("A1", seed=3))
    torch.manual_seed(99)
    assert hashes(fresh("A1", seed=3)) == plain
    wide = LabForCausalLM(LabConfig(**SMALL, **ARMS["A1"].fields)).double()
    state = torch.random.get_rng_state()
    initialise(wide, 3)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert hashes(wide.float()) == plain


@EVERY
def test_weights_are_as_large_as_they_should_be(arm):
    """.02, a half of that where a layer writes into the stream (2 layers); gains are 1 and temperatures √head_dim."""
    for name, x in fresh(arm, hidden_size=96).named_parameters():
        parameter = x.detach()
        if name.endswith("log_temperature"):
            assert parameter.exp().tolist() == pytest.approx([8**0.5] * 4)
        elif parameter.dim() == 1:
            assert bool((parameter == 1).all()), name
        else:
            due = 0.01 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
            error = due / (2 * parameter.numel()) ** 0.5
            assert abs(float(parameter.std()) - due) <= 4 * error, name


# ------------------------------------------------------------------ arms that are one function to begin with
@cache
def logits_at_the_start(arm):
    """With weights ten times as large as training begins with, so that attention is not nearly even."""
    model = fresh(arm, dtype=torch.float64).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(10)
    return logits_of(model, some_ids())


@pytest.mark.parametrize(("one", "other"), [("A2", "A4"), ("A1", "A3"), ("A1", "A2"), ("A2", "A6")])
def test_arms_that_begin_alike(one, other):
    assert float((logits_at_the_start(one) - logits_at_the_start(other)).abs().max()) <= TOLERANCE


@pytest.mark.parametrize(("one", "other"), [("A0", "A1"), ("A1", "A5"), ("A1", "A7"), ("A6", "A8"), ("A0", "A9")])
def test_arms_that_do_not(one, other):
    assert float((logits_at_the_start(one) - logits_at_the_start(other)).abs().max()) > 100 * TOLERANCE


@pytest.mark.parametrize(("one", "other", "alike"), [("A2", "A4", True), ("A1", "A3", False)])
def test_a_norm_without_gain_commutes_with_rope(one, other, alike):
    models = [shaken(arm, dtype=torch.float64) for arm in (one, other)]
    assert hashes(models[0]) == hashes(models[1])
    apart = float((logits_of(models[0], some_ids()) - logits_of(models[1], some_ids())).abs().max())
    assert (apart <= TOLERANCE) if alike else (apart > 0.1)


# ------------------------------------------------------------------ what the kernel gets
def largest_logit(model):
    """The greatest |logit| that a query of any layer sees."""
    found = []

    def see(seen):
        x = logits(seen.call.query, seen.call, seen.call.key)
        found.append(float(x[x.isfinite()].abs().max()))

    with watching(model, see), torch.no_grad():
        model(input_ids=some_ids())
    assert len(found) == SMALL["num_hidden_layers"]
    return max(found)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_logits_of_l2_norm_without_a_scale_stay_within_one(factor):
    sizes = {}
    for arm in ("A8", "A9", "A7"):
        model = shaken(arm)
        with torch.no_grad():
            for layer in model.model.layers:
                for parameter in layer.self_attn.parameters():
                    parameter.mul_(factor)
        sizes[arm] = largest_logit(model)
    assert sizes["A8"] <= 1 + 1e-6
    if factor == 1e3:
        assert min(sizes["A9"], sizes["A7"]) > 1e4


def test_logits_of_a_learned_temperature_stay_within_it():
    model = shaken("A6")
    highest = max(layer.self_attn.log_temperature.detach().exp().max().item() for layer in model.model.layers)
    assert 1 < largest_logit(model) <= highest * (1 + 1e-6)


# ------------------------------------------------------------------ as geomprobe reads it
NORMS = {  # arm: (verdict, kind of q, kind of k), where a gain that differs by channel or head makes an RMS norm
    "A0": ("none", None, None), "A1": ("norm", "rms", "rms"), "A2": ("norm", "rms", "rms"),
    "A3": ("norm", "rms", "rms"), "A4": ("norm", "rms", "rms"), "A5": ("norm", "rms", "rms"),
    "A6": ("norm", "rms", "l2"), "A7": ("norm", "rms", "rms"), "A8": ("norm", "l2", "l2"), "A9": ("none", None, None),
}  # fmt: skip
DUE_SCALE = {"rsqrt_d": 8**-0.5, "one": 1.0, "learned": 1.0}


def due_gain(arm, attention, vector):
    """What each channel of each head is multiplied by once its root mean square is 1; None where all are alike."""
    heads = SMALL["num_attention_heads"] if vector == "q" else SMALL["num_key_value_heads"]
    if arm == "A6" and vector == "q":
        return (attention.log_temperature.detach().double().exp() / 8**0.5).numpy()[:, None].repeat(8, axis=1)
    if ARMS[arm].qk_norm != "rms":
        return None
    gain = getattr(attention, f"{vector}_norm").weight.detach().double().numpy()
    return np.broadcast_to(gain.reshape(-1, 8), (heads, 8))


@EVERY
def test_inspect_reads_what_the_arm_says(arm):
    model, said = shaken(arm), ARMS[arm]
    found = geomprobe.inspect(model)
    assert found.trusted
    assert len(found.layers) == SMALL["num_hidden_layers"]
    for layer in found.layers:
        assert (layer.kind, layer.reason, layer.notes) == ("softmax", "", ())
        assert (layer.q_heads, layer.kv_heads, layer.head_dim, layer.window, layer.calls) == (4, 2, 8, None, 1)
        assert (layer.rotary.kind, layer.rotary.share) == ("half", 1.0)
        assert layer.scale == pytest.approx(DUE_SCALE[said.scale])
        assert layer.verdict == {"q": NORMS[arm][0], "k": NORMS[arm][0], "v": "none"}
        assert layer.v_norm is None
        for vector, norm, kind in zip("qk", (layer.q_norm, layer.k_norm), NORMS[arm][1:], strict=True):
            assert (norm is None) == (kind is None)
            if norm is None:
                continue
            assert (norm.kind, norm.axis, norm.order, norm.bias) == (kind, said.axis, said.order, None)
            assert norm.module == f"{layer.module}.{vector}_norm"
            due = due_gain(arm, model.get_submodule(layer.module), vector)
            assert (norm.gain is None) == (due is None)
            if due is None:
                assert norm.factor == pytest.approx(1.0, abs=1e-4)
            else:
                assert np.abs(norm.gain - due).max() <= 1e-4


@EVERY
def test_an_analysis_reads_what_the_arm_says(arm):
    model, said = shaken(arm), ARMS[arm]
    spec = examine(model, some_ids(1, 60))
    assert spec.skipped == ()
    for layer in spec.layers:
        assert set(layer.norms) == ({"q", "k"} if said.qk_norm != "none" else set())
        assert layer.scale == pytest.approx(DUE_SCALE[said.scale])
        assert (layer.rotary_width, layer.pairs) == (8, ("half", tuple(range(8))))
        assert layer.stages == dict.fromkeys("qkv", ("projected", "content", "scored"))
        for vector, norm in layer.norms.items():
            assert (norm.axis, norm.order) == (said.axis, said.order)
            heads = layer.q_heads if vector == "q" else layer.kv_heads
            due = np.full(8, 8**-0.5 if said.qk_norm == "l2" else 1.0)
            if said.qk_norm == "rms":
                due = model.get_submodule(norm.module).weight.detach().double().numpy()
            assert len(norm.gain) == (8 * heads if said.axis == "full" else 8)
            assert np.abs(norm.gain - due).max() <= 1e-4


# ------------------------------------------------------------------ as transformers uses it
GREEDY = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def step_by_step(model, ids, n):
    for _ in range(n):
        ids = torch.cat([ids, logits_of(model, ids)[:, -1:].argmax(-1)], dim=1)
    return ids


@EVERY
def test_generating_reads_the_whole_text_each_time(arm):
    model, ids, lengths = shaken(arm), some_ids(2, 6), []
    model.model.embed_tokens.register_forward_hook(lambda _module, given, _made: lengths.append(given[0].shape[1]))
    made = model.generate(ids, **GREEDY)
    assert lengths == [6, 7, 8, 9, 10]
    assert torch.equal(made, step_by_step(model, ids, 5))
    assert torch.equal(made, model.generate(ids, use_cache=True, **GREEDY))  # asked for or not
    assert model(input_ids=ids).past_key_values is None


@EVERY
def test_generating_behind_padding(arm):
    model, ids = shaken(arm), some_ids(2, 6)
    padded, given = left_padded(ids, 4)
    made = model.generate(padded, attention_mask=given["attention_mask"], **GREEDY)
    assert torch.equal(made[:, 4:], model.generate(ids, **GREEDY))


def test_hidden_states_and_the_last_logits():
    model, ids = shaken("A1"), some_ids()
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True)
        embedded = model(inputs_embeds=model.model.embed_tokens(ids), logits_to_keep=3)
    assert len(out.hidden_states) == SMALL["num_hidden_layers"] + 1
    assert torch.equal(out.hidden_states[0], model.model.embed_tokens(ids))
    assert torch.equal(model.lm_head(out.hidden_states[-1]), out.logits)
    assert float((embedded.logits - out.logits[:, -3:]).detach().abs().max()) <= TOLERANCE


def test_the_loss_is_of_the_token_that_follows():
    model, ids = shaken("A1"), some_ids()
    shares = logits_of(model, ids).log_softmax(-1)
    due = -np.mean([float(shares[row, at, ids[row, at + 1]]) for row in range(2) for at in range(ids.shape[1] - 1)])
    with torch.no_grad():
        assert float(model(input_ids=ids, labels=ids).loss) == pytest.approx(due, rel=1e-5)


@EVERY
def test_saving_and_loading(arm, tmp_path):
    model = shaken(arm)
    with quiet_transformers():
        model.save_pretrained(tmp_path)
        made = LabForCausalLM.from_pretrained(tmp_path)
    assert made.config.arm == ARMS[arm]
    assert made.config.rope_theta == SMALL["rope_theta"]
    assert hashes(made) == hashes(model)
    assert torch.equal(logits_of(made, some_ids()), logits_of(model, some_ids()))


@EVERY
def test_every_weight_learns(arm):
    """A gradient reaches all that the arm has, and it is there in every layer."""
    model = shaken(arm).train()
    model(input_ids=some_ids(), labels=some_ids()).loss.backward()
    assert all(float(parameter.grad.abs().max()) > 0 for parameter in model.parameters())
