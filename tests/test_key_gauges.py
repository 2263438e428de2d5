"""The balanced gauge of keys before the rotation: against loops over captured vectors, and where there is none."""

import numpy as np
import pytest
import torch
import transformers
from torch.nn.functional import cosine_similarity

import geomprobe
from geomprobe import key_gauges as module
from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import attending
from geomprobe.attention.stages import Notebook
from geomprobe.key_gauges import kept_gauges, key_gauges, turned
from geomprobe.stats.gauge import Pairing
from geomprobe.testing import tiny_model

N, LENGTH, WIDTH, LAYERS, KV_HEADS = 12, 24, 16, 2, 2
SMALL = {"vocab_size": 160, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": WIDTH}


def windows(seed=0):
    return np.random.default_rng(seed).integers(3, 160, size=(N, LENGTH))


def fitted(model, ids=None, batch_size=5):
    ids = windows() if ids is None else ids
    notebook = Notebook(attending(model))
    spec = examine(model, torch.from_numpy(windows()[:1]), notebook=notebook)
    return key_gauges(model, spec, ids, notebook, batch_size=batch_size)


def scored_of(model, stage="scored"):
    """Queries and keys of all windows, by layer: (window, head, pos, channel), float64."""
    with torch.no_grad(), geomprobe.capture(model, stages=(stage,)) as seen:
        model(torch.from_numpy(windows()), use_cache=False)
    return {record.layer: tuple(getattr(record, v)[stage].double().numpy() for v in ("q", "k")) for record in seen}


def scales_of(queries, keys, head):
    """By channel (E|q_p|²/E|k_p|²)^¼ of its rotary pair, position 0 out: loops, from the formula alone."""
    groups, half = queries.shape[1] // keys.shape[1], WIDTH // 2
    scales = np.ones(WIDTH)
    for pair in range(half):
        both = (pair, pair + half)
        squares = [
            [sum(x[row, h, t, c] ** 2 for c in both) for row in range(N) for h in heads for t in range(1, LENGTH)]
            for x, heads in ((queries, range(head * groups, (head + 1) * groups)), (keys, [head]))
        ]
        scales[list(both)] = (np.mean(squares[0]) / np.mean(squares[1])) ** 0.25
    return scales


@pytest.fixture(scope="module", params=["llama", "gemma3", "gpt_oss"])
def model(request):
    """Without a norm, with one, and with learned sinks; gemma3 and gpt_oss have windows in part."""
    return tiny_model(request.param)


def test_pairs_are_scaled_as_the_formula_says(model):
    found = fitted(model)
    assert sorted(found) == list(range(LAYERS))
    for layer, (queries, keys) in scored_of(model).items():
        assert found[layer].shape == (KV_HEADS, WIDTH, WIDTH)
        for head in range(KV_HEADS):
            scales = scales_of(queries, keys, head)
            assert scales.max() / scales.min() > 1.1  # else the gauges are one, and the test says nothing
            assert np.allclose(found[layer][head], np.diag(scales), rtol=1e-5, atol=1e-8)


def _first_too(moments, query, key):
    add(moments, *(torch.cat([x[:, :, :1], x], 2) for x in (query, key)))  # position 0 stands at 1, too


add = module.gauges.add
DEFECTS = {
    "position 0 too": _first_too,
    "keys and queries changed over": lambda moments, query, key: add(moments, key.repeat(1, 2, 1, 1), query[:, ::2]),
    "one query of a group": lambda moments, query, key: add(moments, query[:, ::2], key),
    "the last position alone": lambda moments, query, key: add(moments, query[:, :, -2:], key[:, :, -2:]),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_oracle_sees_planted_defects(monkeypatch, defect):
    model = tiny_model("llama")
    monkeypatch.setattr(module.gauges, "add", DEFECTS[defect])
    queries, keys = scored_of(model)[1]
    assert not np.allclose(fitted(model)[1][0], np.diag(scales_of(queries, keys, 0)), rtol=1e-5, atol=1e-8)


def test_however_the_windows_are_batched(model):
    found = fitted(model)
    for size in (1, 100):
        other = fitted(model, batch_size=size)
        assert other.keys() == found.keys()
        assert all(np.allclose(other[layer], found[layer], rtol=1e-4, atol=1e-8) for layer in found)


def test_half_precision_has_a_gauge_too():
    found, exact = fitted(tiny_model("llama", dtype=torch.bfloat16)), fitted(tiny_model("llama"))
    assert found.keys() == exact.keys()
    assert all(np.allclose(found[layer], exact[layer], rtol=0.05, atol=1e-8) for layer in found)


def test_without_windows_there_is_none(model):
    assert fitted(model, ids=windows()[:0]) == {}


def test_channels_that_do_not_turn_are_balanced_by_a_matrix():
    """Where nothing turns keys and queries then have the same second moments, and every centred product stays."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=160, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1)
    model = transformers.GPT2LMHeadModel(config).eval()
    found = fitted(model)
    for layer, (queries, keys) in scored_of(model).items():
        for head in range(4):
            q, k = (x[:, head, 1:].reshape(-1, 8) for x in (queries, keys))
            by = found[layer][head]
            new_q, new_k = q @ np.linalg.inv(by).T, (k - k.mean(0)) @ by
            assert np.allclose(new_q.T @ new_q / len(q), new_k.T @ new_k / len(k), atol=1e-5)
            assert not np.allclose(by, np.diag(np.diag(by)), atol=1e-3)


def test_a_rotation_of_a_part_leaves_the_others_to_a_matrix():
    """Phi turns half of its channels."""
    config = transformers.PhiConfig(
        **{name: value for name, value in SMALL.items() if name != "head_dim"},
        num_attention_heads=2,
        partial_rotary_factor=0.5,
    )
    torch.manual_seed(0)
    model = transformers.PhiForCausalLM(config).eval()
    found = fitted(model)[1]
    for by in found:
        assert np.allclose(by[:8, 8:], 0)
        assert np.allclose(by[8:, :8], 0)
        assert np.allclose(by[:8, :8], np.diag(np.diag(by)[:8]))
        assert np.allclose(np.diag(by)[:4], np.diag(by)[4:8])
        assert not np.allclose(by[8:, 8:], np.diag(np.diag(by)[8:]), atol=1e-3)


# ------------------------------------------------------------------ where there is none
def test_a_gain_behind_the_rotation_leaves_no_gauge():
    """It stands between what is looked at and what is scored."""
    config = transformers.HunYuanDenseV1Config(**SMALL, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(0)
    model = transformers.HunYuanDenseV1ForCausalLM(config).eval()
    assert sorted(fitted(model)) == [0, 1]  # its gains are all 1
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith("model.layers.1.") and "key_layernorm" in name:
                weight.copy_(torch.linspace(0.5, 2, len(weight)))
    assert sorted(fitted(model)) == [0]


PAIRING = Pairing.of(8, (0, 1, 2, 3, 4, 5), "half")


def turn(x, angle):
    y = x.clone()
    for a, b in zip(PAIRING.first, PAIRING.second, strict=True):
        y[..., a] = x[..., a] * np.cos(angle) - x[..., b] * np.sin(angle)
        y[..., b] = x[..., a] * np.sin(angle) + x[..., b] * np.cos(angle)
    return y


def test_what_counts_as_turned():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 5, 8)))
    assert turned(x, x, PAIRING)
    assert turned(x, turn(x, 0.7), PAIRING)
    assert turned(x, turn(x, 0.7) * torch.linspace(0.5, 2, 5)[:, None], PAIRING)  # longer as a whole
    assert not turned(x, x[..., :4], PAIRING)
    for channel in range(8):
        stretched = turn(x, 0.7)
        stretched[..., channel] *= 1.2
        assert not turned(x, stretched, PAIRING)
    one = turn(x, 0.7)
    one[1, 2, 4] = turn(x, 0.7)[1, 2, 3]
    assert not turned(x, one, PAIRING)  # a single vector suffices
    assert float(cosine_similarity(x, turn(x, 0.7), dim=-1).max()) < 0.99  # it does turn


# ------------------------------------------------------------------ kept for a run that goes on
def test_they_are_fitted_once_and_read_afterwards(tmp_path):
    file = tmp_path / "state" / "gauges.safetensors"
    made = {1: np.random.default_rng(0).normal(size=(2, 4, 4)), 11: np.eye(3)[None]}
    first = kept_gauges(file, lambda: made)
    again = kept_gauges(file, lambda: pytest.fail("fitted again"))
    for found in (first, again):
        assert found.keys() == made.keys()
        assert all(np.array_equal(found[layer], made[layer]) for layer in made)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_none_are_kept_as_none(tmp_path):
    file = tmp_path / "gauges.safetensors"
    assert kept_gauges(file, dict) == {}
    assert kept_gauges(file, lambda: pytest.fail("fitted again")) == {}


def test_a_fit_that_was_stopped_leaves_nothing(tmp_path):
    file = tmp_path / "gauges.safetensors"

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        kept_gauges(file, stop)
    assert not list(tmp_path.iterdir())
