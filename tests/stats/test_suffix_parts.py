"""The parts of Λ in lengths and in angles against loops over keys, neighbours and queries."""

import numpy as np
import pytest
import torch

from geomprobe.attention.visibility import Visibility, causal, everything
from geomprobe.stats import suffix
from geomprobe.stats.suffix import contrast, contrast_parts, first_contrast, neighbours_of, queries_of

BATCH, Q_HEADS, KV_HEADS, LENGTH, WIDTH, REACH, SCALE = 2, 4, 2, 70, 6, 4, 0.3
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def windowed(*sizes):
    seen = causal(LENGTH, LENGTH)
    low = torch.cat([(seen.high - size + 1).clamp(min=0) for size in sizes])
    return Visibility(low, seen.high.expand(len(sizes), -1).contiguous(), LENGTH)


def chunked(size):
    seen = causal(LENGTH, LENGTH)
    return Visibility(seen.high // size * size, seen.high, LENGTH)


def prefixed(size):
    seen = causal(LENGTH, LENGTH)
    return Visibility(seen.low, seen.high.clamp(min=size - 1), LENGTH)


SEEN = {
    "causal": lambda: causal(LENGTH, LENGTH),
    "window": lambda: windowed(25),
    "a window for each text": lambda: windowed(25, 40),
    "chunks": lambda: chunked(32),
    "a prefix": lambda: prefixed(30),
    "both sides": lambda: everything(LENGTH, LENGTH),
}
ALL = pytest.mark.parametrize("name", list(SEEN))


def draw(seed=0, *, share=0.5):
    rng = np.random.default_rng(seed)
    query = rng.normal(size=(BATCH, Q_HEADS, LENGTH, WIDTH)) + 0.5
    key = rng.normal(size=(BATCH, KV_HEADS, LENGTH, WIDTH)) + 0.5
    key *= np.exp(rng.normal(0, 0.5, (BATCH, KV_HEADS, LENGTH, 1)))
    content = rng.random((BATCH, LENGTH)) < share
    content[:, 0] = False
    return torch.from_numpy(query), torch.from_numpy(key), torch.from_numpy(content)


class Pairs:
    """Logits of two keys and one query, and their difference in two parts, by the formula for a pair."""

    def __init__(self, query, key, seen):
        self.q, self.k = query.numpy(), key.numpy().repeat(Q_HEADS // KV_HEADS, axis=1)
        self.n, self.m = (np.sqrt((x**2).sum(-1)) for x in (self.k, self.q))
        self.low, self.high = (x.expand(BATCH, -1).numpy() for x in (seen.low, seen.high))

    def sees(self, b, t, j):
        return self.low[b, t] <= j <= self.high[b, t]

    def parts(self, b, h, t, f, c):
        """(x_tf − x_tc, its part in lengths, its part in angles)."""
        x = [SCALE * float(self.q[b, h, t] @ self.k[b, h, j]) for j in (f, c)]
        n = [self.n[b, h, j] for j in (f, c)]
        cos = [x[i] / (SCALE * self.m[b, h, t] * n[i]) for i in range(2)]
        front = SCALE * self.m[b, h, t]
        return (
            x[0] - x[1],
            front * (n[0] - n[1]) * 0.5 * (cos[0] + cos[1]),
            front * 0.5 * (n[0] + n[1]) * (cos[0] - cos[1]),
        )

    def contrast(self, b, h, f, content):
        """Means over queries of means over neighbours of the three; None where there are none."""
        around = range(f - REACH, f + REACH + 1)
        if around[0] < 0 or around[-1] >= LENGTH:
            return None
        queries = [t for t in range(LENGTH) if abs(t - f) > REACH and all(self.sees(b, t, j) for j in around)]
        near = [j for j in around if j != f and content[b, j]]
        if not queries or not near:
            return None
        return np.mean([np.mean([self.parts(b, h, t, f, c) for c in near], axis=0) for t in queries], axis=0)


def brute(query, key, content, seen):
    """Λ and its two parts for every key: three (batch, q_head, pos), NaN where there is none."""
    pairs = Pairs(query, key, seen)
    found = np.full((3, BATCH, Q_HEADS, LENGTH), np.nan)
    for b in range(BATCH):
        for f in range(LENGTH):
            for h in range(Q_HEADS):
                one = pairs.contrast(b, h, f, content)
                if one is None:
                    break
                found[:, b, h, f] = one
    return found


def parts_of(query, key, content, seen):
    near = neighbours_of(content, REACH)
    return contrast_parts(query, key, neighbours=near, queries=queries_of(seen, REACH), scale=SCALE)


@ALL
def test_parts_equal_brute_force(name):
    seen = SEEN[name]()
    query, key, content = draw()
    value, part = parts_of(query, key, content, seen)
    whole, lengths, angles = (torch.from_numpy(x) for x in brute(query, key, content, seen))
    assert 10 < int(torch.isfinite(value[0, 0]).sum()) < LENGTH - 2 * REACH + 1
    torch.testing.assert_close(value, whole, equal_nan=True, **CLOSE)
    torch.testing.assert_close(part, lengths, equal_nan=True, **CLOSE)
    torch.testing.assert_close(value - part, angles, equal_nan=True, **CLOSE)
    assert value.dtype == part.dtype == torch.float64


@ALL
def test_the_whole_is_the_plain_contrast(name):
    seen = SEEN[name]()
    query, key, content = draw(1)
    for kind in (torch.float64, torch.float32):
        vectors = query.to(kind), key.to(kind)
        value, _ = parts_of(*vectors, content, seen)
        near, queries = neighbours_of(content, REACH), queries_of(seen, REACH)
        plain = contrast(*vectors, neighbours=near, queries=queries, scale=SCALE)
        torch.testing.assert_close(value, plain, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_pair_adds_up_and_its_parts_are_what_they_are_called():
    query, key, _ = draw(2)
    pairs = Pairs(query, key, causal(LENGTH, LENGTH))
    for f, c in ((20, 30), (31, 12)):
        whole, lengths, angles = pairs.parts(0, 1, 60, f, c)
        assert whole == pytest.approx(lengths + angles, rel=1e-12)
        back = pairs.parts(0, 1, 60, c, f)  # no side is preferred
        assert back == pytest.approx((-whole, -lengths, -angles), rel=1e-12)


@ALL
def test_as_long_keys_differ_in_angle_alone(name):
    seen = SEEN[name]()
    query, key, content = draw(3)
    value, part = parts_of(query, 2 * key / key.norm(dim=-1, keepdim=True), content, seen)
    assert value.nan_to_num().abs().max() > 0.1
    assert part.nan_to_num().abs().max() < 1e-13


@ALL
def test_keys_of_one_direction_differ_in_length_alone(name):
    seen = SEEN[name]()
    query, key, content = draw(4)
    unit = key[:, :, :1] / key[:, :, :1].norm(dim=-1, keepdim=True)
    value, part = parts_of(query, key.norm(dim=-1, keepdim=True) * unit, content, seen)
    assert value.nan_to_num().abs().max() > 0.1
    torch.testing.assert_close(part, value, equal_nan=True, **CLOSE)


def test_nothing_where_there_are_no_queries_or_no_neighbours():
    query, key, content = draw(5)
    for seen, kept in ((windowed(2 * REACH + 1), content), (causal(LENGTH, LENGTH), content & False)):
        for made in parts_of(query, key, kept, seen):
            assert made.shape == (BATCH, Q_HEADS, LENGTH)
            assert torch.isnan(made).all()


def test_a_key_without_length_has_no_angle_and_leaves_no_hole():
    query, key, content = draw(6)
    key[:, :, 30] = 0
    content[:, 28:34] = True
    value, part = parts_of(query, key, content, causal(LENGTH, LENGTH))
    near = slice(30 - REACH, 30 + REACH + 1)
    assert torch.isfinite(value[..., near]).all()
    assert torch.isfinite(part[..., near]).all()
    # Against a key of no length, with no cosine: half of the difference is in lengths, half in the angle.
    torch.testing.assert_close(part[..., 30], 0.5 * value[..., 30], **CLOSE)


def brute_first(query, key, content, seen):
    """Sums over queries of the contrast of position 0 and of its parts, by q_head, and how many queries."""
    pairs = Pairs(query, key, seen)
    total, n = np.zeros((3, Q_HEADS)), 0
    for b in range(BATCH):
        for t in range(LENGTH):
            others = [j for j in range(1, t - REACH) if content[b, j] and pairs.sees(b, t, j)]
            if not others or not pairs.sees(b, t, 0):
                continue
            n += 1
            for h in range(Q_HEADS):
                total[:, h] += np.mean([pairs.parts(b, h, t, 0, c) for c in others], axis=0)
    return total, n


def first_of(query, key, content, seen):
    return first_contrast(query, key, content, seen, reach=REACH, scale=SCALE)


@ALL
def test_position_0_equals_brute_force(name):
    seen = SEEN[name]()
    query, key, content = draw(7, share=0.2)
    key[:, :, 0] *= 4
    (whole, lengths, angles), expected = brute_first(query, key, content, seen)
    value, part, n = first_of(query, key, content, seen)
    assert n == expected > 10
    for got, wanted in ((value, whole), (part, lengths), (value - part, angles)):
        torch.testing.assert_close(got, torch.from_numpy(wanted), **CLOSE)


@pytest.mark.parametrize("length", [1, REACH + 1])
def test_position_0_of_texts_that_are_too_short(length):
    query, key, content = (x[:, ..., :length, :] if x.dim() == 4 else x[:, :length] for x in draw(8))
    value, part, n = first_of(query, key, content, causal(length, length))
    assert n == 0
    assert not value.any()
    assert not part.any()


# ------------------------------------------------------------------ planted defects
def other_formula(monkeypatch, cosine, length):
    """In place of halves of both sides: the whole of one."""

    def parts(self, b, h, t, f, c):
        x = [SCALE * float(self.q[b, h, t] @ self.k[b, h, j]) for j in (f, c)]
        n = [self.n[b, h, j] for j in (f, c)]
        cos = [x[i] / (SCALE * self.m[b, h, t] * n[i]) for i in range(2)]
        front = SCALE * self.m[b, h, t]
        return x[0] - x[1], front * (n[0] - n[1]) * cos[cosine], front * n[length] * (cos[0] - cos[1])

    monkeypatch.setattr(Pairs, "parts", parts)


def with_itself(monkeypatch):
    original = suffix.Neighbours

    def made(content, count, offset, reach):
        return original(content, count + content.long(), offset, reach)

    monkeypatch.setattr(suffix, "Neighbours", made)


def nearer_queries(monkeypatch):
    original = suffix._far_sums

    def far(prefix, queries, keys):
        return original(prefix, queries, keys) + 1e-6 * prefix[:, :, keys]

    monkeypatch.setattr(suffix, "_far_sums", far)


DEFECTS = {
    "the angle part has n_f in place of half the sum": lambda m: other_formula(m, 1, 0),
    "the angle part has n_c in place of half the sum": lambda m: other_formula(m, 0, 1),
    "a key is its own neighbour": with_itself,
    "another query is counted": nearer_queries,
}


@pytest.mark.parametrize("defect", list(DEFECTS))
def test_a_planted_defect_is_caught(defect, monkeypatch):
    DEFECTS[defect](monkeypatch)
    with pytest.raises(AssertionError, match="not close"):
        test_parts_equal_brute_force("causal")


@pytest.mark.parametrize(("cosine", "length"), [(1, 0), (0, 1)])
def test_the_same_of_position_0(cosine, length, monkeypatch):
    other_formula(monkeypatch, cosine, length)
    with pytest.raises(AssertionError, match="not close"):
        test_position_0_equals_brute_force("causal")
