"""Directions of types against loops, and the mean cosine of random directions, which is 0."""

import numpy as np
import pytest

from geomprobe.stats.angles import centred, cosines, mean_cosine, raw_type_vectors, type_vectors, unit

WIDTH = 128


def near(values, target, rounding=0.0):
    """Whether the mean of repeated draws is within three standard errors, and a rounding, of a figure."""
    values = np.asarray(values)
    return abs(values.mean() - target) <= 3 * values.std(ddof=1) / len(values) ** 0.5 + rounding


def cosine(a, b):
    dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    return dot / (sum(float(x) ** 2 for x in a) * sum(float(y) ** 2 for y in b)) ** 0.5


def data(seed=0, shape=(6, 4, 5), offset=3.0):
    return (np.random.default_rng(seed).normal(size=shape) + offset).astype(np.float32)


def test_unit_has_length_one_and_nothing_has_no_direction():
    x = data()
    x[2, 1] = 0
    found = unit(x)
    assert found.dtype == np.float64
    for i in range(6):
        for j in range(4):
            if (i, j) == (2, 1):
                assert np.isnan(found[i, j]).all()
            else:
                length = sum(float(value) ** 2 for value in x[i, j]) ** 0.5
                assert found[i, j].tolist() == pytest.approx([float(value) / length for value in x[i, j]], rel=1e-12)


def test_type_vectors_are_means_of_directions_seen_from_the_centre():
    x = data()
    n, m, width = x.shape
    per_type = [[sum(float(x[i, j, c]) for j in range(m)) / m for c in range(width)] for i in range(n)]
    centre = [sum(row[c] for row in per_type) / n for c in range(width)]
    seen, means = centred(x), type_vectors(x)
    for i in range(n):
        total = [0.0] * width
        for j in range(m):
            shifted = [float(x[i, j, c]) - centre[c] for c in range(width)]
            length = sum(value**2 for value in shifted) ** 0.5
            assert seen[i, j].tolist() == pytest.approx([value / length for value in shifted], rel=1e-9)
            total = [a + value / length / m for a, value in zip(total, shifted, strict=True)]
        assert means[i].tolist() == pytest.approx(total, rel=1e-9)
    assert raw_type_vectors(x) == pytest.approx(np.array(per_type), rel=1e-12)


def test_each_context_counts_alike_however_long_its_vector():
    x = data(offset=0.0)
    before = type_vectors(x)
    centre = x.mean((0, 1), dtype=np.float64)
    longer = x.astype(np.float64)
    longer[0, 0] = centre + 7 * (longer[0, 0] - centre)
    longer[0, 1] = centre + (longer[0, 1] - centre) / 7
    shift = centre - longer.mean((0, 1))  # the centre moves with them: put it back through one other type
    longer[5, 3] += shift * 24
    assert type_vectors(longer)[0] == pytest.approx(before[0], rel=1e-6)
    assert raw_type_vectors(longer)[0] != pytest.approx(raw_type_vectors(x)[0], rel=0.1)


def test_an_offset_common_to_all_is_taken_out():
    x = data(offset=0.0).astype(np.float64)
    assert type_vectors(x + 100) == pytest.approx(type_vectors(x), abs=1e-12)
    assert abs(unit(x + 100).mean(axis=1) - type_vectors(x)).max() > 0.1  # what it would be without the centring


def test_cosines_pair_by_pair():
    a, b = data(1, (4, 3)), data(2, (5, 3))
    crossed, own = cosines(a, b), cosines(a)
    assert crossed.shape == (4, 5)
    for i in range(4):
        assert crossed[i].tolist() == pytest.approx([cosine(a[i], row) for row in b], rel=1e-12)
        assert own[i].tolist() == pytest.approx([cosine(a[i], row) for row in a], rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 11])
def test_mean_cosine_is_that_of_all_pairs(n):
    x = data(3, (n, 7), offset=0.5)
    pairs = [cosine(x[i], x[j]) for i in range(n) for j in range(n) if i != j]
    assert mean_cosine(x) == pytest.approx(sum(pairs) / len(pairs), rel=1e-10)


def test_mean_cosine_of_too_little_is_nothing():
    assert np.isnan(mean_cosine(np.ones((1, 4))))
    assert np.isnan(mean_cosine(np.ones((0, 4))))
    assert np.isnan(mean_cosine(np.array([[1.0, 0], [0, 0]])))
    assert mean_cosine(np.array([[1.0, 0], [0, 2], [-3, 0]])) == pytest.approx(-1 / 3)


@pytest.mark.parametrize(("n", "draws"), [(5, 400), (20, 300), (200, 60)])
def test_random_directions_have_mean_cosine_0_where_the_plain_square_has_1_over_n(n, draws):
    rng = np.random.default_rng(n)
    samples = [rng.normal(size=(n, WIDTH)) for _ in range(draws)]
    assert near([mean_cosine(x) for x in samples], 0)
    plain = [float((unit(x).mean(axis=0) ** 2).sum()) for x in samples]
    assert near(plain, 1 / n)
    assert not near(plain, 0)


@pytest.mark.parametrize(("offset", "expected"), [(1, 0.5), (2, 0.8)])
def test_mean_cosine_of_a_cone(offset, expected):
    rng = np.random.default_rng(offset)
    found, after = [], []
    for _ in range(10):
        x = rng.normal(size=(500, WIDTH))
        x[:, 0] += offset * WIDTH**0.5
        found.append(mean_cosine(x))
        after.append(mean_cosine(type_vectors(x[:, None])))
    assert near(found, expected, rounding=0.005)
    # Less their own mean, n directions have a mean cosine of −1/(n − 1), for their sum is 0.
    assert near(after, -1 / 499, rounding=1e-5)
