"""Cases with a known answer: attention whose importance was put there."""

import numpy as np
import pytest
import torch

from geomprobe import testing
from geomprobe.attention.batch import blocks
from geomprobe.attention.spec import LayerSpec, ModelSpec, Spec
from geomprobe.attention.visibility import Visibility, causal
from geomprobe.probes.assembly import summarise
from geomprobe.probes.base import observe
from geomprobe.probes.class_attention import ClassAttention
from geomprobe.probes.gains import pair_asymmetry
from geomprobe.probes.logits import Logits
from geomprobe.probes.norms import Norms
from geomprobe.probes.sinks import Sinks
from geomprobe.stats.suffix import contrast, neighbours_of, queries_of

LAYER = LayerSpec(0, "planted", 1, 1, 4, None, 1.0, None, learned_sinks=False)
SPEC = Spec(ModelSpec((LAYER,)), testing.SPEC.corpus)


def tables(probe, batches):
    state = probe.init(SPEC)
    for batch in batches:
        observe([(probe, state)], batch)
    return summarise({"probe": (probe, state)}, SPEC)


@pytest.mark.parametrize("nats", [0.0, 0.5])
def test_class_sink_finds_what_was_planted_and_the_naive_contrast_does_not(nats):
    batches = [testing.planted_contrast(nats, seed=seed) for seed in range(40)]
    table = tables(ClassAttention(), batches)["class_attention"].set_index("token_class")
    assert table.loc["article", "class_sink"] == pytest.approx(nats, abs=0.02)
    assert table.loc["punctuation", "class_sink"] == pytest.approx(0, abs=0.02)
    assert table.loc["article", "n_types"] == 3


@pytest.mark.parametrize("window", [None, 60])
def test_suffix_sums_equal_brute_force(window):
    generator = torch.Generator().manual_seed(3)
    length, reach = 150, 8
    query = torch.randn(2, 4, length, 8, generator=generator, dtype=torch.float64)
    key = torch.randn(2, 2, length, 8, generator=generator, dtype=torch.float64)
    content = torch.rand(2, length, generator=generator) < 0.5
    seen = causal(length, length)
    if window:
        seen = Visibility((seen.high - window + 1).clamp(min=0), seen.high, length)
    near = neighbours_of(content, reach)
    value = contrast(query, key, neighbours=near, queries=queries_of(seen, reach), scale=0.25)
    offset, n = near.offset, near.count
    position = torch.arange(length)
    sees = (position <= position[:, None]) & (position[:, None] - position < (window or length))
    x = 0.25 * query @ key.repeat_interleave(2, 1).transpose(-1, -2)
    for k in range(length):
        around = [j for j in range(max(k - reach, 0), min(k + reach + 1, length)) if j != k]
        inside = all(0 <= j < length for j in (k - reach, k + reach))
        t = [t for t in range(k + reach + 1, length) if inside and all(sees[t, j] for j in (*around, k))]
        for b in range(2):
            mine = [j for j in around if content[b, j]]
            assert int(n[b, k]) == len(mine)
            if not mine or not t:
                assert torch.isnan(value[b, :, k]).all()
                continue
            assert float(offset[b, k]) == pytest.approx(np.mean([j - k for j in mine]), abs=1e-12)
            expected = (x[b][:, t][:, :, k] - x[b][:, t][:, :, mine].mean(-1)).mean(-1)
            torch.testing.assert_close(value[b, :, k], expected, rtol=1e-10, atol=1e-12)


def test_uniform_attention_has_no_sinks():
    batch = testing.planted_contrast(0.0, length=512)
    still = testing.QKBatch(
        0, {"scored": batch.q["scored"] * 0}, batch.k, batch.v, batch.tokens, batch.visibility, batch.scale
    )
    made = tables(Sinks(), [still])
    # Uniform causal α at T = 64 is .0741, and the mean of A_t0 over t = 1 … 511 is (H_512 − 1) / 511.
    harmonic = sum(1 / n for n in range(1, 513))
    assert made["sinks"].loc[0, "first_mass"] == pytest.approx((harmonic - 1) / 511, abs=1e-12)
    assert made["sink_rates"]["rate"].eq(0).all()
    assert made["sink_tokens"].empty


def test_a_planted_sink_is_found_by_name():
    batch = testing.planted_contrast(0.0, length=128)
    key = torch.zeros_like(batch.k["scored"])
    key[:, :, 30, 0] = 9.0
    query = torch.zeros_like(key)
    query[..., 0] = 1.0
    made = tables(
        Sinks(),
        [testing.QKBatch(0, {"scored": query}, {"scored": key}, {"scored": key}, batch.tokens, batch.visibility, 1.0)],
    )
    table = made["sink_tokens"]
    assert len(table) == 1
    assert table.loc[0, "n_sink"] == 1
    assert table.loc[0, "token_class"] == testing.SPEC.corpus.tokens[int(batch.tokens.token_index[0, 30])][1]


@pytest.mark.parametrize("first", [-2000.0, 2000.0])
def test_extreme_logits_at_position_0_leave_no_hole(first):
    batch = testing.planted_contrast(0.0, length=64)
    query = torch.ones(1, 1, 64, 4, dtype=torch.float32)
    key = torch.zeros(1, 1, 64, 4, dtype=torch.float32)
    key[..., 0, :] = first / 4
    vectors = {"scored": key}
    extreme = testing.QKBatch(0, {"scored": query}, vectors, vectors, batch.tokens, batch.visibility, 1.0)
    for block in blocks(extreme, rows=20):
        torch.testing.assert_close(block.probabilities.sum(-1), torch.ones(1, 1, block.n_rows))
        torch.testing.assert_close(block.probabilities.sum(-2), block.key_mass)
    taken = 0.0 if first < 0 else 1.0
    assert tables(Sinks(), [extreme])["sinks"].loc[0, "first_mass"] == taken
    row = tables(Logits(), [extreme])["logits"].iloc[0]
    # Without position 0 every other key is alike: entropy log t over rows t = 16 … 63.
    without = np.mean([np.log(t) for t in range(16, 64)])
    assert row["entropy_no_first"] == pytest.approx(without, rel=1e-6)
    assert row["entropy"] == pytest.approx(0.0 if first > 0 else without, rel=1e-6)
    assert row["max"] == max(first, 0)


def test_lengths_of_known_vectors():
    batch = testing.planted_contrast(0.0, length=64)
    key = torch.zeros(1, 1, 64, 4, dtype=torch.float64)
    key[..., 0] = torch.where(torch.arange(64) % 2 == 0, 2.0, 8.0)
    vectors = {"scored": key}
    made = tables(Norms(), [testing.QKBatch(0, vectors, vectors, vectors, batch.tokens, batch.visibility, 1.0)])
    row = made["norms"].query("vector == 'k' and token_class == 'all'").iloc[0]
    # 63 tokens without the first: 31 of length 2 and 32 of length 8
    assert row["n"] == 63
    assert row["geo_mean"] == pytest.approx(2 ** ((31 + 3 * 32) / 63))
    assert row["log_sd"] == pytest.approx(np.log(4) * np.sqrt(31 * 32) / 63)
    assert row["p50"] == pytest.approx(8, rel=0.011)
    assert row["p25"] == pytest.approx(2, rel=0.011)


def test_a_length_of_zero_is_kept_out_of_the_logarithms():
    batch = testing.planted_contrast(0.0, length=64)
    key = torch.ones(1, 1, 64, 4, dtype=torch.float64)
    key[:, :, 40] = 0
    vectors = {"scored": key}
    made = tables(Norms(), [testing.QKBatch(0, vectors, vectors, vectors, batch.tokens, batch.visibility, 1.0)])
    row = made["norms"].query("vector == 'k' and token_class == 'all'").iloc[0]
    assert (row["n"], row["min"], row["geo_mean"], row["log_sd"]) == (63, 0, 2, 0)
    assert row["mean"] == pytest.approx(2 * 62 / 63)


def test_pair_asymmetry():
    gain = np.array([1.0, 2.0, 0.0, 4.0, 1.0, -1.0, 3.0, 2.0])
    value, dropped = pair_asymmetry(gain, 8)  # pairs (1, 1), (2, −1), (0, 3), (4, 2)
    assert value == pytest.approx(np.log(2) * 2 / 3)
    assert dropped == 1
    assert pair_asymmetry(np.ones(8), 8) == (0.0, 0)
