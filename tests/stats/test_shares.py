"""Descriptions of attention by length and by angle against loops over keys, and where one of them tells all."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from geomprobe.stats import shares
from geomprobe.stats.shares import Rows, bucket_rho, explained, fidelity, leverage, norm_share

BATCH, HEADS, LENGTH, WIDTH, SCALE = 2, 3, 48, 6, 0.7
AT = (16, 23, 30, 37, 44)
CASES = {
    "plain": {},
    "soft-cap": {"cap": 3.0},
    "bias": {"bias": True},
    "window": {"window": 20},
    "position 0 in": {"first": True},
    "all of it": {"cap": 3.0, "bias": True, "window": 30, "first": True},
    "both sides": {"causal": False},
}
ALL = pytest.mark.parametrize("case", list(CASES))


class Text:
    """Vectors of some heads, what each query sees, and the attention worked out key by key."""

    def __init__(self, *, cap=None, bias=False, window=None, first=False, causal=True, seed=0):
        rng = np.random.default_rng(seed)
        self.q = rng.normal(size=(BATCH, HEADS, LENGTH, WIDTH)) + 0.5
        self.k = rng.normal(size=(BATCH, HEADS, LENGTH, WIDTH)) * np.exp(rng.normal(0, 0.4, (BATCH, HEADS, LENGTH, 1)))
        self.k[:, :, 0] *= 5
        self.cap, self.window, self.first, self.causal = cap, window, first, causal
        self.bias = rng.normal(size=(1, HEADS, LENGTH, LENGTH)) if bias else np.zeros((1, HEADS, LENGTH, LENGTH))

    def visible(self, t):
        low = 0 if self.window is None else max(0, t - self.window + 1)
        high = t if self.causal else LENGTH - 1
        return [j for j in range(low, high + 1) if self.first or j > 0]

    def enters(self, b, h, t, x):
        """From x over the keys that t sees to what enters the softmax."""
        s = [self.cap * math.tanh(value / self.cap) if self.cap else value for value in x]
        return np.array([value + self.bias[0, h, t, j] for value, j in zip(s, self.visible(t), strict=True)])

    def row(self, b, h, t):
        """Everything that describes a row: products, query length, key lengths, cosines."""
        keys = self.visible(t)
        m = math.sqrt(sum(self.q[b, h, t] ** 2))
        n = np.array([math.sqrt(sum(self.k[b, h, j] ** 2)) for j in keys])
        x = np.array([SCALE * sum(self.q[b, h, t] * self.k[b, h, j]) for j in keys])
        return x, m, n, x / (SCALE * m * n)

    def attention(self, b, h, t, x):
        s = self.enters(b, h, t, x)
        weights = np.exp(s - s.max())
        return weights / weights.sum()

    def rows(self):
        """As the package takes them."""
        q, k = torch.from_numpy(self.q)[:, :, list(AT)], torch.from_numpy(self.k)
        visible = torch.zeros(1, 1, len(AT), LENGTH, dtype=torch.bool)
        for row, t in enumerate(AT):
            visible[0, 0, row, self.visible(t)] = True
        bias = torch.from_numpy(self.bias)[:, :, list(AT)]

        def finish(x):
            return (self.cap * torch.tanh(x / self.cap) if self.cap else x) + bias

        products = SCALE * q @ k.transpose(-1, -2)
        return Rows(products, SCALE * q.norm(dim=-1), k.norm(dim=-1), visible, finish)

    def slope(self, products):
        return 1 - torch.tanh(products / self.cap) ** 2 if self.cap else torch.ones_like(products)

    def each(self, of_row):
        """What `of_row` makes of each row: (batch, head, row)."""
        return np.array([[[of_row(b, h, t) for t in AT] for h in range(HEADS)] for b in range(BATCH)])


def text(case, **changes):
    return Text(**{**CASES[case], **changes})


def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def left_over(one, name):
    """KL of a description, row by row."""

    def of_row(b, h, t):
        x, m, n, cos = one.row(b, h, t)
        own = one.attention(b, h, t, x)
        if name == "empty":
            other = np.full(len(x), 1 / len(x))
        elif name == "angle":
            other = one.attention(b, h, t, SCALE * m * math.exp(np.mean(np.log(n))) * cos)
        else:
            other = one.attention(b, h, t, SCALE * m * np.mean(cos) * n)
        return kl(own, other)

    return one.each(of_row)


def check_explained(case):
    one = text(case)
    found = explained(one.rows())
    assert set(found) == {"empty", "angle", "length"}
    for name, value in found.items():
        np.testing.assert_allclose(value.numpy(), left_over(one, name), rtol=1e-9, atol=1e-11, err_msg=name)


@ALL
def test_explained_equals_the_oracle(case):
    check_explained(case)


def by_angle_at_the_mean_length(self):
    return (
        self.products * (self.mean(self.key[..., None, :].expand_as(self.products))[..., None]) / self.key[:, :, None]
    )


def by_angle_at_one_length(self):
    return self.products / self.key[..., None, :] * self.key.log().mean(-1).exp()[..., None, None]


def by_length_at_the_mean_product(self):
    return self.mean(self.products)[..., None] * self.key[..., None, :] / self.key.mean(-1)[..., None, None]


def no_cap(self, x):
    made = torch.where(self.visible, x, shares.HIDDEN)
    return torch.where(self.visible, made - made.logsumexp(-1, keepdim=True), shares.HIDDEN)


def over_all_keys(self, x):
    return x.mean(-1)


DEFECTS = {
    "the mean length in place of the geometric mean": ("by_angle", by_angle_at_the_mean_length, "plain"),
    "one length for all rows": ("by_angle", by_angle_at_one_length, "plain"),
    "mean logits in place of mean cosines": ("by_length", by_length_at_the_mean_product, "plain"),
    "descriptions pass no soft-cap": ("log_softmax", no_cap, "soft-cap"),
    "descriptions pass no bias": ("log_softmax", no_cap, "bias"),
    "means are over hidden keys too": ("mean", over_all_keys, "window"),
    "means are over position 0 too": ("mean", over_all_keys, "both sides"),
}


@pytest.mark.parametrize("defect", list(DEFECTS))
def test_a_planted_defect_is_caught(defect, monkeypatch):
    name, broken, case = DEFECTS[defect]
    monkeypatch.setattr(Rows, name, broken)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_explained(case)


@ALL
def test_position_0_is_out_or_in_as_said(case):
    one = text(case)
    rows = one.rows()
    before = explained(rows)
    one.k[:, :, 0] *= 1.5
    after = explained(one.rows())
    seen = 0 in one.visible(AT[0])
    for name in before:
        assert torch.equal(before[name], after[name]) != seen


@ALL
def test_fidelity_equals_the_oracle(case):
    one = text(case, seed=1)
    middle = np.exp(np.random.default_rng(2).normal(0.5, 0.3, (BATCH, HEADS)))
    found = fidelity(one.rows(), torch.from_numpy(middle))

    def tv(b, h, t):
        x, m, _, cos = one.row(b, h, t)
        own = one.attention(b, h, t, x)
        other = one.attention(b, h, t, SCALE * m * middle[b, h] * cos)
        return 0.5 * sum(abs(own - other))

    def centred(b, h, t):
        x, m, _, cos = one.row(b, h, t)
        a = SCALE * m * cos
        return a - a.mean(), x - x.mean()

    np.testing.assert_allclose(found["tv"].numpy(), one.each(tv), rtol=1e-9, atol=1e-12)
    for name, (i, j) in {"xy": (0, 1), "xx": (0, 0), "yy": (1, 1)}.items():

        def of_row(b, h, t, i=i, j=j):
            both = centred(b, h, t)
            return sum(both[i] * both[j])

        np.testing.assert_allclose(found[name].numpy(), one.each(of_row), rtol=1e-9, atol=1e-11)
    # R² of all rows of a head is that of a line through 0 fitted to all its points.
    for h in range(HEADS):
        points = [centred(b, h, t) for b in range(BATCH) for t in AT]
        a, x = (np.concatenate(side) for side in zip(*points, strict=True))
        slope = np.linalg.lstsq(a[:, None], x, rcond=None)[0][0]
        r2 = 1 - sum((x - slope * a) ** 2) / sum(x**2)
        xy, xx, yy = (float(found[name][:, h].sum()) for name in ("xy", "xx", "yy"))
        assert xy**2 / (xx * yy) == pytest.approx(r2, rel=1e-9)


@ALL
def test_leverage_equals_the_oracle(case):
    one = text(case, seed=3)
    rows = one.rows()

    def of_row(b, h, t):
        x, *_ = one.row(b, h, t)
        own = one.attention(b, h, t, x)
        slope = 1 - np.tanh(x / one.cap) ** 2 if one.cap else 1
        return sum(own * (1 - own) * x * slope)

    found = leverage(rows, one.slope(rows.products)).numpy()
    np.testing.assert_allclose(found, one.each(of_row), rtol=1e-9, atol=1e-12)


@ALL
def test_leverage_is_what_longer_keys_gain(case):
    one, h_step = text(case, seed=4), 1e-5
    rows = one.rows()

    def of_row(b, h, t):
        total = 0.0
        for place, j in enumerate(one.visible(t)):
            gained = []
            for step in (h_step, -h_step):
                kept = one.k[b, h, j].copy()
                one.k[b, h, j] *= math.exp(step)  # this key's length alone
                gained.append(one.attention(b, h, t, one.row(b, h, t)[0])[place])
                one.k[b, h, j] = kept
            total += (gained[0] - gained[1]) / (2 * h_step)
        return total

    some = [(0, 0, 0), (0, 2, 3), (1, 1, 4)]
    found = leverage(rows, one.slope(rows.products))
    for b, h, row in some:
        assert float(found[b, h, row]) == pytest.approx(of_row(b, h, AT[row]), rel=1e-6, abs=1e-9)


def test_leverage_without_the_slope_of_the_cap_would_be_seen():
    one = text("soft-cap", seed=4)
    rows = one.rows()
    right, wrong = leverage(rows, one.slope(rows.products)), leverage(rows, torch.ones_like(rows.products))
    assert not torch.allclose(right, wrong, rtol=0.1)


def test_a_longer_key_gains_where_its_logit_is_positive():
    one = text("plain")
    u = np.zeros(WIDTH)
    u[0] = 1
    one.q[:], one.k[:] = u, u
    for sign in (1, -1):
        one.k[:] = sign * u
        rows = one.rows()
        assert bool((sign * leverage(rows, torch.ones_like(rows.products)) > 0).all())


def test_norm_share_divides_what_is_explained():
    rng = np.random.default_rng(5)
    empty, angle, length = (torch.from_numpy(rng.random((4, 3))) for _ in range(3))
    norm, turn = norm_share(empty, angle, length)
    v = {"": -empty, "angle": -angle, "norm": -length, "both": 0}
    torch.testing.assert_close(norm, 0.5 * ((v["norm"] - v[""]) + (v["both"] - v["angle"])))
    torch.testing.assert_close(turn, 0.5 * ((v["angle"] - v[""]) + (v["both"] - v["norm"])))
    torch.testing.assert_close(norm + turn, empty)  # together they explain what uniform attention leaves


def aligned(one, *, lengths):
    """All keys along one direction, of these lengths."""
    u = np.random.default_rng(6).normal(size=WIDTH)
    one.k[:] = u / np.linalg.norm(u) * lengths[..., None]
    return one


@pytest.mark.parametrize("case", ["plain", "soft-cap", "window", "position 0 in", "both sides"])
def test_lengths_tell_all_where_all_keys_point_one_way(case):
    lengths = np.exp(np.random.default_rng(7).normal(0, 0.5, (BATCH, HEADS, LENGTH)))
    one = aligned(text(case), lengths=lengths)
    found = explained(one.rows())
    norm, angle = norm_share(found["empty"], found["angle"], found["length"])
    assert float(found["empty"].min()) > 1e-6
    np.testing.assert_allclose(found["length"].numpy(), 0, atol=1e-12)
    np.testing.assert_allclose(found["angle"].numpy(), found["empty"].numpy(), rtol=1e-9)
    np.testing.assert_allclose((norm / (norm + angle)).numpy(), 1, atol=1e-7)
    assert float(norm.sum() / (norm + angle).sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("case", ["plain", "soft-cap", "window", "position 0 in", "both sides"])
def test_angles_tell_all_where_all_keys_are_as_long(case):
    one = text(case)
    one.k /= np.linalg.norm(one.k, axis=-1, keepdims=True)
    rows = one.rows()
    rows = Rows(rows.products, rows.query, torch.ones_like(rows.key), rows.visible, rows.finish)
    found = explained(rows)
    norm, angle = norm_share(found["empty"], found["angle"], found["length"])
    assert torch.equal(found["angle"], torch.zeros_like(norm))
    np.testing.assert_allclose(norm.numpy(), 0, atol=1e-14)
    np.testing.assert_allclose(angle.numpy(), found["empty"].numpy(), rtol=1e-12)
    near = fidelity(rows, torch.ones(BATCH, HEADS, dtype=torch.float64))
    assert torch.equal(near["tv"], torch.zeros_like(near["tv"]))
    assert float(near["xy"].sum() ** 2 / (near["xx"].sum() * near["yy"].sum())) == pytest.approx(1, abs=1e-14)


def test_the_share_may_leave_its_interval():
    """One query of which the long key has the wrong angle: its length alone says less than nothing."""
    products = torch.tensor([[[[1.0, 1.0, 1.0, -1.0]]]], dtype=torch.float64)
    rows = Rows(
        products,
        torch.ones(1, 1, 1, dtype=torch.float64),
        torch.tensor([[[1.0, 1.0, 1.0, 4.0]]], dtype=torch.float64),
        torch.ones(1, 1, 1, 4, dtype=torch.bool),
        lambda x: x,
    )
    found = explained(rows)
    norm, angle = norm_share(found["empty"], found["angle"], found["length"])
    assert float(norm) < 0 < float(angle)


@pytest.mark.parametrize(("sd", "expected"), [(1, 0.05), (2, 0.15), (4, 0.26)])
def test_a_high_r2_is_not_yet_the_same_attention(sd, expected):
    """Of 256 keys; with more of them the last of the three grows."""
    rng = np.random.default_rng(8)
    log_sd, texts, rows, keys = math.sqrt(-math.log(0.99)), 100, 4, 256
    cos = torch.from_numpy(rng.normal(size=(texts, 1, rows, keys)))
    lengths = torch.from_numpy(np.exp(rng.normal(0, log_sd, (texts, 1, keys))))
    one = Rows(
        sd * cos * lengths[:, :, None],
        torch.full((texts, 1, rows), float(sd), dtype=torch.float64),
        lengths,
        torch.ones(1, 1, rows, keys, dtype=torch.bool),
        lambda x: x,
    )
    found = {name: float(value.sum()) for name, value in fidelity(one, lengths.log().mean(-1).exp()).items()}
    assert found["xy"] ** 2 / (found["xx"] * found["yy"]) == pytest.approx(math.exp(-(log_sd**2)), abs=0.001)
    assert found["tv"] / (texts * rows) == pytest.approx(expected, abs=0.015)


def by_scipy(a, b, valid, size):
    """Σ (n − 3)·z and Σ (n − 3) by head, one bucket of one text after the other."""
    z, weight = np.zeros(a.shape[1]), np.zeros(a.shape[1])
    for head in range(a.shape[1]):
        for item in range(a.shape[0]):
            for start in range(0, a.shape[2], size):
                at = [j for j in range(start, min(start + size, a.shape[2])) if valid[j]]
                if len(at) >= 5:
                    rho = spearmanr(a[item, head, at], b[item, head, at]).statistic
                    z[head] += (len(at) - 3) * math.atanh(rho)
                    weight[head] += len(at) - 3
    return z, weight


@pytest.mark.parametrize(("length", "size"), [(150, 64), (64, 64), (40, 16), (131, 64)])
@pytest.mark.parametrize("levels", [None, 6])
def test_rho_equals_scipy_bucket_by_bucket(length, size, levels):
    rng = np.random.default_rng(length)
    a = rng.normal(size=(2, 3, length)) + np.linspace(0, 9, length)  # within buckets, not along the text
    b = 0.6 * a + rng.normal(size=a.shape)
    if levels:  # ties
        a, b = (a * levels / 9).round(), (b * levels / 9).round()
    valid = rng.random(length) < 0.9
    valid[0] = False
    found = bucket_rho(*(torch.from_numpy(x) for x in (a, b, valid)), size)
    for got, expected in zip(found, by_scipy(a, b, valid, size), strict=True):
        assert got.dtype == torch.float64
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


def test_rho_of_both_ends_and_of_nothing():
    up = torch.arange(64.0)[None, None]
    valid = torch.ones(64, dtype=torch.bool)
    for other, sign in ((up.exp(), 1), (-up, -1)):
        z, weight = bucket_rho(up, other, valid, 64)
        assert torch.isfinite(z).all()
        assert float(torch.tanh(z / weight)) == pytest.approx(sign, abs=1e-8)
    z, weight = bucket_rho(up, torch.ones_like(up), valid, 64)
    assert (float(z), float(weight)) == (0, 61)
    valid[4:] = False
    assert [float(x) for x in bucket_rho(up, up, valid, 64)] == [0, 0]


def test_a_trend_along_the_text_is_not_counted():
    rng = np.random.default_rng(9)
    trend = 30 * np.floor(np.arange(512) / 64)  # from bucket to bucket
    a, b = (torch.from_numpy(rng.normal(size=(1, 1, 512)) + trend) for _ in range(2))
    valid = torch.ones(512, dtype=torch.bool)
    z, weight = bucket_rho(a, b, valid, 64)
    assert abs(float(torch.tanh(z / weight))) < 0.15
    z, weight = bucket_rho(a, b, valid, 512)
    assert float(torch.tanh(z / weight)) > 0.95


def simulated(mean, seed):
    """Queries and keys of a given mean cosine, log lengths of spread .3: lengths, and the attention received."""
    rng = np.random.default_rng(seed)
    length, width = 256, 128
    axis = np.zeros(width)
    axis[0] = (abs(mean) / (1 - abs(mean))) ** 0.5
    query, key = rng.normal(size=(2, length, width)) / width**0.5
    query, key = query + axis, key + np.sign(mean) * axis
    query, key = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (query, key))
    lengths = np.exp(rng.normal(0, 0.3, length))
    logits = 12 * query @ (key * lengths[:, None]).T
    weights = np.exp(logits - logits.max(1, keepdims=True))
    received = (weights / weights.sum(1, keepdims=True)).mean(0)
    return lengths, received, (query @ key.T).mean()


@pytest.mark.parametrize("size", [64, 256])
@pytest.mark.parametrize(("mean", "expected"), [(-0.3, -0.89), (0.0, 0.97), (0.3, 0.96)])
def test_the_sign_of_rho_is_that_of_the_mean_cosine_but_at_0(mean, expected, size):
    draws = [simulated(mean, seed) for seed in range(8)]
    assert np.mean([cos for *_, cos in draws]) == pytest.approx(mean, abs=0.02)
    lengths, received = (torch.from_numpy(np.stack(x))[:, None] for x in list(zip(*draws, strict=True))[:2])
    z, weight = bucket_rho(lengths, received, torch.ones(256, dtype=torch.bool), size)
    assert float(torch.tanh(z / weight)) == pytest.approx(expected, abs=0.04)
