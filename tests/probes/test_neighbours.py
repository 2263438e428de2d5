"""The probe of neighbours against loops, and on words whose neighbours were put there."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from geomprobe.corpus.contexts import NO_BAND, Contexts, WordType
from geomprobe.errors import CorpusError
from geomprobe.probes import neighbours
from geomprobe.probes.neighbours import Neighbours, same_family
from geomprobe.probes.typed import TYPE_PROBES, Cell
from geomprobe.stats.angles import type_vectors

N, M, WIDTH, BANDS = 60, 16, 32, 10
KEY = ["layer", "vector", "head", "space", "gauge", "frequency_band"]
VALUES = [
    *("n_types", "m", "self_retrieval_mrr", "self_retrieval_hit1", "stability"),
    *("purity_category", "purity_family", "reference_rho", "reference_overlap", "rare_neighbour_share"),
    *("zipf_rho", "hub_rho", "hub_skew", "hub_max", "raw_overlap"),
]
REFERENCE = ["reference_rho", "reference_overlap"]
LETTERS = "bcdfghjklmnpqrstvwxz"


def near(values, target, rounding=0.0):
    """Whether the mean of repeated draws is within three standard errors, and a rounding, of a figure."""
    values = np.asarray(values)
    return abs(values.mean() - target) <= 3 * values.std(ddof=1) / len(values) ** 0.5 + rounding


def word(index):
    """Words that share two letters at their beginning at most."""
    return f"{LETTERS[index % 20]}{LETTERS[index // 20]}ataro"


def kinds(n=N, words=None, categories=None):
    """Words in ascending frequency, as many of each band; every tenth count comes twice, the median among them."""
    return [
        WordType(
            word=words[index] if words else word(index),
            category=categories[index] if categories else "",
            zipf=2 + index / 64,  # a binary fraction: means that are equal come out equal
            count=17 + index - (index % 10 == 0),
            band=index * BANDS // n,
        )
        for index in range(n)
    ]


def contexts(types):
    n = sum(kind.n_contexts for kind in types)
    return Contexts(
        types=tuple(types),
        type_index=np.repeat(np.arange(len(types)), [kind.n_contexts for kind in types]),
        document=np.zeros(n, dtype=np.int64),
        start=np.arange(n),
        ids=np.zeros((n, 20), dtype=np.int64),
        document_names=("text",),
        left_out={},
    )


def cell(x, layer=0, head=0, vector="k", space="content", gauge="raw"):
    return Cell(space, vector, layer, head, np.asarray(x, dtype=np.float32), gauge)


def measured(cells, given, probe=None):
    probe = probe or Neighbours()
    made = probe.measure(cells, given, probe.choose(given))
    assert list(made) == ["neighbours"]
    return made["neighbours"]


def signal(rng, n=N, strength=0.5, m=M):
    """Contexts around a direction of each word, weak beside their noise."""
    return strength * rng.normal(size=(n, 1, WIDTH)) + rng.normal(size=(n, m, WIDTH))


def written(folder, words, vectors):
    file = folder / "vectors.txt"
    lines = (" ".join([one, *map(repr, row)]) for one, row in zip(words, vectors.tolist(), strict=True))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


# --- the same, slowly


def cosine(a, b):
    return float(np.dot(a, b)) / (float(np.dot(a, a)) * float(np.dot(b, b))) ** 0.5


def directions(x):
    """The mean direction of each word in its first contexts, in its second, and in all."""
    x = x.astype(np.float64)
    n, m = x.shape[:2]
    centre = sum(x[i, j] for i in range(n) for j in range(m)) / (n * m)
    seen = [
        [(x[i, j] - centre) / np.dot(x[i, j] - centre, x[i, j] - centre) ** 0.5 for j in range(m)] for i in range(n)
    ]
    return [[sum(row[a:b]) / (b - a) for row in seen] for a, b in ((0, m // 2), (m // 2, m), (0, m))]


def nearest(vectors, k):
    found = []
    for i, mine in enumerate(vectors):
        others = [(-cosine(mine, other), j) for j, other in enumerate(vectors) if j != i]
        found.append([j for _, j in sorted(others)[:k]])
    return found


def rank_of_own(queries, answers, i):
    return 1 + sum(cosine(queries[i], other) > cosine(queries[i], answers[i]) for other in answers)


def spearman(a, b):
    ranks = [pd.Series(values).rank().to_numpy() for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def slowly(x, types, reference=None, k=10):
    """Rows by band, as lists of values in the order of VALUES after `m`."""
    first, second, whole = directions(x)
    near_first, near_second, near_whole = (nearest(part, k) for part in (first, second, whole))
    n = len(types)
    median = float(np.median([kind.count for kind in types]))
    hubs = [sum(i in row for row in near_whole) for i in range(n)]
    by_type = []
    for i, kind in enumerate(types):
        ranks = [rank_of_own(first, second, i), rank_of_own(second, first, i)]
        ours, theirs = set(near_first[i]), set(near_second[i])
        mates = [j for j in range(n) if j != i and kind.category and types[j].category == kind.category]
        family = [j for j in range(n) if j != i and same_family(kind.word, types[j].word)]
        purity = [
            sum(j in near_whole[i] for j in group) / min(k, len(group)) if group else np.nan
            for group in (mates, family)
        ]
        against = [np.nan, np.nan]
        if reference is not None:
            others = [j for j in range(n) if j != i]
            here, there = ([cosine(v[i], v[j]) for j in others] for v in (whole, reference))
            against = [spearman(here, there), len(set(nearest(reference, k)[i]) & set(near_whole[i])) / k]
        frequent = sum(types[j].count > median for j in near_whole[i]) / k
        mrr, hit = sum(1 / r for r in ranks) / 2, sum(r == 1 for r in ranks) / 2
        by_type.append([mrr, hit, len(ours & theirs) / len(ours | theirs), *purity, *against, frequent])
    neighbour_zipf = [sum(types[j].zipf for j in row) / k for row in near_whole]
    deviation = np.array(hubs) - np.mean(hubs)
    skewness = float((deviation**3).mean() / (deviation**2).mean() ** 1.5)
    rows = []
    for band in (-1, *range(BANDS)):
        at = [i for i in range(n) if band in (-1, types[i].band)]
        columns = [[row[c] for i, row in enumerate(by_type) if i in at] for c in range(8)]
        means = [np.nanmean(column) if np.isfinite(column).any() else np.nan for column in columns]
        zipf = [types[i].zipf for i in at]
        rows.append(
            [len(at), x.shape[1], *means]
            + [spearman(zipf, [values[i] for i in at]) for values in (neighbour_zipf, hubs)]
            + [skewness if band == -1 else np.nan, max(hubs[i] for i in at), np.nan]
        )
    return rows


def test_every_column_against_loops(tmp_path):
    rng = np.random.default_rng(0)
    words = [word(i) for i in range(N)]
    for root, at in (("garden", (0, 17, 40)), ("nation", (3, 33))):
        for index, ending in zip(at, ("", "er", "ing"), strict=False):
            words[index] = root + ending
    categories = [["", "", "tree", "tool", "bird"][i % 5] for i in range(N)]
    types = kinds(words=words, categories=categories)
    x = signal(rng)
    x[17] += 0.7 * x[0]
    x[:, :, :4] += 3  # a cone
    x = x.astype(np.float32)
    published = type_vectors(x) + 0.1 * rng.normal(size=(N, WIDTH))
    probe = Neighbours(reference=written(tmp_path, words, published))
    table = measured([cell(x, 3, 1)], contexts(types), probe)
    expected = slowly(x, types, list(published))
    assert list(table.columns) == [*KEY, *VALUES]
    assert table["frequency_band"].to_list() == [-1, *range(10)]
    assert table[KEY[:5]].drop_duplicates().to_numpy().tolist() == [[3, "k", 1, "content", "raw"]]
    for found, row in zip(table[VALUES].to_numpy(dtype=float).tolist(), expected, strict=True):
        assert found == pytest.approx(row, rel=1e-5, nan_ok=True)
    whole = table.iloc[0]
    assert 0 < whole["purity_category"] < 1
    assert 0 < whole["purity_family"] < 1
    assert 0.1 < whole["reference_overlap"] < 1


def test_neighbours_of_the_balanced_gauge_are_held_against_those_of_the_raw_one():
    """Of each head against its own: two heads, whose channels are scaled by numbers of their own."""
    rng = np.random.default_rng(7)
    heads = [signal(rng) for _ in range(2)]
    scales = [np.ones(WIDTH), np.exp(rng.normal(size=WIDTH))]
    given, cells = contexts(kinds()), []
    cells += [cell(x, 3, head) for head, x in enumerate(heads)]
    cells += [cell(x * scales[head], 3, head, gauge="balanced") for head, x in enumerate(heads)]
    table = measured(cells, given)
    assert not table.duplicated(KEY).any()
    assert table.loc[table["gauge"] == "raw", "raw_overlap"].isna().all()
    balanced = table[table["gauge"] == "balanced"]
    for head, x in enumerate(heads):
        raw, own = (nearest(directions(each.astype(np.float32))[2], 10) for each in (x, x * scales[head]))
        shared = [len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in zip(raw, own, strict=True)]
        found = balanced[balanced["head"] == head].set_index("frequency_band")["raw_overlap"]
        assert found[-1] == pytest.approx(np.mean(shared))
        assert found[4] == pytest.approx(np.mean(shared[24:30]))
    same, other = balanced.loc[balanced["frequency_band"] == -1, "raw_overlap"]
    assert same == 1
    assert 0.05 < other < 0.9
    # all else of a balanced row is what a raw row of the same vectors has
    alone = measured([cell(heads[1] * scales[1], 3, 1)], given)
    numbers = [name for name in VALUES if name != "raw_overlap"]
    own = balanced[balanced["head"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(own[numbers], alone[numbers], check_exact=True)


def test_it_is_registered_and_chooses_the_words_of_the_contrasts():
    assert TYPE_PROBES["neighbours"] is Neighbours
    noun = WordType("noun", "tree", 4.0, 20, NO_BAND)
    types = [noun, *kinds(), noun]
    given = contexts(types)
    assert Neighbours().choose(given) == list(range(1, N + 1))
    assert Neighbours().choose(contexts(kinds(50))) == list(range(50))


@pytest.mark.parametrize("n", [0, 49])
def test_too_few_words(n):
    noun = WordType("noun", "tree", 4.0, 20, NO_BAND)
    with pytest.raises(CorpusError, match=rf"needs 50 words that occur 16 times .* there are {n}\. Give more text"):
        Neighbours().choose(contexts([noun] * 20 + kinds(n)))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("nation", "national", True),
        ("nation", "nations", True),
        ("walk", "walked", True),  # four of six
        ("walk", "walking", False),  # four of seven
        ("cat", "cats", False),  # three letters
        ("state", "static", True),
        ("form", "inform", False),
        ("stand", "stone", False),
    ],
)
def test_families(a, b, expected):
    assert same_family(a, b) is same_family(b, a) is expected


def test_identical_halves_find_each_other():
    half = np.random.default_rng(1).normal(size=(N, M // 2, WIDTH))
    table = measured([cell(np.concatenate([half, half], axis=1))], contexts(kinds()))
    assert len(table) == 11
    for column in ("self_retrieval_mrr", "self_retrieval_hit1", "stability"):
        assert table[column].to_list() == [1] * 11
    assert table[[*REFERENCE, "purity_category", "purity_family"]].isna().all().all()


def test_words_without_a_direction_are_found_by_chance():
    rng = np.random.default_rng(2)
    table = measured((cell(rng.normal(size=(N, M, WIDTH)), head=head) for head in range(40)), contexts(kinds()))
    whole = table[table["frequency_band"] == -1]
    assert len(whole) == 40
    assert near(whole["self_retrieval_mrr"], float(sum(Fraction(1, rank) for rank in range(1, N + 1)) / N))
    assert near(whole["self_retrieval_hit1"], 1 / N)
    # Two draws of 10 among 59 share 100/59 in the mean.
    assert near(whole["stability"], 100 / 59 / (20 - 100 / 59), rounding=0.005)
    assert near(whole["rare_neighbour_share"], 29 / 60, rounding=0.01)  # two words have the median count
    assert near(whole["zipf_rho"], 0, rounding=0.05)
    assert near(whole["hub_rho"], 0)
    assert whole["hub_skew"].mean() < 1
    for band in (0, 9):  # rare words are found neither better nor worse
        mrr = table.loc[table["frequency_band"] == band, "self_retrieval_mrr"].to_numpy()
        assert near(mrr - whole["self_retrieval_mrr"].to_numpy(), 0)


def test_planted_pairs_are_found():
    words, categories = [word(i) for i in range(N)], [""] * N
    words[4:6], words[30:33] = ["garden", "gardens"], ["nation", "nations", "national"]
    for pair, at in enumerate((10, 20, 40, 58)):
        categories[at : at + 2] = [f"pair {pair}"] * 2
    rng = np.random.default_rng(3)
    x = signal(rng)
    lonely = measured([cell(x)], contexts(kinds(words=words, categories=categories))).iloc[0]
    for start, stop in ((4, 6), (30, 33), (10, 12), (20, 22), (40, 42), (58, 60)):
        x[start:stop] = x[start : start + 1] + 0.1 * rng.normal(size=(stop - start, M, WIDTH))
    table = measured([cell(x)], contexts(kinds(words=words, categories=categories)), Neighbours(n_neighbours=2))
    for column, bands in (("purity_category", {1, 3, 6, 9}), ("purity_family", {0, 5})):
        assert table[column].iloc[0] == 1
        assert lonely[column] < 0.6
        found = table.set_index("frequency_band")[column]
        assert set(found.index[found.notna()]) == {-1, *bands}


def test_hubs_are_seen_and_that_they_are_the_frequent_words():
    """Two camps of words around opposite directions, and for each ten words that are nothing but that direction."""
    rng = np.random.default_rng(4)
    n, hubs = 200, 20
    side = np.where(np.arange(n) % 2, 1.0, -1.0)
    u = np.zeros(128)
    u[0] = 128**0.5
    own = rng.normal(size=(n, 1, 128))
    own[n - hubs :] *= 0.2
    noise = 0.2 * rng.normal(size=(n, M, 128))
    planted = 0.7 * side[:, None, None] * u + own + noise
    given = contexts(kinds(n))
    without = measured([cell(rng.normal(size=(n, 1, 128)) + noise)], given).set_index("frequency_band")
    table = measured([cell(planted)], given).set_index("frequency_band")
    whole = table.loc[-1]
    assert whole["hub_skew"] > 2.5
    assert abs(without.loc[-1, "hub_skew"]) < 1.2
    assert whole["hub_max"] == table.loc[9, "hub_max"] > 60
    assert without["hub_max"].max() < 40
    assert whole["hub_rho"] > 0.3
    assert abs(without.loc[-1, "hub_rho"]) < 0.25
    assert table.loc[range(9), "rare_neighbour_share"].min() > 0.95
    assert abs(without.loc[-1, "rare_neighbour_share"] - 0.5) < 0.1
    # The same hubs among the rare words: their frequency predicts nothing good.
    back = measured([cell(planted[::-1])], given).set_index("frequency_band").loc[-1]
    assert back["hub_skew"] == pytest.approx(whole["hub_skew"], rel=0.01)
    assert back["hub_rho"] < -0.3
    assert back["rare_neighbour_share"] < 0.05


def test_fewer_contexts_of_rare_words_would_look_like_worse_vectors():
    """Why all words have equally many contexts: the noise of a mean depends on their number."""
    rng = np.random.default_rng(5)
    equal, unequal = [], []
    for _ in range(12):
        x = signal(rng, strength=0.6)
        equal.append(x)
        fewer = x.copy()
        for start in (0, M // 2):  # each half of a rare word is two contexts over and over
            fewer[: N // 2, start : start + M // 2] = np.tile(x[: N // 2, start : start + 2], (1, M // 4, 1))
        unequal.append(fewer)
    given, gaps = contexts(kinds()), []
    for samples in (equal, unequal):
        table = measured([cell(x, head=head) for head, x in enumerate(samples)], given)
        mrr = table.pivot_table(index="head", columns="frequency_band", values="self_retrieval_mrr")
        gaps.append(mrr[range(5, 10)].mean(axis=1) - mrr[range(5)].mean(axis=1))  # frequent less rare
    assert near(gaps[0], 0)
    assert not near(gaps[1], 0)
    assert gaps[1].mean() > 0.1


def test_a_reference_of_the_same_vectors_agrees_wholly(tmp_path):
    x = signal(np.random.default_rng(6)).astype(np.float32)
    types = kinds()
    vectors = type_vectors(x) * np.linspace(1, 9, N)[:, None]  # cosines know no length
    for known in (slice(None), slice(0, 45)):
        words = [kind.word for kind in types][known]
        file = written(tmp_path, words, vectors[known])
        table = measured([cell(x)], contexts(types), Neighbours(reference=file)).set_index("frequency_band")
        assert table.loc[-1, REFERENCE].tolist() == pytest.approx([1, 1])
        assert table.loc[9, REFERENCE].isna().all() == (len(words) < N)  # words that the file does not know
    other = written(tmp_path, words, np.random.default_rng(7).normal(size=(45, WIDTH)))
    row = measured([cell(x)], contexts(types), Neighbours(reference=other)).iloc[0]
    assert abs(row["reference_rho"]) < 0.1
    assert row["reference_overlap"] == pytest.approx(10 / 44, abs=0.08)


@pytest.mark.parametrize("known", [6, 11])
def test_a_reference_of_too_few_words_says_nothing_of_neighbours(tmp_path, known):
    """Of eleven known words all others are among the ten neighbours, whatever the vectors."""
    x = signal(np.random.default_rng(8)).astype(np.float32)
    types = kinds()
    file = written(tmp_path, [kind.word for kind in types[:known]], type_vectors(x)[:known])
    row = measured([cell(x)], contexts(types), Neighbours(reference=file)).iloc[0]
    assert row["reference_rho"] == pytest.approx(1)
    assert np.isnan(row["reference_overlap"])


def test_a_head_without_directions_has_no_rows():
    x = signal(np.random.default_rng(9))
    dead = x.copy()
    dead[:] = 1
    table = measured([cell(x), cell(dead, head=1), cell(x, head=2)], contexts(kinds()))
    assert table["head"].to_list() == [0] * 11 + [2] * 11
    pd.testing.assert_frame_equal(table[VALUES][:11], table[VALUES][11:].reset_index(drop=True), check_exact=True)


def test_bands_that_have_no_words_have_no_rows():
    types = [kind for kind in kinds(200) if kind.band not in (3, 8)]
    table = measured([cell(signal(np.random.default_rng(10), len(types)))], contexts(types))
    assert table["frequency_band"].to_list() == [-1, 0, 1, 2, 4, 5, 6, 7, 9]
    assert table["n_types"].to_list() == [160, *[20] * 8]


def test_a_band_of_one_frequency_has_no_correlation():
    """Zipf frequencies come in hundredths: the words of a small band may all have the same."""
    types = [WordType(kind.word, "", 4.1 if kind.band == 0 else kind.zipf, kind.count, kind.band) for kind in kinds(70)]
    table = measured([cell(signal(np.random.default_rng(11), 70))], contexts(types)).set_index("frequency_band")
    assert np.isnan(table.loc[0, "hub_rho"])
    assert np.isnan(table.loc[0, "zipf_rho"])
    assert table.loc[range(1, 10), ["zipf_rho"]].notna().all().all()


def test_a_cone_moves_no_neighbours(monkeypatch):
    rng = np.random.default_rng(12)
    x = signal(rng, 200, strength=1.0)
    shifted = x + 2 * WIDTH**0.5 * np.eye(WIDTH)[0]
    given = contexts(kinds(200))
    plain, cone = (measured([cell(one)], given) for one in (x, shifted))
    numbers = VALUES
    assert cone[numbers].to_numpy(dtype=float) == pytest.approx(
        plain[numbers].to_numpy(dtype=float), rel=1e-3, nan_ok=True
    )
    # Without the centring the words near the cone's axis would be everybody's neighbours.
    monkeypatch.setattr(neighbours, "centred", lambda values: np.asarray(values, dtype=np.float64))
    raw = measured([cell(shifted)], given)
    assert raw["hub_skew"].iloc[0] > 2 * plain["hub_skew"].iloc[0]
