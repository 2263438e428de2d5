"""What is measured while a model is trained: against a slow oracle, and where the answer is known."""

import math

import numpy as np
import pytest
import torch

from geomprobe.attention.seam import attending
from geomprobe.attention.stages import Notebook
from geomprobe.lab.growth import measure, projections, step_geometry
from tests.lab.by_hand import Decoder
from tests.lab.decoders import SMALL, fresh, shaken, some_ids

LENGTH = 22
FIRST_ROW = 16
ARMS_MEASURED = pytest.mark.parametrize("arm", ["A0", "A1", "A3", "A5", "A6"])


# ------------------------------------------------------------------ a slow oracle
def angle(x, y):
    cosine = sum(x * y) / math.sqrt(sum(x * x) * sum(y * y))
    return math.acos(min(1.0, max(-1.0, cosine)))


def expected(layers, before=None):
    """The row of one layer, from what happened in it to each text (and to the same texts with earlier weights)."""
    row = {}
    for vector in "qk":
        for name, field in (("log_length", vector), ("log_projected", f"projected_{vector}")):
            found = [
                math.log(math.sqrt(sum(x * x))) for one in layers for head in getattr(one, field) for x in head[1:]
            ]
            row[f"{name}_{vector}"] = np.mean(found)
        turns = [
            angle(x, y)
            for one, other in zip(layers, before or [], strict=False)
            for head, was in zip(getattr(one, vector), getattr(other, vector), strict=True)
            for x, y in zip(head[1:], was[1:], strict=True)
        ]
        row[f"turn_{vector}"] = np.mean(turns) if turns else math.nan
    row["max_logit"] = max(abs(x) for one in layers for x in one.logits.flatten() if not math.isnan(x))
    rows = [head[t, : t + 1] for one in layers for head in one.attention for t in range(FIRST_ROW, LENGTH)]
    row["entropy"] = np.mean([-sum(p * math.log(p) for p in probabilities if p > 0) for probabilities in rows])
    row["first_mass"] = np.mean([probabilities[0] for probabilities in rows])
    return row


def happened(arm, model, ids):
    """By layer, what happened to each text."""
    return list(zip(*[Decoder(arm, model).read(text)[1] for text in ids.tolist()], strict=True))


def check(rows, layers, before=None):
    assert [row["layer"] for row in rows] == list(range(len(layers)))
    for index, row in enumerate(rows):
        due = expected(layers[index], None if before is None else before[index])
        assert row.keys() - {"layer"} == due.keys()
        for name, value in due.items():
            assert row[name] == pytest.approx(value, abs=1e-5, nan_ok=True), name


@ARMS_MEASURED
def test_measurements_are_those_of_the_oracle(arm):
    """Twice, with other weights the second time, so that vectors turn."""
    first, second = shaken(arm, dtype=torch.float64), shaken(arm, dtype=torch.float64, seed=1)
    ids = some_ids(2, LENGTH)
    model = shaken(arm)
    notebook = Notebook(attending(model))
    rows, vectors = measure(model, ids, {}, notebook)
    was = happened(arm, first, ids)
    check(rows, was)
    model.load_state_dict(second.state_dict())
    rows, _ = measure(model, ids, vectors, notebook)
    check(rows, happened(arm, second, ids), was)


def test_nothing_turns_where_nothing_changes():
    model = shaken("A1")
    notebook = Notebook(attending(model))
    rows, vectors = measure(model, some_ids(2, LENGTH), {}, notebook)
    assert set(vectors) == {"q0", "k0", "q1", "k1"}
    again, _ = measure(model, some_ids(2, LENGTH), vectors, notebook)
    for row, other in zip(rows, again, strict=True):
        assert all(math.isnan(row[f"turn_{vector}"]) for vector in "qk")
        assert all(other[f"turn_{vector}"] <= 1e-6 for vector in "qk")
        assert {name: x for name, x in row.items() if "turn" not in name} == {
            name: x for name, x in other.items() if "turn" not in name
        }


@pytest.mark.parametrize("training", [True, False])
def test_measuring_leaves_the_model_alone(training):
    model = shaken("A1").train(training)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    _, vectors = measure(model, some_ids(2, LENGTH), {}, Notebook(attending(model)))
    assert model.training is training
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(x.requires_grad for x in vectors.values())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_known_lengths_under_a_norm():
    """RMS norm without gain: queries and keys are √head_dim long whatever the weights, their projections are not."""
    model = shaken("A2")
    with torch.no_grad():
        for weight in projections(model).values():
            weight.mul_(50)
    rows, _ = measure(model, some_ids(2, LENGTH), {}, Notebook(attending(model)))
    for row in rows:
        for vector in "qk":
            assert row[f"log_length_{vector}"] == pytest.approx(0.5 * math.log(8), abs=1e-4)
            assert row[f"log_projected_{vector}"] > math.log(20)
        assert row["max_logit"] <= 8**0.5 + 1e-5


# ------------------------------------------------------------------ planted defects
@pytest.mark.parametrize(
    ("of", "to", "shows"),
    [
        ({"length": 60}, {"length": LENGTH}, "log_length_q"), ({"seed": 0}, {"seed": 3}, "log_length_q"),
    ],
)  # fmt: skip
def test_other_texts_are_caught(of, to, shows):
    model = shaken("A1")
    rows, _ = measure(model, some_ids(2, **{"length": LENGTH, **of}), {}, Notebook(attending(model)))
    layers = happened("A1", shaken("A1", dtype=torch.float64), some_ids(2, **{"length": LENGTH, **to}))
    with pytest.raises(AssertionError, match=shows):
        check(rows, layers)


@pytest.mark.parametrize("name", ["log_projected_k", "turn_q", "max_logit", "entropy", "first_mass"])
def test_each_number_is_held_against_the_oracle(name):
    model = shaken("A0")
    rows, _ = measure(model, some_ids(2, LENGTH), {}, Notebook(attending(model)))
    layers = happened("A0", shaken("A0", dtype=torch.float64), some_ids(2, LENGTH))
    check(rows, layers)
    rows[1][name] = 0.5 if name == "turn_q" else rows[1][name] * 1.001
    with pytest.raises(AssertionError, match=name):
        check(rows, layers)


# ------------------------------------------------------------------ how an update points
HEADS, DIM, HIDDEN = 6, 4, 10


def weights(seed=0, heads=HEADS, dtype=torch.float64):
    return torch.randn(heads * DIM, HIDDEN, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def geometry(after, before, shrunk=0.0):
    return step_geometry(after, before, shrunk=shrunk, head_dim=DIM)


@pytest.mark.parametrize(("factor", "cosine"), [(1.1, 1.0), (2.0, 1.0), (0.9, -1.0)])
def test_a_step_along_the_weights(factor, cosine):
    found = geometry(factor * weights(), weights())
    assert found["cosine"] == pytest.approx(cosine)
    assert found["radial_share"] == pytest.approx(1.0)
    assert found["log_growth"] == pytest.approx(math.log(factor))
    assert found["radial"] == pytest.approx(factor - 1)
    assert found["tangential"] == pytest.approx(0, abs=1e-7)
    assert found["radial_null"] == 1 / (DIM * HIDDEN)


def test_a_step_across_the_weights():
    """Of each head by itself: what is across in one head may be along in all together."""
    before = weights()
    blocks, step = before.reshape(HEADS, -1), weights(1).reshape(HEADS, -1)
    step = step - (step * blocks).sum(1, keepdim=True) / blocks.square().sum(1, keepdim=True) * blocks
    found = geometry(before + step.reshape(before.shape), before)
    assert found["cosine"] == pytest.approx(0.0, abs=1e-12)
    assert found["radial_share"] == pytest.approx(0.0, abs=1e-12)
    grown = np.log((1 + step.square().sum(1) / blocks.square().sum(1)).numpy()) / 2  # Pythagoras
    assert found["log_growth"] == pytest.approx(grown.mean())


def test_heads_are_taken_one_by_one():
    """One head grows and another shrinks by as much: on average along the weights and nowhere."""
    before = weights(heads=2)
    after = before.clone()
    after[:DIM] *= 1.25
    after[DIM:] *= 0.8
    found = geometry(after, before)
    assert found["cosine"] == pytest.approx(0.0, abs=1e-12)
    assert found["radial_share"] == pytest.approx(1.0)
    assert found["log_growth"] == pytest.approx(0.0, abs=1e-12)


def test_a_mixed_step_by_hand():
    """A head of length 2 in two channels, a step of 3 along and 4 across: cosine .6."""
    before, after = torch.tensor([[2.0], [0.0]]), torch.tensor([[5.0], [4.0]])
    found = step_geometry(after, before, shrunk=0.0, head_dim=2)
    assert found == pytest.approx(
        {
            **{"cosine": 0.6, "radial_share": 0.36, "radial_null": 0.5, "log_growth": math.log(41**0.5 / 2)},
            **{"radial": 1.5, "tangential": 2.0},
        }
    )


def test_random_steps_have_the_share_of_the_null():
    before = weights()
    shares, cosines = [], []
    for seed in range(1, 201):
        found = geometry(before + 0.01 * weights(seed), before)
        shares.append(found["radial_share"])
        cosines.append(found["cosine"])
    error = np.std(shares, ddof=1) / len(shares) ** 0.5
    assert error < 0.1 * found["radial_null"]  # narrow enough to tell
    assert abs(np.mean(shares) - found["radial_null"]) <= 3 * error
    assert abs(np.mean(cosines)) <= 3 * np.std(cosines, ddof=1) / len(cosines) ** 0.5


def test_decay_alone_is_no_step():
    shrunk = 0.013
    found = geometry(weights() * (1 - shrunk), weights(), shrunk)
    assert (found["cosine"], found["radial_share"]) == (0.0, 0.0)
    assert found["log_growth"] == pytest.approx(math.log(1 - shrunk))
    kept = geometry(weights() * (1 - shrunk), weights())  # without giving it back it would be a step inwards
    assert kept["cosine"] == pytest.approx(-1.0)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_decay_of_the_optimiser_is_given_back(decay):
    """One update of AdamW with the same gradient, with and without decay, points the same way."""
    rate, found = 0.01, {}
    for used in (0.0, decay):
        weight = torch.nn.Parameter(weights())
        weight.grad = weights(1)
        optimiser = torch.optim.AdamW([weight], lr=rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=used, fused=True)
        before = weight.detach().clone()
        optimiser.step()
        found[used] = geometry(weight.detach(), before, rate * used)
    for name in ("cosine", "radial_share"):
        assert found[decay][name] == pytest.approx(found[0.0][name], rel=1e-9)


def test_projections_are_those_of_queries_and_keys():
    model = fresh("A1")
    made = projections(model)
    assert list(made) == [(layer, vector) for layer in range(SMALL["num_hidden_layers"]) for vector in "qk"]
    for (layer, vector), weight in made.items():
        assert weight is model.get_parameter(f"model.layers.{layer}.self_attn.{vector}_proj.weight")
