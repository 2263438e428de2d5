import random
from collections import defaultdict
from itertools import product
from math import exp, log

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from geomprobe.errors import InvalidParameter
from geomprobe.lab import train
from geomprobe.lab.arms import ARMS
from geomprobe.lab.backcopy import BOS, GRAIN, TRIGGERS, BackcopySupply, idle_sinks, transition_table
from geomprobe.lab.folder import TrainingFolder
from geomprobe.lab.model import LabConfig, LabForCausalLM, initialise
from geomprobe.lab.recipe import Recipe, Size, preset

FROM_ROW = 16


def supply(**changes) -> BackcopySupply:
    return BackcopySupply(preset("backcopy", **changes))


# ---------------------------------------------------------------------- the task
def test_behind_a_trigger_comes_the_token_before_it():
    for ids in (supply().batch(3).tolist(), supply().held_out(256, 20).tolist()):
        n = 0
        for sequence in ids:
            assert sequence[0] == BOS
            assert BOS not in sequence[1:]
            for before, now, after in zip(sequence, sequence[1:], sequence[2:], strict=False):
                if now in TRIGGERS:
                    n += 1
                    assert after == before
                    assert before not in (BOS, *TRIGGERS)
        assert n > 100


def test_behind_other_tokens_the_table_holds():
    made = supply()
    ids = made.held_out(64, 2000).numpy()
    seen = np.zeros((64, 64))
    np.add.at(seen, (ids[:, :-1].ravel(), ids[:, 1:].ravel()), 1)
    n_tested = 0
    for token in set(range(64)) - set(TRIGGERS):
        n, p = seen[token].sum(), made.table[token]
        assert seen[token][p == 0].sum() == 0
        common = n * p >= 5
        if common.sum() < 3:
            continue
        rest = n * p[~common].sum()
        found, expected = seen[token][common].tolist(), (n * p[common]).tolist()
        if rest >= 5:
            found, expected = [*found, n - sum(found)], [*expected, rest]
        else:
            expected = [x * sum(found) / sum(expected) for x in expected]
        assert chisquare(found, expected).pvalue > 1e-5, token
        n_tested += 1
    assert n_tested > 50


def test_a_shifted_table_does_not_hold():
    """The defect that the test above must catch: rows of another token."""
    made = supply()
    ids = made.held_out(64, 2000).numpy()
    after = ids[:, 1:][ids[:, :-1] == 4]
    found = np.bincount(after, minlength=64)
    wrong = made.table[5] * len(after)
    common = wrong >= 5
    assert chisquare(found[common], wrong[common] * found[common].sum() / wrong[common].sum()).pvalue < 1e-9


def test_the_table_is_whole_and_its_triggers_frequent():
    table = transition_table(64)
    ordinary = [token for token in range(64) if token not in TRIGGERS]
    assert (table[ordinary].sum(1) == 1).all()
    assert (table[list(TRIGGERS)] == 0).all()
    assert (table[:, BOS] == 0).all()
    assert (table[BOS, list(TRIGGERS)] == 0).all()
    assert (table * GRAIN == np.rint(table * GRAIN)).all()
    frequent = np.bincount(supply().held_out(64, 500)[:, 1:].ravel().numpy(), minlength=64).argsort()[::-1]
    assert set(TRIGGERS) <= set(frequent[:8].tolist())


def test_the_data_are_known_by_their_hash():
    assert supply().sha256 == supply(seed=7, arm=ARMS["A3"], length=32).sha256
    assert supply().sha256 != supply(size=Size(vocab_size=32)).sha256
    assert supply().sha256 == "558558dd753d09bf1b1dc63012d9ff9ed441e862254389522bec29ad54d1cbe2"
    assert supply().batch(0)[0, :12].tolist() == [0, 25, 47, 59, 17, 3, 17, 3, 17, 43, 1, 43]


def test_batches_are_decided_by_seed_and_step():
    one, twin = supply(seed=1), supply(seed=1, arm=ARMS["A1"])
    late = twin.batch(5)
    assert torch.equal(one.batch(2), twin.batch(2))  # in another order
    assert torch.equal(one.batch(5), late)
    assert late.shape == (64, 65)
    assert late.dtype == torch.int64
    assert not torch.equal(one.batch(5), one.batch(6))
    assert not torch.equal(one.batch(5), supply(seed=2).batch(5))
    assert not torch.equal(one.batch(0), supply(seed=0).batch(1))


def test_what_is_held_out_is_no_batch_of_any_seed():
    held_out = supply().held_out(64, 64)
    assert torch.equal(held_out, supply(seed=3).held_out(64, 64))
    assert torch.equal(held_out[:2], supply().held_out(64, 2))
    kept = {tuple(row) for row in held_out.tolist()}
    for seed in range(4):
        for step in range(50):
            assert kept.isdisjoint(map(tuple, supply(seed=seed).batch(step).tolist()))
    assert supply().held_out(256, 3).shape == (3, 257)


@pytest.mark.parametrize("vocab_size", [4, 2048])
def test_a_vocabulary_that_does_not_fit_is_refused(vocab_size):
    with pytest.raises(InvalidParameter, match=f"vocab_size of the task backcopy must be between .* got {vocab_size}"):
        supply(size=Size(vocab_size=vocab_size))


# ---------------------------------------------------------------------- the floor
def test_the_floor_is_the_loss_of_the_rule_itself():
    """Simulated a token at a time by the words of the rule, with a generator of another kind."""
    table = transition_table(64).tolist()
    dice = random.Random(0)
    losses = []
    for _ in range(3000):
        before, now, loss = None, BOS, 0.0
        for _ in range(64):
            if now in TRIGGERS:
                after = before
            else:
                (after,) = dice.choices(range(64), weights=table[now])
                loss -= log(table[now][after])
            before, now = now, after
        losses.append(loss / 64)
    assert supply().floor(64) == pytest.approx(np.mean(losses), abs=4 * np.std(losses) / 3000**0.5)


def test_the_floor_of_one_token_is_the_entropy_of_the_first_row():
    first = [p for p in transition_table(64)[BOS].tolist() if p]
    assert supply().floor(1) == pytest.approx(-sum(p * log(p) for p in first))


def test_no_loss_goes_below_the_floor(tmp_path, monkeypatch):
    """And `Training` works without a tokenizer."""
    monkeypatch.setattr(train, "HELD_OUT_TOKENS", 1024)
    size = Size(vocab_size=16, hidden=16, intermediate=16, layers=1, heads=1, kv_heads=1, head_dim=8)
    recipe = Recipe(task="backcopy", size=size, length=32, batch=8, tokens=40 * 8 * 32, rate=1e-2)
    made = BackcopySupply(recipe)
    folder = TrainingFolder(tmp_path / "run")
    assert not folder.open(recipe.fingerprint(made.sha256), {}, overwrite=False)
    manifest = train.Training(recipe, made, folder, None, {}).run()
    losses = manifest["held_out_loss"]
    assert all(made.floor(32 * int(factor)) - 0.05 < loss < log(16) for factor, loss in losses.items())
    assert manifest["saved_steps"][-1] == 40


# ---------------------------------------------------------------------- the measure
def tiny(arm: str, **changes) -> LabForCausalLM:
    widths = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}
    fields = {**widths, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, **changes}
    model = LabForCausalLM(LabConfig(**fields, **ARMS[arm].fields))
    initialise(model, 0)
    return model


def rotated(x: np.ndarray) -> np.ndarray:
    """RoPE with complex numbers: (pos, head_dim) float64."""
    half = x.shape[1] // 2
    turns = np.outer(np.arange(len(x)), 10000.0 ** (-np.arange(half) / half))
    z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * turns)
    return np.concatenate([z.real, z.imag], axis=1)


def vectors(model: LabForCausalLM, ids: torch.Tensor) -> dict[tuple[int, int, int], tuple[np.ndarray, ...]]:
    """(q, k, v), (pos, head_dim) each, by layer, head and sequence, from what the projections gave."""
    kept = {}
    for index, layer in enumerate(model.model.layers):
        for vector in "qkv":
            getattr(layer.self_attn, f"{vector}_proj").register_forward_hook(
                lambda _m, _a, out, key=(index, vector): kept.__setitem__(key, out.detach().double().numpy())
            )
    with torch.no_grad():
        model.model(ids)
    found = {}
    for index, head, sequence in product(range(2), range(4), range(len(ids))):
        q, k, v = (kept[index, vector][sequence] for vector in "qkv")
        q, k, v = q[:, head * 8 : head * 8 + 8], *(x[:, head // 2 * 8 : head // 2 * 8 + 8] for x in (k, v))
        norms = [model.model.layers[index].self_attn.q_norm, model.model.layers[index].self_attn.k_norm]
        if norms[0] is not None:
            q, k = (
                x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * norm.weight.detach().double().numpy()
                for x, norm in zip((q, k), norms, strict=True)
            )
        found[index, head, sequence] = rotated(q), rotated(k), v
    return found


def row_of(q: np.ndarray, k: np.ndarray, row: int, *, trigger: bool) -> dict[str, float]:
    """What one query row counts for."""
    logits = [float(q[row] @ k[key]) / 8**0.5 for key in range(row + 1)]
    share = [exp(logit) / sum(map(exp, logits)) for logit in logits]
    if trigger:
        return {"trigger_first": share[0], "trigger_before": share[row - 1], "trigger_uniform": 1 / (row + 1)}
    reach = [np.linalg.norm(q[row]) * np.linalg.norm(k[key]) / 8**0.5 for key in range(row + 1)]
    first, others = reach[0], np.mean(reach[1:])
    cos_first, cos_others = logits[0] / first, np.mean(logits[1:]) / others
    return {
        "idle_first": share[0],
        "idle_uniform": 1 / (row + 1),
        "logit_gap": logits[0] - np.mean(logits[1:]),
        "cos_first": cos_first,
        "cos_others": cos_others,
        "length_first": first,
        "length_others": others,
        "gap_by_length": (first - others) * (cos_first + cos_others) / 2,
        "gap_by_angle": (first + others) * (cos_first - cos_others) / 2,
    }


def slow(model: LabForCausalLM, ids: torch.Tensor) -> list[dict[str, float]]:
    """`idle_sinks` in loops over layers, heads, sequences, rows and keys."""
    rows, made = [], vectors(model, ids)
    for index, head in product(range(2), range(4)):
        found = defaultdict(list)
        for sequence, tokens in enumerate(ids.tolist()):
            q, k, v = made[index, head, sequence]
            for position in range(len(tokens)):
                which = "others" if position else "first"
                found[f"key_{which}"].append(np.linalg.norm(k[position]))
                found[f"value_{which}"].append(np.linalg.norm(v[position]))
            for row in range(FROM_ROW, len(tokens)):
                for name, value in row_of(q, k, row, trigger=tokens[row] in TRIGGERS).items():
                    found[name].append(value)
        counts = {"n_idle": len(found["idle_first"]), "n_trigger": len(found["trigger_first"])}
        rows.append({"layer": index, "head": head, **counts, **{name: np.mean(x) for name, x in found.items()}})
    return rows


@pytest.mark.parametrize("arm", ["A0", "A1"])
def test_sinks_against_loops(arm):
    model = tiny(arm)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # large enough that attention is far from uniform
            parameter.mul_(1 + torch.rand(parameter.shape, generator=generator)).mul_(1 if "norm" in name else 20)
    ids = supply(length=24, batch=3).batch(0)[:, :-1]
    model.train()
    table = idle_sinks(model, ids)
    assert model.training
    wanted = slow(model, ids)
    assert len(table) == len(wanted) == 8
    for got, want in zip(table.to_dict("records"), wanted, strict=True):
        assert got == pytest.approx(want, rel=2e-4, abs=2e-5)
    assert table["logit_gap"].to_numpy() == pytest.approx((table.gap_by_length + table.gap_by_angle).to_numpy())


def planted(first: float, others: float) -> LabForCausalLM:
    """A model of known queries, keys and values.

    Idle queries are 2 long, along channel 1, where the first key has `first` and all others `others`; trigger queries
    are 0. The value of BOS is .5 long, those of the others 3.
    """
    changes = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4}
    model = tiny("A0", **changes, rope_theta=1e30)  # turns channel 0 with 2 alone
    bos, idle, trigger = 0, 1, 2  # channels of the stream
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        model.model.embed_tokens.weight.zero_()
        model.model.embed_tokens.weight[:, idle] = 1
        for tokens, channel in ((BOS, bos), (list(TRIGGERS), trigger)):
            model.model.embed_tokens.weight[tokens] = 0
            model.model.embed_tokens.weight[tokens, channel] = 1
        for made in (attention.q_proj, attention.k_proj, attention.v_proj):
            made.weight.zero_()
        attention.q_proj.weight[1, idle] = 2 / 4  # the norm before it makes each embedding √16 long
        attention.k_proj.weight[1, [bos, idle, trigger]] = torch.tensor([first, others, others]) / 4
        attention.v_proj.weight[3, [bos, idle, trigger]] = torch.tensor([0.5, 3.0, 3.0]) / 4
    return model


def test_a_planted_sink_by_angle():
    """Keys of equal length, the first along the query and the others against it: logits of 4 and −4."""
    ids = supply().held_out(40, 5)[:, :-1]
    (row,) = idle_sinks(planted(4.0, -4.0), ids).to_dict("records")
    rows = [[at for at in range(FROM_ROW, 40) if sequence[at] not in TRIGGERS] for sequence in ids.tolist()]
    mass = [exp(4) / (exp(4) + at * exp(-4)) for chosen in rows for at in chosen]
    assert row["n_idle"] == len(mass)
    assert row["n_idle"] + row["n_trigger"] == 5 * (40 - FROM_ROW)
    assert row["idle_first"] == pytest.approx(np.mean(mass), abs=1e-5)
    assert row["idle_uniform"] == pytest.approx(np.mean([1 / (at + 1) for chosen in rows for at in chosen]))
    assert row["trigger_first"] == row["trigger_before"] == pytest.approx(row["trigger_uniform"])
    known = {
        "logit_gap": 8,
        "gap_by_angle": 8,
        "gap_by_length": 0,
        "cos_first": 1,
        "cos_others": -1,
        "length_first": 4,
        "length_others": 4,
        "key_first": 4,
        "key_others": 4,
        "value_first": 0.5,
        "value_others": 3,
    }
    assert {name: row[name] for name in known} == pytest.approx(known, abs=1e-3)


def test_a_planted_sink_by_length():
    """Every key against the query, the first a short one: logits of −1 and −5."""
    (row,) = idle_sinks(planted(-1.0, -5.0), supply().held_out(40, 5)[:, :-1]).to_dict("records")
    known = {"logit_gap": 4, "gap_by_angle": 0, "gap_by_length": 4, "cos_first": -1, "cos_others": -1, "key_first": 1}
    assert {name: row[name] for name in known} == pytest.approx(known, abs=1e-3)
    assert row["idle_first"] > 0.5


def test_no_sink_where_attention_is_even():
    (row,) = idle_sinks(planted(3.0, 3.0), supply().held_out(40, 5)[:, :-1]).to_dict("records")
    assert row["idle_first"] == pytest.approx(row["idle_uniform"])
    assert row["logit_gap"] == pytest.approx(0, abs=1e-5)


def test_means_of_no_rows_are_nan():
    (row,) = idle_sinks(planted(3.0, 3.0), torch.full((2, 20), 9)).to_dict("records")
    assert row["n_trigger"] == 0
    assert np.isnan(row["trigger_first"])
    assert row["idle_first"] == pytest.approx(row["idle_uniform"])
