"""Participation ratio by eigenvalues and TwoNN by its formula, beside round clouds."""

import numpy as np
import pytest

from geomprobe.stats.dimension import NULL_DRAWS, intrinsic_dim, intrinsic_null, participation_null, participation_ratio


def near(values, target, rounding=0.0):
    """Whether the mean of repeated draws is within three standard errors, and a rounding, of a figure."""
    values = np.asarray(values)
    return abs(values.mean() - target) <= 3 * values.std(ddof=1) / len(values) ** 0.5 + rounding


def by_eigenvalues(x):
    values = np.linalg.eigvalsh(np.cov(x.T))
    return sum(values) ** 2 / sum(value**2 for value in values)


def two_nn(x, left_out=0.1):
    """The slope through 0 of −log(1 − F) on log(r₂/r₁), over the smaller ratios of the directions' distances."""
    points = [[value / sum(v**2 for v in row) ** 0.5 for value in row] for row in x.tolist()]
    points = np.array(points)
    ratios = []
    for i in range(len(points)):
        far = sorted(float(np.sqrt(((points[i] - points[j]) ** 2).sum())) for j in range(len(points)) if j != i)
        ratios.append(far[1] / far[0])
    n, kept = len(ratios), min(len(ratios) - 1, int(len(ratios) * (1 - left_out)))
    above = below = 0.0
    for rank, ratio in enumerate(sorted(ratios)[:kept], start=1):
        above += np.log(ratio) * -np.log(1 - rank / n)
        below += np.log(ratio) ** 2
    return above / below


@pytest.mark.parametrize("shape", [(40, 6), (6, 40), (12, 12)])
def test_participation_ratio_is_that_of_the_eigenvalues(shape):
    x = np.random.default_rng(0).normal(size=shape) * np.linspace(0.2, 4, shape[1]) + 7
    assert participation_ratio(x) == pytest.approx(by_eigenvalues(x), rel=1e-9)
    second = x.T @ x  # the defect: without the mean out
    assert abs(np.trace(second) ** 2 / (second**2).sum() - by_eigenvalues(x)) > 0.5


def test_participation_ratio_by_hand():
    assert participation_ratio(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])) == pytest.approx(2)
    assert participation_ratio(np.array([[1.0, 3], [-1, 3], [5, 3]])) == pytest.approx(1)
    assert np.isnan(participation_ratio(np.ones((4, 3))))
    assert np.isnan(participation_ratio(np.array([[1.0, np.nan], [0, 1]])))


@pytest.mark.parametrize(("n", "figure"), [(100, 55.5), (1000, 113.4)])
def test_a_round_cloud_fills_less_than_its_width(n, figure):
    rng = np.random.default_rng(n)
    found = [participation_ratio(rng.normal(size=(n, 128))) for _ in range(20)]
    assert near(found, figure, rounding=0.05)
    assert participation_null(n, 128) == pytest.approx(128 * n / (128 + n))
    assert np.mean(found) == pytest.approx(participation_null(n, 128), rel=0.015)
    assert not near(found, 128, rounding=5)


@pytest.mark.parametrize(("n", "width"), [(40, 4), (60, 25), (60, 40), (11, 30)])
def test_intrinsic_dim_is_two_nn_of_the_directions(n, width):
    x = np.random.default_rng(width).normal(size=(n, width))
    found = intrinsic_dim(x)
    assert found == pytest.approx(two_nn(x), rel=1e-6)
    assert found != pytest.approx(two_nn(x, left_out=0.01), rel=1e-3)
    lengths = np.random.default_rng(1).lognormal(size=(n, 1))
    assert intrinsic_dim(x * lengths) == pytest.approx(found, rel=1e-6)


def test_the_null_is_the_same_of_round_clouds():
    rng = np.random.default_rng(0)
    assert intrinsic_null(50, 30) == pytest.approx(
        np.mean([two_nn(rng.normal(size=(50, 30))) for _ in range(NULL_DRAWS)]), rel=1e-6
    )
    assert intrinsic_null(50, 30) < 0.9 * 29  # few points in many dimensions look like fewer


def test_intrinsic_dim_finds_a_planted_one():
    """Directions of 4 channels, turned into 60: a sphere of 3 dimensions."""
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.normal(size=(60, 60)))[0][:4]
    found = [intrinsic_dim(rng.normal(size=(400, 4)) @ turn) for _ in range(8)]
    assert near(found, 3, rounding=0.1)
    assert participation_ratio(rng.normal(size=(400, 4)) @ turn) == pytest.approx(4, abs=0.15)


def test_what_has_no_direction_or_no_ratio_has_no_dimension():
    x = np.random.default_rng(3).normal(size=(20, 30))
    twice, nothing = x.copy(), x.copy()
    twice[7] = twice[2]
    nothing[4] = 0
    assert np.isnan(intrinsic_dim(twice))
    assert np.isnan(intrinsic_dim(nothing))
