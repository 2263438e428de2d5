"""Following channels back: columns that are found again, and how one vector was made of another."""

import pytest
import torch

from geomprobe.attention.columns import Layout, columns, fingerprints, layouts, match, match_whole
from geomprobe.attention.relation import relate
from geomprobe.attention.trace import Event, stages_of, trace

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 7, 8


def vectors(seed=0, heads=HEADS):
    return torch.randn(BATCH, heads, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))


def flat(x):
    return x.transpose(1, 2).flatten(2)


def event(kind, inputs, outputs, name="part"):
    return Event(kind, name, tuple(inputs), tuple(outputs), tuple(x._version for x in outputs))


# ------------------------------------------------------------------ columns
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((BATCH, HEADS, LENGTH, WIDTH), Layout("split", 2)),
        ((BATCH, LENGTH, HEADS, WIDTH), Layout("split", 1)),
        ((BATCH, LENGTH, HEADS * WIDTH), Layout("split", 1)),
        ((BATCH, HEADS * WIDTH, LENGTH), Layout("split", 2)),
        ((LENGTH, BATCH, HEADS * WIDTH), Layout("positions_first", 0)),
        ((BATCH * LENGTH, HEADS * WIDTH), Layout("merged")),
        ((BATCH * HEADS, LENGTH, WIDTH), Layout("heads_in_batch")),
    ],
)
def test_every_layout_gives_the_same_columns(shape, layout):
    x = vectors()
    if layout == Layout("split", 2):
        tensor = x.reshape(shape) if len(shape) == 4 else flat(x).transpose(1, 2)
    elif layout.form == "positions_first":
        tensor = flat(x).transpose(0, 1)
    elif layout.form == "merged":
        tensor = flat(x).reshape(shape)
    elif layout.form == "heads_in_batch":
        tensor = x.reshape(shape)
    else:
        tensor = x.transpose(1, 2).reshape(shape)
    assert tensor.shape == shape
    assert layout in layouts(tensor, BATCH, LENGTH)
    assert torch.equal(columns(tensor, layout, BATCH, LENGTH), flat(x))


def test_a_layout_that_does_not_fit_gives_nothing():
    assert columns(torch.zeros(BATCH, LENGTH + 1, 3), Layout("split", 1), BATCH, LENGTH) is None
    assert layouts(torch.zeros(5), BATCH, LENGTH) == []


def test_fingerprints_tell_columns_apart_and_forgive_the_sign_of_zero():
    x = torch.randn(1, 50, 300)
    x[..., 7] = x[..., 3]
    x[..., 8], x[..., 9] = 0.0, -0.0
    prints = fingerprints(x)
    assert prints[7] == prints[3]
    assert prints[8] == prints[9]
    assert len(prints.unique()) == 298


def test_match_finds_a_permutation_and_knows_what_is_ambiguous():
    have = torch.tensor([10, 20, 30, 40, 40])
    every = torch.ones(3, dtype=torch.bool)
    found = match(torch.tensor([30, 10, 99]), every, have)
    assert found.channels.tolist() == [0, 1]
    assert found.columns.tolist() == [2, 0]
    assert found.sure
    assert not match(torch.tensor([40, 10, 20]), every, have).sure
    assert match(torch.tensor([1, 2, 3]), every, have) is None


def test_whole_vectors_are_found_where_they_begin():
    have = torch.arange(12)
    every = torch.ones(4, dtype=torch.bool)
    assert match_whole(torch.arange(4, 8), every, have).start == 4
    assert match_whole(torch.arange(3, 7), every, have) is None  # not at a multiple of the width


# ------------------------------------------------------------------ traces
def test_a_fused_and_interleaved_projection():
    """Query, key and value side by side in each head, as GPT-NeoX has them."""
    q, k, v = vectors(1), vectors(2), vectors(3)
    fused = torch.stack([q, k, v], dim=3).permute(0, 2, 1, 3, 4).flatten(2)  # (batch, pos, head · 3 · width)
    events = [event("projection", [torch.zeros(BATCH, LENGTH, 5)], [fused])]
    for x in (q, k, v):
        path = trace(x, events)
        assert path.complete
        assert path.sure
        assert torch.equal(stages_of(x, path, events)["projected"], x)


def test_a_rotation_of_a_part_of_each_head():
    q = vectors(1)
    part, rest = q[..., :4], q[..., 4:]
    turned = torch.cat([-part[..., 2:], part[..., :2]], -1) * 1.5
    scored = torch.cat([turned, rest], -1)
    events = [
        event("projection", [torch.zeros(BATCH, LENGTH, 5)], [flat(q)]),
        event("rotation", [part], [turned], "turn"),
    ]
    path = trace(scored, events)
    assert path.complete
    assert [step.kind for step in path.steps].count("rotation") == 1
    stages = stages_of(scored, path, events)
    assert torch.equal(stages["content"], q)
    assert torch.equal(stages["projected"], q)


def test_a_latent_that_is_spread_over_heads():
    """One rotated part for all heads, as in DeepSeek's MLA."""
    own, shared = vectors(1)[..., :4], vectors(2, heads=1)[..., :4]
    scored = torch.cat([own, shared.expand(-1, HEADS, -1, -1)], -1)
    events = [
        event("projection", [torch.zeros(BATCH, LENGTH, 3)], [flat(own)], "up"),
        event("projection", [torch.zeros(BATCH, LENGTH, 3)], [flat(shared)], "down"),
    ]
    path = trace(scored, events)
    assert path.complete
    assert torch.equal(stages_of(scored, path, events)["projected"], scored)


def test_dead_channels_do_not_lead_astray():
    """A channel of zeros in the query looks like one of the key's, which was put out later."""
    q, k = vectors(1), vectors(2)
    gain_q, gain_k = torch.ones(WIDTH), torch.ones(WIDTH)
    gain_q[3] = gain_k[5] = 0
    events = [
        event("projection", [torch.zeros(BATCH, LENGTH, 5)], [flat(q)], "q_proj"),
        event("projection", [torch.zeros(BATCH, LENGTH, 5)], [flat(k)], "k_proj"),
        event("norm", [q], [q * gain_q], "q_norm"),
        event("norm", [k], [k * gain_k], "k_norm"),
    ]
    path = trace(q * gain_q, events)
    assert [step.name for step in path.steps] == ["q_norm", "q_proj"]


def test_a_projection_that_was_written_into_is_not_given():
    q = vectors(1)
    projected = flat(q)
    events = [event("projection", [torch.zeros(BATCH, LENGTH, 5)], [projected])]
    projected.clamp_(-1, 1)
    scored = projected.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
    path = trace(scored, events)
    assert path.complete
    assert "projected" not in stages_of(scored, path, events)


def test_what_came_from_nowhere_is_not_explained():
    events = [event("projection", [torch.zeros(BATCH, LENGTH, 5)], [flat(vectors(1))])]
    path = trace(vectors(2), events)
    assert not path.complete
    assert set(stages_of(vectors(2), path, events)) == {"scored"}


# ------------------------------------------------------------------ relations
def rms(x, dims):
    return x * x.square().mean(dims, keepdim=True).rsqrt()


GAIN = torch.linspace(0.5, 2, WIDTH)
RELATIONS = {
    "a scale": (lambda x: 0.3 * x, "scale", "full"),
    "a scale of each channel": (lambda x: GAIN * x, "scale", "full"),
    "a scale by position": (lambda x: x * torch.linspace(1, 2, LENGTH)[:, None], "scale", "full"),
    "an RMS norm": (lambda x: rms(x, -1), "rms", "head"),
    "an RMS norm over the full width": (lambda x: rms(x, (1, 3)), "rms", "full"),
    "an L2 norm": (lambda x: x / x.norm(dim=-1, keepdim=True), "l2", "head"),
    "a cap on lengths": (lambda x: x * (2.5 / x.norm(dim=-1, keepdim=True)).clamp(max=1), "clip", "head"),
    "a clamp": (lambda x: x.clamp(-0.7, 0.7), "clamp", "head"),
}


@pytest.mark.parametrize("name", RELATIONS)
def test_relations(name):
    make, kind, axis = RELATIONS[name]
    x = vectors(4)
    found = relate(make(x), x)
    assert (found.kind, found.axis) == (kind, axis)


def test_a_norm_with_a_gain_shows_the_gain():
    x = vectors(4)
    found = relate(rms(x, -1) * GAIN, x)
    assert found.axis == "head"
    shape = found.gain / found.gain[:, :1]
    assert (shape - (GAIN / GAIN[0]).double()).abs().max() <= 1e-5


def test_two_vectors_that_have_nothing_to_do_with_each_other():
    assert relate(vectors(1), vectors(2)) is None
    assert relate(vectors(1), vectors(1) + 0.01 * vectors(2)) is None
