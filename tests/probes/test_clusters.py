"""The probe of clusters on vectors made up here: nothing to find, clusters put there, a cone around them."""

import numpy as np
import pandas as pd
import pytest

from geomprobe.corpus.contexts import NO_BAND, Contexts, WordType
from geomprobe.errors import CorpusError
from geomprobe.probes import clusters
from geomprobe.probes.clusters import Clusters
from geomprobe.probes.typed import TYPE_PROBES, Cell
from geomprobe.stats.angles import mean_cosine, raw_type_vectors
from geomprobe.stats.dimension import intrinsic_null

M, WIDTH = 8, 32
KEY = ["layer", "vector", "head", "space", "gauge"]
VALUES = (
    *("auc", "auc_low", "auc_high", "auc_shuffled", "auc_p", "cosine_gap"),
    *("silhouette", "silhouette_z", "silhouette_p", "kappa", "knn_purity", "chance"),
    *("anisotropy", "anisotropy_standardised", "anisotropy_abtt"),
    *("participation_ratio", "participation_ratio_null", "intrinsic_dim", "intrinsic_dim_null"),
    *("n_types", "n_categories", "m"),
)
NOT_OF_LAYERS = ["auc_p", "silhouette_p"]


def near(values, target, rounding=0.0):
    """Whether the mean of repeated draws is within three standard errors, and a rounding, of a figure."""
    values = np.asarray(values)
    return abs(values.mean() - target) <= 3 * values.std(ddof=1) / len(values) ** 0.5 + rounding


def contexts(*sizes):
    """Words of categories of these sizes, and two words without one."""
    categories = [f"category {index}" for index, size in enumerate(sizes) for _ in range(size)]
    kinds = [WordType(f"word{index}", category, 4.0, 20, NO_BAND) for index, category in enumerate(categories)]
    kinds = [*kinds[:3], WordType("plain", "", 4.0, 20, NO_BAND), *kinds[3:], WordType("other", "", 4.0, 20, 3)]
    n = sum(kind.n_contexts for kind in kinds)
    return Contexts(
        types=tuple(kinds),
        type_index=np.repeat(np.arange(len(kinds)), [kind.n_contexts for kind in kinds]),
        document=np.zeros(n, dtype=np.int64),
        start=np.arange(n),
        ids=np.zeros((n, 20), dtype=np.int64),
        document_names=("text",),
        left_out={},
    )


def vectors(rng, labels, pull=0.0, offset=0.0):
    """Contexts (type, context, d) of types around centres of scale `pull`, in a cone of offset times √d."""
    labels = np.asarray(labels)
    kinds = pull * rng.normal(size=(labels.max() + 1, WIDTH))[labels] + rng.normal(size=(len(labels), WIDTH))
    x = kinds[:, None] + 0.3 * rng.normal(size=(len(labels), M, WIDTH))
    x[..., 0] += offset * WIDTH**0.5
    return x.astype(np.float32)


def cell(x, layer=0, head=0, vector="k", space="content", gauge="raw"):
    return Cell(space, vector, layer, head, x, gauge)


def measured(cells, given, probe=None):
    probe = probe or Clusters()
    made = probe.measure(cells, given, probe.choose(given))
    assert list(made) == ["clusters"]
    return made["clusters"]


@pytest.fixture(scope="module")
def nothing():
    """Two layers of twelve heads in which words lie at random: 8 categories of 5."""
    given, labels, rng = contexts(*[5] * 8), np.repeat(np.arange(8), 5), np.random.default_rng(0)
    return measured([cell(vectors(rng, labels), layer, head) for layer in (0, 1) for head in range(12)], given)


def test_it_is_registered_and_chooses_the_words_of_categories():
    assert TYPE_PROBES["clusters"] is Clusters
    given = contexts(5, 3, 4, 6)
    chosen = Clusters().choose(given)
    assert [given.types[index].category for index in chosen] == ["category 0"] * 5 + ["category 2"] * 4 + [
        "category 3"
    ] * 6  # the second has three words only
    assert given.rows(chosen, M).shape == (15, M)
    labels = np.repeat(np.arange(3), [5, 4, 6])
    row = measured([cell(vectors(np.random.default_rng(0), labels))], given).iloc[0]
    assert (row["n_types"], row["n_categories"], row["m"]) == (15, 3, M)


@pytest.mark.parametrize("sizes", [(), (9,), (9, 9), (9, 9, 3, 3)])
def test_too_few_categories(sizes):
    found = sum(size >= 4 for size in sizes)
    with pytest.raises(CorpusError, match=rf"needs 3 categories of 4 words .* 8 times .* there are {found}\. Give"):
        Clusters().choose(contexts(*sizes))


def test_rows_of_heads_and_of_layers():
    given, labels, rng = contexts(5, 5, 5, 5), np.repeat(np.arange(4), 5), np.random.default_rng(1)
    cells = [
        cell(vectors(rng, labels), layer, head, vector)
        for layer in (0, 1)
        for vector, heads in (("q", 4), ("k", 2))
        for head in range(heads)
    ]
    cells += [cell(vectors(rng, labels), layer, head, "k", gauge="balanced") for layer in (0, 1) for head in range(2)]
    cells += [cell(vectors(rng, labels), layer, -1, "", "residual") for layer in (0, 1)]
    cells += [cell(vectors(rng, labels), -1, -1, "", "embedding")]
    table = measured(iter(cells), given, Clusters(permutations=19, draws=20))
    assert list(table.columns) == [*KEY, *VALUES]
    assert not table.duplicated(KEY).any()
    heads, layers = table.iloc[: len(cells)], table.iloc[len(cells) :]
    assert heads[KEY].to_dict("records") == [one.key for one in cells]
    assert not heads.isna().any().any()
    assert layers[KEY].to_dict("records") == [
        {"layer": layer, "vector": vector, "head": -1, "space": "content", "gauge": gauge}
        for gauge, vectors_of_it in (("raw", ("q", "k")), ("balanced", ("k",)))
        for layer in (0, 1)
        for vector in vectors_of_it
    ]
    assert layers[NOT_OF_LAYERS].isna().all().all()
    means = [name for name in VALUES if name not in ("auc_low", "auc_high", *NOT_OF_LAYERS)]
    for _, row in layers.iterrows():
        own = (heads["layer"] == row["layer"]) & (heads["vector"] == row["vector"]) & (heads["gauge"] == row["gauge"])
        mine = heads[own & (heads["head"] >= 0)]
        assert row[means].tolist() == pytest.approx([float(np.mean(mine[name].to_list())) for name in means])
    assert (heads["auc_low"] < heads["auc_high"]).all()


def test_spaces_without_heads_have_no_means():
    given, labels = contexts(5, 5, 5), np.repeat(np.arange(3), 5)
    x = vectors(np.random.default_rng(2), labels)
    table = measured([cell(x, -1, -1, "", "embedding")], given, Clusters(permutations=19, draws=20))
    assert len(table) == 1
    assert list(table.columns) == [*KEY, *VALUES]
    assert pd.api.types.is_float_dtype(table["auc"])


def test_words_at_random(nothing):
    heads, layers = nothing[nothing["head"] >= 0], nothing[nothing["head"] < 0]
    assert len(heads) == 24
    assert len(layers) == 2
    for table in (heads, layers):
        assert table["auc_low"].le(table["auc"]).all()
        assert table["auc_high"].ge(table["auc"]).all()
        assert (table["auc_low"].le(0.5) & table["auc_high"].ge(0.5)).mean() > 0.9
    # The heads are independent of one another here, so their mean is known better than any of them.
    assert (layers["auc_high"] - layers["auc_low"]).max() < 0.7 * (heads["auc_high"] - heads["auc_low"]).min()
    assert near(heads["auc"], 0.5)
    assert heads["auc_shuffled"].to_list() == pytest.approx([0.5] * 24, abs=0.005)
    assert near(heads["cosine_gap"], 0)
    assert heads["auc_p"].min() > 1 / 1000
    assert near(heads["auc_p"], 0.5)
    assert near(heads["silhouette_p"], 0.5)
    assert near(heads["silhouette_z"], 0)
    assert near(heads["knn_purity"], 4 / 39)
    assert heads["chance"].to_list() == pytest.approx([4 / 39] * 24)
    assert near(heads["anisotropy"], 0)
    assert heads["participation_ratio_null"].to_list() == pytest.approx([WIDTH / (1 + WIDTH / 40)] * 24)
    assert heads["participation_ratio"].mean() == pytest.approx(WIDTH / (1 + WIDTH / 40), rel=0.03)
    assert heads["intrinsic_dim_null"].to_list() == [intrinsic_null(40, WIDTH)] * 24


def test_planted_clusters_are_found():
    given, labels, rng = contexts(5, 6, 7, 8), np.repeat(np.arange(4), [5, 6, 7, 8]), np.random.default_rng(3)
    table = measured([cell(vectors(rng, labels, pull=2), head=head) for head in range(3)], given)
    assert (table["auc"] > 0.99).all()
    heads = table.iloc[:3]
    assert heads["auc_p"].to_list() == heads["silhouette_p"].to_list() == [1 / 1000] * 3
    assert (heads["auc_low"] > 0.9).all()
    assert (heads["knn_purity"] > 0.8).all()
    assert heads["chance"].to_list() == pytest.approx([(5 * 4 + 6 * 5 + 7 * 6 + 8 * 7) / 26 / 25] * 3)
    assert (heads["silhouette"] > 0.4).all()
    assert (heads["silhouette_z"] > 10).all()
    assert (heads["cosine_gap"] > 0.5).all()
    assert (heads["kappa"] > 20).all()
    assert (heads["participation_ratio"] < 0.4 * heads["participation_ratio_null"]).all()


def test_a_cone_changes_nothing_but_anisotropy(monkeypatch):
    given, labels = contexts(5, 5, 5, 5), np.repeat(np.arange(4), 5)
    probe = Clusters(permutations=99, draws=50)
    found = {}
    for offset in (0, 2):
        x = vectors(np.random.default_rng(4), labels, pull=0.5, offset=offset)
        found[offset] = measured([cell(x)], given, probe).iloc[0]
        assert found[offset]["anisotropy"] == pytest.approx(mean_cosine(x.astype(np.float64).mean(axis=1)))
    centred = [name for name in VALUES if not name.startswith("anisotropy")]
    assert found[2][centred].tolist() == pytest.approx(found[0][centred].tolist(), rel=1e-3)
    assert found[2]["anisotropy"] > found[0]["anisotropy"] + 0.5
    # Without the centring these would follow the cone.
    monkeypatch.setattr(clusters, "type_vectors", raw_type_vectors)
    raw = measured([cell(x)], given, probe).iloc[0]
    assert raw["cosine_gap"] < 0.5 * found[2]["cosine_gap"]
    assert raw["kappa"] > 5 * found[2]["kappa"]


def test_the_interval_of_a_layer_is_that_of_the_mean_of_its_heads():
    given, labels, rng = contexts(5, 5, 5), np.repeat(np.arange(3), 5), np.random.default_rng(5)
    x = vectors(rng, labels, pull=0.5)
    table = measured([cell(x, head=head) for head in range(3)], given, Clusters(permutations=9, draws=80))
    interval = ["auc_low", "auc", "auc_high"]
    # Words are drawn alike in all heads: three times the same head is no more certain than one.
    assert table.iloc[3][interval].tolist() == pytest.approx(table.iloc[0][interval].tolist(), rel=1e-12)


def test_a_seed_decides_the_draws_and_nothing_else(nothing):
    given, labels = contexts(*[5] * 8), np.repeat(np.arange(8), 5)
    cells = [cell(vectors(np.random.default_rng(6), labels, pull=0.3))]
    first, again, other = (measured(cells, given, Clusters(seed=seed)) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    drawn = ["auc_low", "auc_high", "auc_shuffled", "auc_p", "silhouette_z", "silhouette_p"]
    same = [name for name in VALUES if name not in drawn]
    pd.testing.assert_frame_equal(first[same], other[same], check_exact=True)
    assert not first[drawn[:3]].equals(other[drawn[:3]])
    a, b = first.iloc[0], other.iloc[0]
    for one, two in ((a, b), (b, a)):
        assert one["auc_low"] < two["auc"] < one["auc_high"]
    assert b[["auc_low", "auc_high"]].tolist() == pytest.approx(a[["auc_low", "auc_high"]].tolist(), abs=0.04)
    assert b["auc_shuffled"] == pytest.approx(a["auc_shuffled"], abs=0.005)


def test_the_order_of_heads_does_not_matter():
    given, labels, rng = contexts(5, 5, 5), np.repeat(np.arange(3), 5), np.random.default_rng(7)
    cells = [cell(vectors(rng, labels), layer, head) for layer in (0, 1) for head in (0, 1)]
    probe = Clusters(permutations=19, draws=20)
    forward, backward = (
        measured(order, given, probe).sort_values(KEY, ignore_index=True) for order in (cells, cells[::-1])
    )
    pd.testing.assert_frame_equal(forward, backward, rtol=1e-12)


def test_a_head_without_directions_has_no_values():
    """A head that puts out the same vector for every word."""
    given, labels = contexts(5, 5, 5), np.repeat(np.arange(3), 5)
    alive = vectors(np.random.default_rng(8), labels)
    dead = np.ones_like(alive)
    table = measured([cell(alive), cell(dead, head=1)], given, Clusters(permutations=19, draws=20))
    row = table.iloc[1]
    values = [name for name in VALUES if name.startswith(("auc", "cosine", "silhouette", "kappa", "knn"))]
    assert row[values].isna().all()
    assert row[["participation_ratio", "intrinsic_dim"]].isna().all()
    assert (row["n_types"], row["m"]) == (15, M)
    assert row["chance"] == pytest.approx(4 / 14)


def test_a_layer_with_a_dead_head_has_an_interval_around_its_mean():
    given, labels = contexts(5, 5, 5), np.repeat(np.arange(3), 5)
    alive = vectors(np.random.default_rng(8), labels)
    table = measured([cell(alive), cell(np.ones_like(alive), head=1)], given, Clusters(permutations=19, draws=20))
    interval = ["auc_low", "auc", "auc_high"]
    assert table.iloc[2][interval].tolist() == pytest.approx(table.iloc[0][interval].tolist())
