"""Quantiles from counts against numpy's inverted_cdf on the values themselves."""

import numpy as np
import pytest

from geomprobe.stats.histogram import Bins, quantile_bins

PROBABILITIES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


@pytest.mark.parametrize("seed", range(8))
def test_quantiles_are_those_of_numpy(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 7, size=(5, 30)) * (rng.random((5, 30)) < 0.4)
    counts[0, 3] += 1
    for probability in PROBABILITIES:
        found = quantile_bins(counts, probability)
        for row, one in zip(counts, found, strict=True):
            if not row.any():
                assert one == -1
                continue
            values = np.repeat(np.arange(30), row)
            assert one == np.quantile(values, probability, method="inverted_cdf")


@pytest.mark.parametrize("n", [1, 2, 7, 19, 20, 50, 100, 101, 4000])
@pytest.mark.parametrize("probability", [*PROBABILITIES, 0.07, 0.14, 0.28])
def test_the_rank_is_the_ceiling(n, probability):
    """One value a bin, so that the bin says the rank; .07 · 100 is 7, though in float64 it comes out above."""
    exact = -(-round(probability * 1000) * n // 1000)  # in whole numbers
    assert quantile_bins(np.ones(n, dtype=np.int64), probability) == max(exact, 1) - 1


def test_nothing_has_no_quantile():
    assert quantile_bins(np.zeros((2, 3, 9), dtype=np.int64), 0.5).tolist() == [[-1] * 3] * 2
    assert quantile_bins(np.array([0, 0, 5, 0]), 0.5) == 2


def test_counts_beyond_32_bits():
    counts = np.array([2**40, 2**40 + 1, 1])
    assert quantile_bins(counts, 0.5) == 1
    assert quantile_bins(counts, 0.49) == 0


@pytest.mark.parametrize(("low", "high", "per_unit"), [(-10, 14, 32), (-64.0, 64.0, 32), (0, 1, 3)])
def test_bins(low, high, per_unit):
    bins = Bins(low, high, per_unit)
    assert bins.count == (high - low) * per_unit
    assert bins.edges.shape == (bins.count + 1,)
    assert bins.centres.shape == (bins.count,)
    assert (bins.edges[0], bins.edges[-1]) == pytest.approx((low, high))
    assert np.diff(bins.edges) == pytest.approx(1 / per_unit)
    assert bins.centres == pytest.approx((bins.edges[:-1] + bins.edges[1:]) / 2)


def test_bins_are_values():
    assert Bins(0, 1, 3) == Bins(0, 1, 3)
    assert hash(Bins(0, 1, 3)) == hash(Bins(0, 1, 3))


def test_a_quantile_is_off_by_half_a_bin_at_most():
    rng = np.random.default_rng(0)
    values = rng.normal(size=5000)
    bins = Bins(-6, 6, 32)
    counts, _ = np.histogram(values, bins.edges)
    for probability in PROBABILITIES:
        found = bins.centres[quantile_bins(counts, probability)]
        assert abs(found - np.quantile(values, probability, method="inverted_cdf")) <= 0.5 / 32
