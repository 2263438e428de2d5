"""Λ of classes over the types and documents that all sides have, drawn both ways, against loops over rows."""

import statistics

import numpy as np
import pytest

from geomprobe.comparison.kinds import CLASSES, class_sinks
from geomprobe.comparison.measured import differences
from geomprobe.comparison.sides import WHOLE, Sides
from geomprobe.stats.resampling import Draws
from tests.comparison import oracle
from tests.comparison.made import DOCUMENTS, TYPES, changed, made_run

N_DRAWS = 30
MEMBERS = {"function": oracle.CLOSED, "punctuation": ("punctuation",)}


@pytest.fixture(scope="module")
def sides():
    """Other depths, other orders of documents, types that only one has, a document that only one has."""
    more = {**TYPES, "content": TYPES["content"] + 3, "number": 2}
    one = made_run("one", layers=6, seed=1, types=more)
    return Sides.of([one, made_run("other", seed=2, documents=(*DOCUMENTS[:0:-1], "another"))])


def by_hand(sides, place, members):
    """(estimates, function of a draw's index → values by side, number of types, spread), by loops."""
    names = sides.documents
    layers = [sides.layers(index, place) for index in range(sides.n)]
    cells = [oracle.tokens_of_types(run, own, names) for run, own in zip(sides.runs, layers, strict=True)]
    kinds = [kind for kind in cells[0] if all(kind in one for one in cells)]
    inside = [kind for kind in kinds if kind[1] in members]
    content = [kind for kind in kinds if kind[1] == "content"]
    times = Draws.of(len(names), N_DRAWS)
    group = list(CLASSES).index("function" if len(members) > 1 else members[0]) + 1
    often = times.types(len(inside), group), times.types(len(content), 0)

    def of(one, drawn, first=None, second=None):
        return oracle.mean_of_class(one, inside, drawn, first) - oracle.mean_of_class(one, content, drawn, second)

    def draw(index):
        drawn = oracle.drawn(names, times.documents[index])
        return [of(one, drawn, often[0][index], often[1][index]) for one in cells]

    estimates = [of(one, oracle.once(names)) for one in cells]
    spread = statistics.stdev(oracle.mean_of_type(cells[0][kind], oracle.once(names)) for kind in content)
    return estimates, draw, len(inside), spread


@pytest.mark.parametrize("place", [WHOLE, "early", "late"])
@pytest.mark.parametrize("name", MEMBERS)
def test_a_class_against_content_words_by_hand(name, place, sides):
    assert len(sides.documents) == 11
    (one,) = (found for found in class_sinks(sides, place, draws=N_DRAWS) if found.token_class == name)
    estimates, draw, n_types, spread = by_hand(sides, place, MEMBERS[name])
    assert (one.n_types, one.n_documents, one.effect) == (n_types, 11, "types")
    assert one.estimates == pytest.approx(estimates, abs=1e-12)
    for index in (0, 1, 7, 29):
        assert one.draws[:, index] == pytest.approx(draw(index), abs=1e-12), index
    row = differences([one], sides).iloc[0]
    assert row["effect"] == pytest.approx((estimates[1] - estimates[0]) / spread, rel=1e-10)
    assert row["effect_of"] == "types"


def test_only_what_all_have_is_compared(sides):
    """Numbers are of one side alone, and so are some content words; pieces of words are asked nowhere."""
    found = {one.token_class for one in class_sinks(sides, WHOLE, draws=5)}
    assert found == {"function", "punctuation"}


@pytest.mark.parametrize("kept", [3, 4, 5, 6])
def test_types_with_fewer_than_five_tokens_a_layer_are_left_out(kept):
    one, other = made_run("one", layers=1), made_run("other", layers=1, seed=1)
    table = other.tables["type_stats"]
    rare = table["type"] == "article 1"
    first = table.index[rare][0]
    table = table.drop(index=table.index[rare][1:])
    table.loc[first, "n_sink"] = kept
    both = Sides.of([one, changed(other, type_stats=table)])
    found = {made.token_class: made.n_types for made in class_sinks(both, WHOLE, draws=5)}
    assert found["function"] == TYPES["preposition"] + TYPES["article"] - (kept < 5)


def test_a_type_is_the_same_in_one_class_alone():
    """As a string in its class: what one tokenizer's words hold is no type of the other's pieces."""
    one = made_run("one")
    table = one.tables["type_stats"]
    other = changed(made_run("other"), type_stats=table.assign(token_class="subword"))
    assert class_sinks(Sides.of([one, other]), WHOLE, draws=5) == []


def test_words_of_other_tokens_say_so():
    one, other = made_run("one"), changed(made_run("other"), corpus={"tokens_sha256": "3" * 64})
    assert {made.note for made in class_sinks(Sides.of([one, other]), WHOLE, draws=5)} == {
        "words that are one token on every side"
    }
    assert {made.note for made in class_sinks(Sides.of([one, one]), WHOLE, draws=5)} == {""}


def test_a_run_without_types_has_no_classes():
    one = made_run("one")
    other = changed(one, type_stats=one.tables["type_stats"].iloc[:0])
    assert class_sinks(Sides.of([one, other]), WHOLE) == []


@pytest.mark.parametrize(("content", "found"), [(1, 0), (4, 0), (5, 1)])
def test_fewer_than_five_content_types_are_nothing_to_be_held_against(content, found):
    few = {"preposition": 8, "content": content}
    both = Sides.of([made_run("one", types=few), made_run("other", types=few, seed=1)])
    assert len(class_sinks(both, WHOLE, draws=5)) == found


def test_a_class_of_fewer_than_five_types_has_no_interval():
    few = {"punctuation": 4, "content": 8}
    both = Sides.of([made_run("one", types=few), made_run("other", types=few, seed=1)])
    row = differences(class_sinks(both, WHOLE, draws=50), both).iloc[0]
    assert row["difference"] != 0
    assert np.isnan([row["low"], row["high"]]).all()
