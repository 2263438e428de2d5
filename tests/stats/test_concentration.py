"""κ and anisotropy against loops, and what random directions give with and without the correction."""

from math import gamma, pi

import numpy as np
import pytest

from geomprobe.stats import concentration
from geomprobe.stats.concentration import anisotropies, kappa, standardised, without_top

WIDTH = 128
CATEGORIES = 10
SIZES = [(5, 300), (20, 200), (200, 40)]


def near(values, target, rounding=0.0):
    """Whether the mean of repeated draws is within three standard errors, and a rounding, of a figure."""
    values = np.asarray(values)
    return abs(values.mean() - target) <= 3 * values.std(ddof=1) / len(values) ** 0.5 + rounding


def square(x):
    """R̄² without its bias: the mean cosine of two different rows."""
    rows = [[float(value) for value in row] for row in x]
    length = [sum(value**2 for value in row) ** 0.5 for row in rows]
    total, n = 0.0, len(rows)
    for i in range(n):
        for j in range(n):
            if i != j:
                total += sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) / (length[i] * length[j])
    return total / (n * (n - 1))


def fast_square(x):
    """The same through the product of all pairs."""
    directions = x / np.sqrt((x**2).sum(axis=1))[:, None]
    product = directions @ directions.T
    n = len(x)
    return (product.sum() - np.trace(product)) / (n * (n - 1))


def formula(r_square, width):
    return np.sqrt(r_square) * (width - r_square) / (1 - r_square)


def plain_square(x):
    return float(((x / np.linalg.norm(x, axis=1, keepdims=True)).mean(axis=0) ** 2).sum())


def bunched(seed=0, width=12, pull=1.5):
    rng = np.random.default_rng(seed)
    labels = np.repeat([3, 1, 7], [4, 9, 5])
    return rng.normal(size=(18, width)) + pull * rng.normal(size=(8, width))[labels], labels


def test_kappa_is_its_formula():
    x, labels = bunched()
    squares = [square(x[labels == label]) for label in (1, 3, 7)]
    assert kappa(x, labels) == pytest.approx(formula(sum(squares) / 3, 12), rel=1e-10)
    apart = np.mean([formula(value, 12) for value in squares])  # κ category by category is another number
    assert kappa(x, labels) != pytest.approx(apart, rel=0.01)


def test_kappa_where_nothing_bunches_and_where_all_is_one():
    x = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    assert kappa(x, np.array([0, 0, 1, 1])) == 0  # clipped: the corrected square is −1
    assert np.isnan(kappa(np.repeat(np.eye(2), 2, axis=0), np.array([0, 0, 1, 1])))
    assert np.isnan(kappa(np.zeros((4, 2)), np.array([0, 0, 1, 1])))
    assert np.isnan(kappa(np.eye(4), np.array([0, 0, 0, 1])))  # a single type has no other


def test_a_category_of_any_size_counts_once():
    x, labels = bunched(1)
    squares = {label: square(x[labels == label]) for label in (1, 3, 7)}
    pooled = sum(squares[label] * (labels == label).sum() for label in squares) / len(labels)
    assert kappa(x, labels) == pytest.approx(formula(np.mean(list(squares.values())), 12), rel=1e-10)
    assert kappa(x, labels) != pytest.approx(formula(pooled, 12), rel=0.005)


@pytest.mark.parametrize(("n", "draws", "figure"), [(5, 300, 71.5), (20, 200, 30.1), (200, 60, 9.1)])
def test_without_the_correction_random_directions_look_bunched(monkeypatch, n, draws, figure):
    rng = np.random.default_rng(n)
    samples = [rng.normal(size=(n, WIDTH)) for _ in range(draws)]
    labels = np.zeros(n, dtype=int)
    ours = np.array([kappa(x, labels) for x in samples])
    expected = [formula(max(0, fast_square(x)), WIDTH) for x in samples]
    assert ours.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-6)
    monkeypatch.setattr(concentration, "mean_cosine", plain_square)
    plain = [kappa(x, labels) for x in samples]
    assert near(plain, figure, rounding=0.05)
    assert not near(ours, figure, rounding=0.05)


@pytest.mark.parametrize(("n", "draws"), SIZES)
def test_random_categories_are_averaged_before_they_are_clipped(n, draws):
    """Each corrected square has variance 2/(n(n − 1)d); κ is nearly d times the root of what is left of their mean."""
    root = gamma(0.75) * 2**0.25 / pi**0.5 / 2  # E √max(0, Z) of a standard normal Z
    each = WIDTH * (2 / (n * (n - 1) * WIDTH)) ** 0.25 * root  # 8.8, 4.2 and 1.3
    together = each / CATEGORIES**0.25  # 5.0, 2.4 and .74
    rng = np.random.default_rng(n + 1)
    labels = np.repeat(np.arange(CATEGORIES), n)
    found, clipped = [], []
    for _ in range(draws):
        x = rng.normal(size=(len(labels), WIDTH))
        squares = [fast_square(x[labels == label]) for label in range(CATEGORIES)]
        found.append(kappa(x, labels))
        assert found[-1] == pytest.approx(formula(max(0, np.mean(squares)), WIDTH), rel=1e-8, abs=1e-6)
        clipped.append(np.mean([formula(max(0, value), WIDTH) for value in squares]))
    assert near(found, together, rounding=0.03 * together)
    assert near(clipped, each, rounding=0.03 * each)
    assert not near(clipped, together, rounding=0.03 * together)


def test_kappa_finds_a_planted_concentration():
    """Directions about one axis with κ = 60 in 16 dimensions, drawn by their cosine's own density."""
    rng = np.random.default_rng(9)
    width, true, grid = 16, 60.0, np.linspace(-1, 1, 20001)
    log_density = true * grid + (width - 3) / 2 * np.log(np.maximum(1 - grid**2, 1e-300))
    density = np.exp(log_density - log_density.max())
    found = []
    for _ in range(60):
        along = rng.choice(grid, size=40, p=density / density.sum())
        across = rng.normal(size=(40, width - 1))
        across *= np.sqrt(1 - along**2)[:, None] / np.linalg.norm(across, axis=1, keepdims=True)
        found.append(kappa(np.column_stack([along, across]), np.repeat([0, 1], 20)))
    assert near(found, true, rounding=0.02 * true)  # the formula is itself an approximation


def test_standardised_by_channel():
    x = np.random.default_rng(2).normal(size=(20, 5)) * [1, 10, 0, 0.1, 3] + 4
    found = standardised(x)
    assert found.shape == (20, 4)  # the third does not vary
    for column, source in zip(found.T, (0, 1, 3, 4), strict=True):
        mean = sum(x[:, source].tolist()) / 20
        spread = (sum((value - mean) ** 2 for value in x[:, source].tolist()) / 20) ** 0.5
        assert column.tolist() == pytest.approx([(value - mean) / spread for value in x[:, source].tolist()], rel=1e-9)


@pytest.mark.parametrize(("width", "top"), [(8, 1), (199, 1), (200, 2), (310, 3)])
def test_top_components_are_taken_out(width, top):
    rng = np.random.default_rng(width)
    x = rng.normal(size=(30, width)) * np.linspace(3, 0.5, width) + 5
    shifted = x - x.mean(axis=0)
    _, axes = np.linalg.eigh(shifted.T @ shifted)
    expected = shifted.copy()
    for axis in axes.T[::-1][:top]:
        for row in expected:
            row -= float(row @ axis) * axis
    assert without_top(x) == pytest.approx(expected, abs=1e-8)


def test_anisotropies_are_mean_cosines():
    x = np.random.default_rng(3).normal(size=(15, 6)) * [5, 1, 1, 1, 1, 1] + [4, 1, 0, 0, 0, 0]
    found = anisotropies(x)
    shifted = x - x.mean(axis=0)
    _, axes = np.linalg.eigh(shifted.T @ shifted)
    expected = {
        "anisotropy": square(x),
        "anisotropy_standardised": square(shifted / x.std(axis=0)),
        "anisotropy_abtt": square(shifted - np.outer(shifted @ axes[:, -1], axes[:, -1])),
    }
    assert found == pytest.approx(expected, rel=1e-8)
    broken = x.copy()
    broken[4, 2] = np.nan
    assert all(np.isnan(value) for value in anisotropies(broken).values())


def test_a_cone_is_seen_as_it_is_and_not_once_its_mean_is_out():
    rng = np.random.default_rng(4)
    found = []
    for _ in range(8):
        x = rng.normal(size=(300, WIDTH))
        x[:, 0] += WIDTH**0.5
        found.append(list(anisotropies(x).values()))
    raw, scaled, without = np.transpose(found)
    assert near(raw, 0.5, rounding=0.005)
    assert abs(scaled.mean()) < 0.005
    assert abs(without.mean()) < 0.005
