"""Count, mean and spread against numpy, however a stream is cut."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from geomprobe.stats.moments import empty, merge, of_groups, pool

N, GROUPS, SERIES = 200, 4, 3


def stream(seed=0, offset=0.0, n=N):
    """Values (series, item), and to which group each item belongs; −1: to none."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SERIES, n)) * rng.lognormal(size=(SERIES, 1)) + offset
    group = rng.integers(-1, GROUPS - 1, size=n)  # the last group stays empty
    return torch.from_numpy(x), group


def members(group):
    return torch.from_numpy((group[:, None] == np.arange(GROUPS)).astype(np.float64))  # (item, group)


def close(moments, x, chosen, column, tolerance=1e-12):
    """Compare one group's moments with numpy's, for each series."""
    values = x.numpy()[:, chosen]
    assert moments["n"][:, column].tolist() == [chosen.sum()] * SERIES
    if not chosen.any():
        assert not moments["mean"][:, column].any()
        assert not moments["m2"][:, column].any()
        return
    assert moments["mean"][:, column].numpy() == pytest.approx(values.mean(1), rel=tolerance)
    assert moments["m2"][:, column].numpy() == pytest.approx(values.var(1) * chosen.sum(), rel=1e3 * tolerance)


def test_groups_are_those_of_numpy():
    x, group = stream()
    moments = of_groups(x, members(group))
    assert moments["mean"].shape == (SERIES, GROUPS)
    for column in range(GROUPS):
        close(moments, x, group == column, column)


def test_members_of_each_series_apart():
    x, group = stream()
    other = np.roll(group, 7)
    moments = of_groups(x[:2], torch.stack([members(group), members(other)]))
    for row, mine in enumerate((group, other)):
        for column in range(GROUPS - 1):
            values = x[row].numpy()[mine == column]
            assert float(moments["mean"][row, column]) == pytest.approx(values.mean())
            assert float(moments["m2"][row, column]) == pytest.approx(values.var() * len(values))


@pytest.mark.parametrize("cuts", [(), (0,), (N,), (1, 2), (17, 90, 91, 150)])
def test_parts_merge_to_the_whole(cuts):
    x, group = stream()
    edges = [0, *cuts, N]
    total = empty(SERIES, GROUPS)
    backwards = empty(SERIES, GROUPS)
    parts = [of_groups(x[:, a:b], members(group[a:b])) for a, b in pairwise(edges)]
    for part in parts:
        total = merge(total, part)
    for part in reversed(parts):
        backwards = merge(part, backwards)
    for column in range(GROUPS):
        close(total, x, group == column, column)
        close(backwards, x, group == column, column)


def test_a_large_offset_costs_no_digits():
    """Sums of squares would lose all of them: the variance is 1e-16 of the mean's square."""
    x, group = stream(offset=1e8)
    total = empty(SERIES, GROUPS)
    for start in range(0, N, 13):
        total = merge(total, of_groups(x[:, start : start + 13], members(group[start : start + 13])))
    for column in range(GROUPS - 1):
        values = x.numpy()[:, group == column]
        spread = total["m2"][:, column].numpy() / total["n"][:, column].numpy()
        assert spread == pytest.approx(values.var(1), rel=1e-6)


def test_nothing_merges_with_anything():
    nothing = empty(SERIES, GROUPS)
    assert all(not value.any() and value.dtype == torch.float64 for value in nothing.values())
    x, group = stream()
    some = of_groups(x, members(group))
    for merged in (merge(nothing, some), merge(some, nothing)):
        assert all(torch.equal(merged[name], some[name]) for name in some)
    assert all(torch.equal(value, nothing[name]) for name, value in merge(nothing, nothing).items())


def test_inputs_are_left_alone():
    x, group = stream()
    a, b = of_groups(x[:, :50], members(group[:50])), of_groups(x[:, 50:], members(group[50:]))
    before = [{name: value.clone() for name, value in part.items()} for part in (a, b)]
    merged = merge(a, b)
    for value in merged.values():
        value.zero_()
    for part, old in zip((a, b), before, strict=True):
        assert all(torch.equal(part[name], old[name]) for name in part)


@pytest.mark.parametrize("chosen", [(0,), (0, 2), (3, 1), (0, 1, 2, 3)])
def test_groups_pool(chosen):
    x, group = stream()
    pooled = pool(of_groups(x, members(group)), chosen)
    assert pooled["mean"].shape == (SERIES, 1)
    close(pooled, x, np.isin(group, chosen), 0)


def test_by_hand():
    x = torch.tensor([[1.0, 3.0, 10.0]], dtype=torch.float64)
    moments = of_groups(x, torch.tensor([[1.0, 0], [1, 0], [0, 1]], dtype=torch.float64))
    assert moments["mean"].tolist() == [[2, 10]]
    assert moments["m2"].tolist() == [[2, 0]]
    both = pool(moments, (0, 1))  # mean 14/3; deviations −11/3, −5/3, 16/3
    assert both["mean"].item() == pytest.approx(14 / 3)
    assert both["m2"].item() == pytest.approx((121 + 25 + 256) / 9)
