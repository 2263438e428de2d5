"""Silhouettes by their definition, and those of random labels, which lie below 0."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples

from geomprobe.stats import silhouette
from geomprobe.stats.angles import cosines
from geomprobe.stats.silhouette import macro_silhouette, shuffled_silhouettes

WIDTH = 128
LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2])


def near(values, target, rounding=0.0):
    """Whether the mean of repeated draws is within three standard errors, and a rounding, of a figure."""
    values = np.asarray(values)
    return abs(values.mean() - target) <= 3 * values.std(ddof=1) / len(values) ** 0.5 + rounding


def each_by_definition(distance, labels):
    """The silhouette of every type: (b − a) / max(a, b), a to its own, b to the nearest other category."""
    out = []
    for i, own in enumerate(labels):
        mean = {}
        for label in set(labels):
            others = [distance[i][j] for j in range(len(labels)) if labels[j] == label and j != i]
            mean[label] = sum(others) / len(others)
        a, b = mean[own], min(value for label, value in mean.items() if label != own)
        out.append((b - a) / max(a, b))
    return out


def by_definition(distance, labels):
    each = each_by_definition(distance, labels)
    macro = [[value for value, label in zip(each, labels, strict=True) if label == one] for one in set(labels)]
    return sum(sum(values) / len(values) for values in macro) / len(macro)


def distances(seed=0, labels=LABELS, pull=1.0, width=6):
    rng = np.random.default_rng(seed)
    centres = pull * rng.normal(size=(labels.max() + 1, width))
    return 1 - cosines(centres[labels] + rng.normal(size=(len(labels), width)))


@pytest.mark.parametrize("seed", range(3))
def test_every_category_counts_alike(seed):
    distance = distances(seed)
    found = macro_silhouette(distance, LABELS)
    assert found == pytest.approx(by_definition(distance.tolist(), LABELS.tolist()), rel=1e-9)
    np.fill_diagonal(distance, 0)
    each = silhouette_samples(distance, LABELS, metric="precomputed")
    assert found == pytest.approx(np.mean([each[label == LABELS].mean() for label in range(3)]), rel=1e-12)
    assert abs(found - each.mean()) > 1e-3  # the mean over types is another number


def test_labels_need_not_be_numbers_from_0():
    distance = distances()
    assert macro_silhouette(distance, LABELS * 7 + 2) == pytest.approx(macro_silhouette(distance, LABELS), rel=1e-12)


@pytest.mark.parametrize("at_a_time", [1, 1 << 18])
def test_shuffled_ones_are_those_of_relabelled_types(monkeypatch, at_a_time):
    monkeypatch.setattr(silhouette, "AT_A_TIME", at_a_time)  # 1: several blocks of shuffles
    distance = distances(1)
    rng = np.random.default_rng(2)
    shuffles = np.stack([np.arange(12), *(rng.permutation(12) for _ in range(10))])
    before = distance.copy(), shuffles.copy()
    found = shuffled_silhouettes(distance, LABELS, shuffles)
    for order, value in zip(shuffles, found, strict=True):
        labels = np.empty(12, dtype=int)
        for place in range(12):
            labels[order[place]] = LABELS[place]
        assert value == pytest.approx(by_definition(distance.tolist(), labels.tolist()), abs=2e-6)  # float32 within
        assert value == pytest.approx(macro_silhouette(distance, labels), abs=2e-6)
    assert (distance == before[0]).all()
    assert (shuffles == before[1]).all()


def test_what_has_no_direction_has_no_silhouette():
    distance = distances()
    distance[3, 4] = distance[4, 3] = np.nan
    assert np.isnan(macro_silhouette(distance, LABELS))
    assert np.isnan(shuffled_silhouettes(distance, LABELS, np.arange(12)[None])).all()


def test_at_its_ends():
    direction = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    distance = 1 - cosines(direction)
    assert macro_silhouette(distance, np.array([0, 0, 1, 1])) == pytest.approx(1)
    assert macro_silhouette(distance, np.array([0, 1, 0, 1])) == pytest.approx(-0.5)  # own 1, other ½


@pytest.mark.parametrize(("size", "draws", "figure"), [(5, 60, -0.071), (20, 30, -0.036), (100, 4, -0.016)])
def test_random_labels_have_silhouettes_below_0(size, draws, figure):
    """20 categories: the nearest of 19 others is nearer than one's own by chance, the more so the smaller they are."""
    rng = np.random.default_rng(size)
    labels = np.repeat(np.arange(20), size)
    found, shuffled = [], []
    for _ in range(draws):
        distance = 1 - cosines(rng.normal(size=(len(labels), WIDTH)))
        found.append(macro_silhouette(distance, labels))
        shuffles = np.stack([rng.permutation(len(labels)) for _ in range(4)])
        shuffled.append(shuffled_silhouettes(distance, labels, shuffles).mean())
    for values in (found, shuffled):
        assert near(values, figure, rounding=0.0005)
        assert not near(values, 0, rounding=0.005)


def test_planted_clusters_stand_out_of_their_null():
    labels = np.repeat(np.arange(5), 6)
    distance = distances(3, labels, pull=2.0, width=32)
    rng = np.random.default_rng(4)
    null = shuffled_silhouettes(distance, labels, np.stack([rng.permutation(30) for _ in range(200)]))
    found = macro_silhouette(distance, labels)
    assert found > 0.5
    assert null.max() < 0.2
    assert (found - null.mean()) / null.std() > 20
