"""The balanced gauge against matrices written down anew, and what it leaves alone: attention, and itself."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from geomprobe.stats.gauge import Gauge, Pairing, add, balanced, empty

WIDTH, LENGTH, HEADS, GROUPS = 8, 60, 4, 2
TURNING = {
    "half": ("half", tuple(range(WIDTH))),
    "interleaved": ("interleaved", tuple(range(WIDTH))),
    "none": ("none", ()),
    "partial half": ("half", (0, 1, 2, 3)),
    "partial interleaved": ("interleaved", (0, 1, 2, 3)),
    "partial at the end": ("half", (4, 5, 6, 7)),
}
ALL = pytest.mark.parametrize("name", list(TURNING))
BOTH = pytest.mark.parametrize("centred", [True, False])


def pairs_of(name):
    """Pairs of channels and channels that do not turn, written down by hand."""
    kind, channels = TURNING[name]
    half = len(channels) // 2
    if kind == "interleaved":
        pairs = [(channels[2 * i], channels[2 * i + 1]) for i in range(half)]
    else:
        pairs = [(channels[i], channels[i + half]) for i in range(half)]
    return pairs, [c for c in range(WIDTH) if c not in channels]


def draw(seed=0, *, n=3):
    """Queries and keys with channels that depend on each other, of other spreads, off centre; a huge position 0."""
    rng = np.random.default_rng(seed)
    made = []
    for heads in (HEADS, GROUPS):
        mix = rng.normal(size=(heads, WIDTH, WIDTH)) * np.exp(rng.normal(0, 0.7, (heads, 1, WIDTH)))
        x = np.einsum("bhtc,hcd->bhtd", rng.normal(size=(n, heads, LENGTH, WIDTH)), mix)
        x += 2 * rng.normal(size=(heads, 1, WIDTH))
        x[:, :, 0] *= 1000
        made.append(torch.from_numpy(x))
    return made


def gauge_of(query, key, name, *, centred=True):
    kind, channels = TURNING[name]
    moments = empty(key.shape[1], key.shape[3])
    add(moments, query, key)
    return balanced(moments, Pairing.of(key.shape[3], channels, kind), centred=centred)


def oracle(query, key, name, *, centred):
    """One kv_head after the other: (matrix of keys, matrix of queries, centre)."""
    pairs, free = pairs_of(name)
    q, k = query.numpy()[:, :, 1:], key.numpy()[:, :, 1:]
    made = []
    for head in range(GROUPS):
        mine_q = q[:, head * 2 : head * 2 + 2].reshape(-1, WIDTH)
        mine_k = k[:, head].reshape(-1, WIDTH)
        m, w, c = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.zeros(WIDTH)
        for a, b in pairs:
            of_q = np.mean([v[a] ** 2 + v[b] ** 2 for v in mine_q])
            of_k = np.mean([v[a] ** 2 + v[b] ** 2 for v in mine_k])
            m[a, a] = m[b, b] = (of_q / of_k) ** 0.25
            w[a, a] = w[b, b] = (of_k / of_q) ** 0.25
        if free:
            if centred:
                c[free] = mine_k[:, free].mean(0)
            x, y = mine_q[:, free], mine_k[:, free] - c[free]
            of_q, of_k = x.T @ x / len(x), y.T @ y / len(y)
            root = sqrtm(of_k).real
            inverse = np.linalg.inv(root)
            made_of = sqrtm(inverse @ sqrtm(root @ of_q @ root).real @ inverse).real
            m[np.ix_(free, free)] = made_of
            w[np.ix_(free, free)] = np.linalg.inv(made_of).T
        made.append((m, w, c))
    return [np.stack(x) for x in zip(*made, strict=True)]


def logits(query, key):
    return query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(-1, -2)


def looks(query, key):
    """Lengths of both and every cosine: what a gauge decides."""
    cosines = logits(query / query.norm(dim=-1, keepdim=True), key / key.norm(dim=-1, keepdim=True))
    return query.norm(dim=-1), key.norm(dim=-1), cosines


def moments_of(query, key):
    """Second moments by kv_head, position 0 left out: (q, k), each (kv_head, channel, channel)."""
    q = query[:, :, 1:].unflatten(1, (key.shape[1], -1)).double()
    of_q = torch.einsum("bgrtc,bgrtd->gcd", q, q) / (q.shape[0] * q.shape[2] * q.shape[3])
    k = key[:, :, 1:].double()
    return of_q, torch.einsum("bgtc,bgtd->gcd", k, k) / (k.shape[0] * k.shape[2])


@BOTH
@ALL
def test_equals_the_oracle(name, centred):
    query, key = draw()
    found = gauge_of(query, key, name, centred=centred)
    expected = oracle(query, key, name, centred=centred)
    for got, wanted in zip((found.key, found.query, found.centre), expected, strict=True):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-9, atol=1e-10)
    assert found.n_kept == 0


@BOTH
@ALL
def test_attention_is_unchanged(name, centred):
    query, key = draw(1)
    query, key = query / 10, key / 10
    found = gauge_of(query, key, name, centred=centred)
    before, after = logits(query, key), logits(*found.apply(query, key))
    moved = after - before
    if centred and pairs_of(name)[1]:  # one number a row
        assert moved[..., 1:, :].abs().max() > 0.1
        moved = moved - moved[..., :1]
    else:
        assert not found.centre.any()
    scale = before.abs().amax((-1, -2), keepdim=True)
    assert (moved.abs() / scale).max() < 1e-12
    assert moved[..., 1:, 1:].abs().max() < 1e-10


def check_moments(found, query, key, name):
    of_q, of_k = moments_of(*found.apply(query, key))
    pairs, free = pairs_of(name)
    for a, b in pairs:
        torch.testing.assert_close(of_q[:, a, a] + of_q[:, b, b], of_k[:, a, a] + of_k[:, b, b], rtol=1e-10, atol=0)
    if free:
        torch.testing.assert_close(of_q[:, free][..., free], of_k[:, free][..., free], rtol=1e-8, atol=1e-9)


@BOTH
@ALL
def test_queries_and_keys_have_the_same_moments(name, centred):
    query, key = draw(2)
    check_moments(gauge_of(query, key, name, centred=centred), query, key, name)
    raw_q, raw_k = moments_of(query, key)
    assert (raw_q / raw_k - 1).diagonal(dim1=1, dim2=2).abs().max() > 0.5


DEFECTS = {
    "the root is a square root": lambda g: Gauge(g.key @ g.key, g.query @ g.query, g.centre, 0),
    "queries and keys are mixed up": lambda g: Gauge(g.query, g.key, g.centre, 0),
    "nothing is done": lambda g: Gauge(g.key * 0 + torch.eye(WIDTH), g.query * 0 + torch.eye(WIDTH), g.centre, 0),
    "kv_heads are mixed up": lambda g: Gauge(g.key.flip(0), g.query.flip(0), g.centre, 0),
}


@pytest.mark.parametrize("defect", list(DEFECTS))
@pytest.mark.parametrize("name", ["half", "none", "partial half"])
def test_a_defect_would_be_seen(name, defect):
    query, key = draw(2)
    broken = DEFECTS[defect](gauge_of(query, key, name))
    with pytest.raises(AssertionError, match="not close"):
        check_moments(broken, query, key, name)


@BOTH
@ALL
def test_balancing_twice_changes_nothing(name, centred):
    query, key = gauge_of(*draw(3), name, centred=centred).apply(*draw(3))
    again = gauge_of(query, key, name, centred=centred)
    one = torch.eye(WIDTH, dtype=torch.float64).expand(GROUPS, -1, -1)
    torch.testing.assert_close(again.key, one, rtol=0, atol=1e-8)
    torch.testing.assert_close(again.query, one, rtol=0, atol=1e-8)
    assert again.centre.abs().max() < 1e-10


def disguised(query, key, name, seed, *, centred):
    """The same attention described otherwise: a complex number a pair, any matrix and shift where nothing turns."""
    rng = np.random.default_rng(seed)
    pairs, free = pairs_of(name)
    by = np.zeros((GROUPS, WIDTH, WIDTH))
    shift = np.zeros((GROUPS, WIDTH))
    for head in range(GROUPS):
        for a, b in pairs:
            size, angle = np.exp(rng.normal()), rng.uniform(0, 2 * np.pi)
            x, y = size * np.cos(angle), size * np.sin(angle)
            by[head, a, a], by[head, a, b], by[head, b, a], by[head, b, b] = x, y, -y, x
        if free:
            by[head][np.ix_(free, free)] = rng.normal(size=(len(free), len(free))) + 2 * np.eye(len(free))
            shift[head, free] = rng.normal(size=len(free)) if centred else 0
    to = torch.from_numpy(np.linalg.inv(by).transpose(0, 2, 1).copy()).repeat_interleave(HEADS // GROUPS, 0)
    moved = key @ torch.from_numpy(by) + torch.from_numpy(shift)[:, None]
    return query @ to, moved


@pytest.mark.parametrize("seed", range(3))
@BOTH
@ALL
def test_the_description_does_not_depend_on_the_one_it_came_from(name, centred, seed):
    query, key = draw(4)
    other = disguised(query, key, name, seed, centred=centred)
    same = logits(*other) - logits(query, key)
    assert (same - same[..., :1]).abs().max() < 1e-9 * logits(query, key).abs().max()
    raw = zip(looks(query, key), looks(*other), strict=True)
    assert all((a / b - 1).abs().max() > 0.1 for a, b in raw)
    made = (gauge_of(*x, name, centred=centred).apply(*x) for x in ((query, key), other))
    for a, b in zip(*(looks(*x) for x in made), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("given", "taken"), [("half", "interleaved"), ("interleaved", "half")])
def test_another_pairing_would_be_seen(given, taken):
    query, key = draw(4)
    other = disguised(query, key, given, 0, centred=True)
    one, two = (looks(*gauge_of(*x, taken).apply(*x)) for x in ((query, key), other))
    for a, b in zip(one, two, strict=True):
        assert not torch.allclose(a, b, rtol=1e-2)


def test_queries_of_a_group_are_pooled():
    query, key = draw(5)
    for head in range(GROUPS):
        alone = torch.cat([query[:, 2 * head + i, 1:] for i in range(2)], 1)  # their positions one after the other
        keys = torch.cat([key[:, head, 1:]] * 2, 1)
        start = torch.zeros(len(key), 1, WIDTH, dtype=torch.float64)
        alone, keys = (torch.cat([start, x], 1)[:, None] for x in (alone, keys))
        for name in ("half", "none"):
            one, all_heads = gauge_of(alone, keys, name), gauge_of(query, key, name)
            torch.testing.assert_close(one.key[0], all_heads.key[head], rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(one.centre[0], all_heads.centre[head], rtol=1e-10, atol=1e-12)
    # Neither the first head of a group alone, nor heads taken in turn.
    for heads in ([0, 0, 2, 2], [0, 2, 1, 3]):
        assert not torch.allclose(gauge_of(query[:, heads], key, "half").key, all_heads.key, rtol=0.05)


@ALL
def test_position_0_is_left_out(name):
    query, key = draw(6)
    before = gauge_of(query, key, name)
    query[:, :, 0], key[:, :, 0] = 7.0, -3e9
    after = gauge_of(query, key, name)
    for part in ("key", "query", "centre"):
        assert torch.equal(getattr(before, part), getattr(after, part))


def test_moments_add_up():
    query, key = draw(7)
    parts, whole = empty(GROUPS, WIDTH), empty(GROUPS, WIDTH)
    add(whole, query, key)
    for at in range(len(key)):
        add(parts, query[at : at + 1], key[at : at + 1])
    assert int(whole["n"]) == len(key) * (LENGTH - 1)
    assert int(whole["n_q"]) == 2 * len(key) * (LENGTH - 1)
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("vector", ["q", "k", "both"])
def test_a_pair_without_moments_keeps_its_scale_and_is_counted(vector):
    query, key = draw(8)
    pair = [1, 5]
    if vector != "k":
        query[:, 2:, :, pair] = 0
    if vector != "q":
        key[:, 1, :, pair] = 0
    found = gauge_of(query, key, "half")
    assert found.n_kept == 1  # in one of the two heads
    one = torch.ones(2, dtype=torch.float64)
    assert torch.equal(found.key[1].diagonal()[pair], one)
    assert torch.equal(found.query[1].diagonal()[pair], one)
    assert (found.key[0].diagonal()[pair] != 1).all()
    for x in (*found.apply(query, key), found.key, found.query):
        assert torch.isfinite(x).all()
    before, after = logits(query, key), logits(*found.apply(query, key))
    assert (after - before).abs().max() < 1e-12 * before.abs().max()


@pytest.mark.parametrize("vector", ["q", "k"])
def test_channels_without_a_matrix_are_kept_and_counted(vector):
    query, key = draw(9)
    if vector == "q":
        query[:, :2, :, 6] = 0
    else:
        key[:, 0, :, 6] = key[:, 0, :, 7]  # one direction in which no key lies
    found = gauge_of(query, key, "partial half")
    assert found.n_kept == 4
    free = pairs_of("partial half")[1]
    assert torch.equal(found.key[0][free][:, free], torch.eye(4, dtype=torch.float64))
    assert not torch.equal(found.key[1][free][:, free], torch.eye(4, dtype=torch.float64))
    before, after = logits(query, key), logits(*found.apply(query, key))
    moved = after - before
    assert (moved - moved[..., :1]).abs().max() < 1e-12 * before.abs().max()


def test_of_nothing_it_is_the_raw_one():
    for name in TURNING:
        kind, channels = TURNING[name]
        found = balanced(empty(GROUPS, WIDTH), Pairing.of(WIDTH, channels, kind), centred=True)
        one = torch.eye(WIDTH, dtype=torch.float64).expand(GROUPS, -1, -1)
        assert torch.equal(found.key, one)
        assert torch.equal(found.query, one)
        assert found.n_kept == GROUPS * (len(pairs_of(name)[0]) + len(pairs_of(name)[1]))


def test_only_channels_that_do_not_turn_are_centred():
    query, key = draw(10)
    for name in TURNING:
        free = pairs_of(name)[1]
        turning = [c for c in range(WIDTH) if c not in free]
        centre = gauge_of(query, key, name, centred=True).centre
        torch.testing.assert_close(centre[:, free], key[:, :, 1:, free].mean((0, 2)), rtol=1e-10, atol=1e-12)
        assert not centre[:, turning].any()
        left = gauge_of(query, key, name, centred=False)
        assert not left.centre.any()
        if free:  # the mean is then a part of what the matrix sees
            of_k = gauge_of(query, key - key[:, :, 1:].mean((0, 2), keepdim=True), name, centred=False).key
            assert not torch.allclose(left.key, of_k, rtol=1e-3)


def test_it_is_applied_in_the_precision_of_the_vectors():
    query, key = (x.float() for x in draw(11))
    found = gauge_of(query, key, "half")
    made = found.apply(query, key)
    assert [x.dtype for x in made] == [torch.float32] * 2
    before, after = logits(query, key), logits(*made)
    assert (after - before).abs().max() < 1e-5 * before.abs().max()


def test_a_gauge_that_is_none_changes_attention():
    query, key = draw(12)
    found = gauge_of(query, key, "half")
    for damaged in (
        Gauge(found.key, found.query * 1.01, found.centre, 0),
        Gauge(found.key, found.key, found.centre, 0),
    ):
        before, after = logits(query, key), logits(*damaged.apply(query, key))
        assert (after - before).abs().max() > 1e-3 * before.abs().max()


# ------------------------------------------------------------------ and back
@BOTH
@ALL
def test_undo_brings_vectors_back(name, centred):
    query, key = draw(13)
    found = gauge_of(query, key, name, centred=centred)
    made = found.apply(query, key)
    assert all((a - b).abs().max() > 0.1 for a, b in zip(made, (query, key), strict=True))
    for a, b in zip(found.undo(*made), (query, key), strict=True):
        assert a.shape == b.shape
        assert (a - b)[:, :, 1:].abs().max() <= 1e-12 * b[:, :, 1:].abs().max()
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()
    assert torch.equal(found.keys(key), made[1])


@BOTH
@ALL
def test_undo_changes_no_attention_either(name, centred):
    """Whatever vectors are made in the gauge, taken back they attend as they do in it."""
    query, key = draw(14)
    found = gauge_of(query, key, name, centred=centred)
    rng = torch.Generator().manual_seed(0)
    query, key = (torch.randn(x.shape, generator=rng, dtype=torch.float64) for x in (query, key))
    inside, outside = logits(query, key), logits(*found.undo(query, key))
    moved = outside - inside
    if found.centre.any():  # one number a row
        assert moved.abs().max() > 0.1
        moved = moved - moved[..., :1]
    assert moved.abs().max() <= 1e-11 * outside.abs().max()


def test_undo_of_what_is_no_gauge_does_not_bring_vectors_back():
    query, key = draw(15)
    found = gauge_of(query, key, "partial half")
    for damaged in (
        Gauge(found.key, found.query * 1.01, found.centre, 0),
        Gauge(found.key, found.key, found.centre, 0),
    ):
        back = damaged.undo(*damaged.apply(query, key))
        assert all((a - b)[:, :, 1:].abs().max() > 1e-3 for a, b in zip(back, (query, key), strict=True))
