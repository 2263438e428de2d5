"""AUC of the nouns that every side has, from the vectors that runs save, against pairs counted one by one."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from geomprobe.comparison.comparison import compare_runs
from geomprobe.comparison.measured import differences
from geomprobe.comparison.sides import WHOLE, Sides
from geomprobe.comparison.words import FILE, Nouns, separations, shared_contexts
from geomprobe.stats.pairs import draws_of_types
from tests.comparison import oracle
from tests.comparison.made import changed, made_run, nouns, with_words

N_DRAWS = 12
SAVED = {"content": "content.k", "content_balanced": "content_balanced.k", "residual": "residual.x"}
OWN = [("word of the first", "metals"), ("odd", "oddities"), ("odder", "oddities")]


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """The first has words of its own, the second its words in another order; other depths and heads."""
    root = tmp_path_factory.mktemp("words")
    one = with_words(made_run("one", layers=6), root / "one", words=[*nouns(), *OWN], seed=1)
    other = with_words(made_run("other"), root / "other", words=nouns()[::-1], seed=2, pull=0.3)
    return Sides.of([one, other])


@pytest.fixture(scope="module")
def measured(sides):
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geomprobe.comparison.words.AUC_DRAWS", N_DRAWS)
        found = separations(sides, Nouns.of(sides), lambda done, of: told.append((done, of)))
    return {(space_of(one), one.place): one for one in found}, told


def space_of(one):
    """Under which name its vectors are saved."""
    return f"{one.token_class}_{one.gauge}" if one.gauge else one.token_class


def by_hand(sides, index, space, layers, often=None):
    """The mean over layers of means over heads of counted AUC, of the common nouns in the order of the first."""
    run = sides.runs[index]
    order = list(run.tables["types"]["word"])
    rows = [order.index(word) for word, _ in nouns()]
    blocks = load_file(run.path / FILE)
    by_layer = []
    for layer in layers:
        block = blocks[f"{space}.{layer}"][rows]
        heads = [oracle.counted_auc(block[:, head], [c for _, c in nouns()], often) for head in range(block.shape[1])]
        by_layer.append(sum(heads) / len(heads))
    return sum(by_layer) / len(by_layer)


@pytest.mark.parametrize(("space", "name"), SAVED.items())
@pytest.mark.parametrize(("place", "layers"), [(WHOLE, ([*range(6)], [*range(3)])), ("middle", ([2, 3], [1]))])
def test_auc_of_common_nouns_by_hand(space, name, place, layers, sides, measured):
    one = measured[0][space, place]
    drawn = draws_of_types(len(nouns()), N_DRAWS, np.random.default_rng(0))
    assert (one.n_types, one.n_documents, one.unit) == (len(nouns()), 0, "AUC")
    for index in (0, 1):
        assert one.estimates[index] == pytest.approx(by_hand(sides, index, name, layers[index]), rel=1e-10)
        for at in (0, 5):
            expected = by_hand(sides, index, name, layers[index], drawn[at])
            assert one.draws[index, at] == pytest.approx(expected, rel=1e-10)


def test_the_embedding_is_at_one_place(sides, measured):
    found, _ = measured
    one = found["embedding", WHOLE]
    for index in (0, 1):
        assert one.estimates[index] == pytest.approx(by_hand(sides, index, "embedding.x", [-1]), rel=1e-10)
    assert [place for space, place in found if space == "embedding"] == [WHOLE]
    assert {place for space, place in found if space == "content"} == {WHOLE, "early", "middle", "late"}
    assert not any(space == "query" for space, _ in found)


def test_it_tells_how_far_it_is(measured):
    _, told = measured
    assert told == [(done, 3 * 6 + 1 + 3 * 3 + 1) for done in range(1, 30)]


def test_a_gauge_that_one_side_has_not_is_not_compared(sides, tmp_path, monkeypatch):
    """Nor does it cost anything."""
    monkeypatch.setattr("geomprobe.comparison.words.AUC_DRAWS", 3)
    bare = with_words(made_run("bare"), tmp_path / "bare")
    blocks = {name: x for name, x in load_file(tmp_path / "bare" / FILE).items() if "balanced" not in name}
    words = json.dumps(bare.tables["types"]["word"].to_list())
    save_file(blocks, tmp_path / "bare" / FILE, metadata={"types": words})
    part = Sides.of([sides.runs[0], bare])
    told = []
    found = separations(part, Nouns.of(part), lambda _done, of: told.append(of))
    assert {space_of(one) for one in found} == {"content", "residual", "embedding"}
    assert set(told) == {2 * 6 + 1 + 2 * 3 + 1}
    assert len(told) == 20


def test_nouns_are_those_of_all_sides_in_categories_of_four(sides):
    found = Nouns.of(sides)
    assert list(zip(found.words, found.categories, strict=True)) == nouns()
    assert found.n == len(nouns())


def test_a_noun_of_another_category_elsewhere_is_none(tmp_path):
    moved = [("metals 0", "kinship"), *nouns()[1:]]
    one = with_words(made_run("one"), tmp_path / "one")
    other = with_words(made_run("other"), tmp_path / "other", words=moved)
    assert "metals 0" not in Nouns.of(Sides.of([one, other])).words


@pytest.mark.parametrize(
    "words", [nouns()[:12], [(word, name) for word, name in nouns() if word[-1] in "012" or name == "metals"]]
)
def test_fewer_than_three_categories_are_not_compared(words, tmp_path):
    one = with_words(made_run("one"), tmp_path / "one")
    other = with_words(made_run("other"), tmp_path / "other", words=words)
    assert Nouns.of(Sides.of([one, other])) is None


def test_without_vectors_there_are_no_nouns(tmp_path):
    one = with_words(made_run("one"), tmp_path / "one")
    assert Nouns.of(Sides.of([one, made_run("other")])) is None
    (tmp_path / "one" / FILE).unlink()
    assert Nouns.of(Sides.of([one, one])) is None


def test_places_that_all_looked_at_are_of_one_document_and_character(sides, tmp_path):
    one, other = sides.runs
    assert shared_contexts(sides, Nouns.of(sides)) == 1  # the first's own words are not asked
    contexts = other.tables["contexts"]
    moved = contexts.assign(start=contexts["start"].where(contexts.index % 4 != 0, 9999))
    part = Sides.of([one, changed(other, contexts=moved)])
    n = len(nouns()) * 12
    kept = n - len(contexts[contexts.index % 4 == 0])
    assert shared_contexts(part, Nouns.of(part)) == pytest.approx(kept / (2 * n - kept))


def test_a_note_says_how_many_places_are_the_same(sides, monkeypatch):
    monkeypatch.setattr("geomprobe.comparison.words.AUC_DRAWS", 3)
    one, other = sides.runs
    contexts = other.tables["contexts"]
    part = Sides.of([one, changed(other, contexts=contexts.assign(start=contexts["start"] + 1))])
    notes = {made.note for made in separations(part, Nouns.of(part), lambda _done, _of: None)}
    assert notes == {"0% of the places in the text are the same"}


def test_vectors_turned_and_scaled_separate_as_well(tmp_path, fast):
    """A comparison of the same vectors: differences are 0 in every draw."""
    one = with_words(made_run("one"), tmp_path / "one", seed=4)
    other = with_words(made_run("other"), tmp_path / "other", words=nouns()[::-1], seed=4)
    comparison = compare_runs([one, other])
    rows = comparison.differences
    rows = rows[rows["quantity"] == "cluster_auc"]
    assert len(rows) == 13  # keys in two gauges and the residual stream at four places, the embedding at one
    assert (rows[["difference", "low", "high"]].abs().to_numpy() < 1e-12).all()


def test_nearer_nouns_are_found(sides, measured):
    table = differences(list(measured[0].values()), sides)
    assert (table["difference"] < 0).all()  # the second's categories pull less
    keys = table[(table["token_class"] == "content") & (table["where"] == WHOLE)].iloc[0]
    assert keys["high"] < 0
