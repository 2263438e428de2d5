"""What else differs, and what a difference can therefore mean."""

from dataclasses import replace

import pytest

from geomprobe.comparison.differing import ASPECTS, caveat, differing, same_weights, twins
from geomprobe.comparison.sides import Sides
from tests.comparison.made import changed, made_run, trained

NORM = {"axis": "head", "order": "before_rope"}
ONE = {"sha256": "a" * 64}


def normed(run):
    """With a QK norm in every layer."""
    anatomy = [{**entry, "q_norm": NORM, "k_norm": NORM} for entry in run.manifest["model"]["anatomy"]]
    return replace(run, manifest={**run.manifest, "model": {**run.manifest["model"], "anatomy": anatomy}})


def apart(*runs):
    """The aspects that differ."""
    table = differing(Sides.of(runs))
    return set(table[~table["same"]]["aspect"])


UNKNOWN = {"quantised", "arm", "training step", "training data"}  # of a folder without a training


def test_there_is_a_row_an_aspect_and_a_column_a_run():
    table = differing(Sides.of([made_run("one"), made_run("other")]))
    assert table["aspect"].tolist() == list(ASPECTS)
    assert table.columns.tolist() == ["aspect", "one", "other", "same"]


def test_what_is_unknown_counts_as_different():
    assert apart(made_run("one"), made_run("other")) == UNKNOWN


CHANGES = {
    "family": {"family": "gpt2"},
    "parameters": {"parameters": 2_000_000},
    "layers": {"layers": 4},
    "query heads": {"heads": 3},
    "dtype": {"dtype": "bfloat16"},
    "device": {"device": "cuda"},
}


@pytest.mark.parametrize("aspect", CHANGES)
def test_an_aspect_that_differs_is_found(aspect):
    assert apart(made_run("one"), made_run("other", **CHANGES[aspect])) == {aspect, *UNKNOWN}


CORPUS = {
    "tokens read": {"tokens_sha256": "3" * 64},
    "BOS": {"bos": True},
    "window": {"window": 32},
    "windows": {"n_windows": 5},
    "text": {"sha256": "4" * 64},
}


@pytest.mark.parametrize("aspect", CORPUS)
def test_another_reading_is_found(aspect):
    assert apart(made_run("one"), changed(made_run("other"), corpus=CORPUS[aspect])) == {aspect, *UNKNOWN}


def test_a_norm_is_told_in_words():
    table = differing(Sides.of([made_run("one"), normed(made_run("other"))])).set_index("aspect")
    assert table.loc["QK norm", ["one", "other"]].tolist() == ["none", "over each head, before rope"]
    assert not table.loc["QK norm", "same"]


@pytest.mark.parametrize(
    ("model", "said"),
    [({"id": "org/x-GGUF"}, "GGUF"), ({"source": "package"}, "no (bfloat16)"), ({"source": "object"}, "unknown")],
)
def test_whether_weights_were_rounded(model, said):
    table = differing(Sides.of([made_run("one", **model), made_run("other")])).set_index("aspect")
    assert table.loc["quantised", "one"] == said


# ------------------------------------------------------------------ what a difference can mean
def test_twins_differ_in_the_arm():
    pair = made_run("one", **trained(9, "A0")), normed(made_run("other", **trained(9, "A1")))
    assert twins(Sides.of(pair))
    said = caveat(Sides.of(pair))
    assert said.startswith("Twins: the arms A0 and A1 had the same initial weights and the same batches")
    assert "in this one seed" in said
    assert "Besides" not in said  # nothing else is known to differ


def test_twins_that_differ_in_something_else_say_so():
    said = caveat(Sides.of([made_run("one", **trained(9)), made_run("other", **trained(9, "A1"), dtype="bfloat16")]))
    assert said.startswith("Twins")
    assert said.endswith("Besides, they differ in dtype.")


@pytest.mark.parametrize("other", [trained(9, "A1", pair="q" * 64), trained(10, "A1"), {}])
def test_other_trainings_are_no_twins(other):
    sides = Sides.of([made_run("one", **trained(9)), made_run("other", **other)])
    assert not twins(sides)
    assert "it is not the effect of any one of these, QK norm included" in caveat(sides)


def test_one_training_at_one_step():
    said = caveat(Sides.of([made_run("one", **trained(9)), made_run("other", **trained(9))]))
    assert said.startswith("These are the same training, at the same step.")


def test_checkpoints_of_one_training_differ_in_how_long_it_was_trained():
    runs = [made_run("m", **trained(step)) for step in (1500, 10)]
    said = caveat(Sides.of(runs))
    assert said.startswith("These are checkpoints of one training, from step 10 to step 1,500:")
    assert "not known" not in said


def test_checkpoints_differ_in_what_is_named():
    said = caveat(Sides.of([made_run("one"), normed(made_run("other", layers=4, family="qwen3"))]))
    assert "These checkpoints differ in family, layers, QK norm" in said
    assert "what each was trained on is not known here" in said


@pytest.mark.parametrize("source", ["folder", "package", "hub"])
def test_one_checkpoint_with_itself(source):
    run = made_run("one", source=source)
    assert same_weights(Sides.of([run, run]))
    assert caveat(Sides.of([run, run])) == "These are runs of one checkpoint on the same tokens."


def test_one_checkpoint_that_was_run_in_another_dtype():
    said = caveat(Sides.of([made_run("one", **ONE), made_run("one", dtype="bfloat16", **ONE)]))
    assert "differ in dtype" in said.replace("quantised and ", "")


def test_weights_of_which_nothing_is_known_are_not_the_same():
    none = {"sha256": None, "revision": None}
    assert not same_weights(Sides.of([made_run("one", **none), made_run("other", **none)]))
    assert same_weights(Sides.of([made_run("one", **ONE), made_run("other", **ONE)]))
