"""Turns read off vectors before and after a rotation, against rotations written down by hand."""

import numpy as np
import pytest
import torch

from geomprobe.stats.gauge import Pairing
from geomprobe.stats.turning import later, pairs_of, turned, turns

WIDTH, LENGTH, DELTA = 16, 50, 777
# Channels that turn, and the pairs that they form.
KINDS = {
    "half": (range(WIDTH), [(i, i + 8) for i in range(8)]),
    "interleaved": (range(WIDTH), [(2 * i, 2 * i + 1) for i in range(8)]),
    "partial half": (range(8), [(i, i + 4) for i in range(4)]),
    "partial interleaved": (range(8, 16), [(8, 9), (10, 11), (12, 13), (14, 15)]),
}
ALL = pytest.mark.parametrize("kind", list(KINDS))


def angles(kind, positions):
    """(pos, pair) of a base of 10000, as far as a pair is from the first."""
    n = len(KINDS[kind][1])
    return np.array([[p * 10000.0 ** (-i / n) for i in range(n)] for p in positions])


def rotated(x, kind, positions, *, factor=1.0):
    """RoPE pair by pair, in numpy; channels of no pair stay."""
    out = x.copy()
    for i, (a, b) in enumerate(KINDS[kind][1]):
        angle = angles(kind, positions)[:, i]
        cos, sin = factor * np.cos(angle), factor * np.sin(angle)
        out[..., a], out[..., b] = x[..., a] * cos - x[..., b] * sin, x[..., b] * cos + x[..., a] * sin
    return out


def draw(seed=0, shape=(2, 3)):
    return np.random.default_rng(seed).normal(size=(*shape, LENGTH, WIDTH))


def pairing_of(kind):
    made = Pairing.of(WIDTH, tuple(KINDS[kind][0]), kind.split()[-1])
    assert list(zip(made.first.tolist(), made.second.tolist(), strict=True)) == KINDS[kind][1]
    return made.first, made.second


def turns_of(kind, x, y):
    pair = pairing_of(kind)
    return turns(pairs_of(torch.from_numpy(x), *pair), pairs_of(torch.from_numpy(y), *pair))


def same(actual, expected, tolerance=1e-12):
    np.testing.assert_allclose(actual.numpy(), expected, rtol=tolerance, atol=tolerance)


@ALL
@pytest.mark.parametrize("start", [0, 5])
def test_turns_are_recovered(kind, start):
    x, positions = draw(), range(start, start + LENGTH)
    found = turns_of(kind, x, rotated(x, kind, positions))
    assert found.dtype == torch.complex128
    same(found, np.exp(1j * angles(kind, positions)))


@ALL
def test_one_vector_a_position_is_enough(kind):
    x = draw(shape=())
    same(turns_of(kind, x, rotated(x, kind, range(LENGTH))), np.exp(1j * angles(kind, range(LENGTH))))


@ALL
def test_a_scaled_rotation_keeps_its_factor(kind):
    x = draw(1)
    found = turns_of(kind, x, rotated(x, kind, range(LENGTH), factor=1.3))
    same(found, 1.3 * np.exp(1j * angles(kind, range(LENGTH))))
    same(later(found, DELTA), 1.3 * np.exp(1j * angles(kind, range(DELTA, DELTA + LENGTH))), 1e-9)


def test_single_precision_is_read_in_double():
    x = draw(2).astype(np.float32)
    found = turns_of("half", x, rotated(x, "half", range(LENGTH)).astype(np.float32))
    assert found.dtype == torch.complex128
    same(found, np.exp(1j * angles("half", range(LENGTH))), 1e-6)


def test_of_vectors_that_do_not_agree_the_turn_is_the_least_squares_one():
    x, y = draw(3), draw(4)
    found = turns_of("half", x, y)
    for at, pair in ((0, 0), (17, 5), (49, 7)):
        a, b = KINDS["half"][1][pair]
        # Of one unknown complex number the real problem has two unknowns: its parts.
        rows = np.concatenate([[(u, -v), (v, u)] for u, v in x[:, :, at][..., [a, b]].reshape(-1, 2)])
        told = np.concatenate([(u, v) for u, v in y[:, :, at][..., [a, b]].reshape(-1, 2)])
        best = np.linalg.lstsq(rows, told, rcond=None)[0]
        same(found[at, pair], best[0] + 1j * best[1])


def test_a_dead_pair_is_nan_and_no_other_is():
    x = draw()
    x[..., [3, 11]] = 0
    found = turns_of("half", x, rotated(x, "half", range(LENGTH)))
    assert torch.isnan(found[:, 3].abs()).all()
    alive = [i for i in range(8) if i != 3]
    same(found[:, alive], np.exp(1j * angles("half", range(LENGTH)))[:, alive])
    assert torch.isnan(later(found, DELTA)[:, 3].abs()).all()
    assert torch.isfinite(later(found, DELTA)[:, alive].abs()).all()


def test_a_pair_that_is_dead_at_one_position_is_nan_there():
    x = draw()
    x[:, :, 20, [3, 11]] = 0
    found = turns_of("half", x, rotated(x, "half", range(LENGTH)))
    assert torch.isnan(found.abs()).nonzero().tolist() == [[20, 3]]


def test_a_pair_that_is_dead_in_one_vector_is_read_off_the_others():
    x = draw()
    x[0, :, :, [3, 11]] = 0
    same(turns_of("half", x, rotated(x, "half", range(LENGTH))), np.exp(1j * angles("half", range(LENGTH))))


@ALL
@pytest.mark.parametrize("delta", [1, DELTA, -3, 0])
def test_later_is_the_rotation_so_many_positions_on(kind, delta):
    x = draw(5)
    found = later(turns_of(kind, x, rotated(x, kind, range(LENGTH))), delta)
    same(found, np.exp(1j * angles(kind, range(delta, delta + LENGTH))), 1e-9)


def test_later_needs_but_two_positions():
    turn = torch.from_numpy(np.exp(1j * angles("half", range(2))))
    same(later(turn, DELTA), np.exp(1j * angles("half", range(DELTA, DELTA + 2))), 1e-9)


@ALL
def test_turned_is_rope(kind):
    x = draw(6)
    turn = torch.from_numpy(np.exp(1j * angles(kind, range(LENGTH))))
    same(turned(torch.from_numpy(x), turn, *pairing_of(kind)), rotated(x, kind, range(LENGTH)))


@ALL
def test_turned_takes_read_turns_to_other_vectors(kind):
    x, other = draw(7), draw(8)
    turn = later(turns_of(kind, x, rotated(x, kind, range(LENGTH))), DELTA)
    made = turned(torch.from_numpy(other), turn, *pairing_of(kind))
    same(made, rotated(other, kind, range(DELTA, DELTA + LENGTH)), 1e-9)


def test_turned_leaves_its_input_and_other_channels_alone():
    x = torch.from_numpy(draw(9))
    before = x.clone()
    turn = torch.from_numpy(np.exp(1j * angles("partial half", range(LENGTH))))
    made = turned(x, turn, *pairing_of("partial half"))
    assert torch.equal(x, before)
    assert torch.equal(made[..., 8:], x[..., 8:])
    assert not torch.equal(made[..., :8], x[..., :8])


def test_pairs_are_complex_numbers():
    x = torch.arange(4.0)
    assert pairs_of(x, torch.tensor([0, 2]), torch.tensor([1, 3])).tolist() == [0 + 1j, 2 + 3j]
