"""Runs side by side: names told apart, documents matched by name, layers by depth, and what cannot be compared."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from geomprobe.comparison.comparison import compare_runs
from geomprobe.comparison.quantities import QUANTITIES
from geomprobe.comparison.sides import WHOLE, Sides, document_names, labels_of, shared_characters, windows_read
from geomprobe.errors import InvalidParameter, RunError
from tests.comparison.made import changed, made_run, trained


def stacked(run):
    """A model of two stacks: the first layer an encoder's, the others a decoder's."""
    anatomy = [
        {**entry, "part": "encoder" if place == 0 else "decoder"}
        for place, entry in enumerate(run.manifest["model"]["anatomy"])
    ]
    return replace(run, manifest={**run.manifest, "model": {**run.manifest["model"], "anatomy": anatomy}})


# ------------------------------------------------------------------ names
def test_names_are_the_models():
    assert labels_of([made_run("one"), made_run("other")]) == ("one", "other")


def test_alike_names_are_told_apart_by_the_training_step():
    runs = [made_run("m", **trained(100)), made_run("other"), made_run("m", **trained(2000))]
    assert labels_of(runs) == ("m (step 100)", "other", "m (step 2,000)")


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("/somewhere/deep/pythia-70m", {}, "pythia-70m"),
        ("runs/nano-A0-s0/steps/00000724", trained(724), "nano-A0-s0"),
        ("runs/nano-A0-s0/last", trained(724), "last"),
        ("/", {}, "/"),
    ],
)
def test_a_checkpoint_in_a_folder_is_called_as_the_folder(name, more, said):
    """A path says more of the machine than of the model; of many steps the training is named."""
    assert labels_of([made_run(name, source="folder", **more), made_run("other")]) == (said, "other")
    assert labels_of([made_run("owner/name", source="hub"), made_run("other")]) == ("owner/name", "other")


def test_or_by_their_folder():
    runs = [replace(made_run("m"), path=Path("runs") / name) for name in ("first", "second")]
    assert labels_of(runs) == ("m (first)", "m (second)")


def test_at_last_by_a_number():
    runs = [replace(made_run("m"), path=Path(root) / "same") for root in ("a", "b", "c")]
    assert labels_of(runs) == ("m (same) #1", "m (same) #2", "m (same) #3")


@pytest.mark.parametrize("n", [2, 5])
def test_no_two_labels_are_the_same(n):
    run = made_run("m")
    assert len(set(labels_of([run] * n))) == n


# ------------------------------------------------------------------ documents
def test_common_documents_are_in_the_order_of_the_first():
    one = made_run("one", documents=("c", "a", "b", "d"))
    other = made_run("other", documents=("b", "x", "c", "a"))
    sides = Sides.of([one, other])
    assert sides.documents == ("c", "a", "b")
    assert sides.document_ids(0) == {"c": 0, "a": 1, "b": 2}
    assert sides.document_ids(1) == {"c": 2, "a": 3, "b": 0}


def test_documents_of_one_name_are_told_apart_by_their_place():
    run = made_run("one", documents=("a", "a", "b", "a"))
    assert document_names(run) == ["a", "a (2)", "b", "a (3)"]


def test_quantities_are_put_into_one_order():
    one = made_run("one", documents=("c", "a", "b", "d"))
    other = made_run("other", documents=("b", "x", "c", "a"))
    sides = Sides.of([one, other])
    owned = [(side, QUANTITIES[0].pooled(run, [0])) for side, run in enumerate(sides.runs)]
    aligned, common = sides.aligned(owned)
    assert common == ["c", "a", "b"]
    assert [one.data.documents.tolist() for one in aligned] == [[0, 1, 2], [2, 3, 0]]
    assert (aligned[0].data.sums["weighted"] == aligned[1].data.sums["weighted"]).all()  # of one seed


def test_the_same_tokens_are_told_by_their_hash():
    one, other = made_run("one"), made_run("other")
    assert Sides.of([one, other]).same_tokens
    assert not Sides.of([one, changed(other, corpus={"tokens_sha256": "3" * 64})]).same_tokens


def test_characters_that_all_read():
    """The first reads 0–10 and 20–30 of a, the second 5–25, and what the third reads is elsewhere."""

    def reading(*windows):
        keys = ("document", "char_start", "char_end")
        return [dict(zip(keys, window, strict=True)) for window in windows]

    one = changed(made_run("one", documents=("a", "b")), corpus={"windows": reading((0, 20, 30), (0, 0, 10))})
    other = changed(made_run("other", documents=("b", "a")), corpus={"windows": reading((1, 5, 25))})
    assert windows_read(one) == {"a": [(0, 10), (20, 30)]}
    assert shared_characters(Sides.of([one, other])) == pytest.approx(10 / 30)
    third = changed(made_run("third", documents=("a", "b")), corpus={"windows": reading((1, 0, 7))})
    assert shared_characters(Sides.of([one, other, third])) == 0
    assert shared_characters(Sides.of([one, one])) == 1
    none = changed(one, corpus={"windows": [{"document": 0}]})
    assert np.isnan(shared_characters(Sides.of([none, none])))


# ------------------------------------------------------------------ layers
def test_places_are_thirds_of_the_depth_whatever_the_depth_is():
    sides = Sides.of([made_run("deep", layers=6), made_run("flat", layers=3)])
    assert sides.places == (WHOLE, "early", "middle", "late")
    assert [sides.layers(0, place) for place in sides.places] == [[*range(6)], [0, 1], [2, 3], [4, 5]]
    assert [sides.layers(1, place) for place in sides.places] == [[0, 1, 2], [0], [1], [2]]


def test_too_few_layers_have_no_thirds():
    assert Sides.of([made_run("deep", layers=6), made_run("flat", layers=2)]).places == (WHOLE,)


def test_two_stacks_are_compared_part_by_part_with_their_like():
    one, other = stacked(made_run("one")), stacked(made_run("other", layers=5))
    sides = Sides.of([one, other])
    assert sides.places == (WHOLE, "encoder", "decoder")
    assert sides.layers(1, "decoder") == [1, 2, 3, 4]
    assert Sides.of([one, made_run("other")]).places == (WHOLE,)


# ------------------------------------------------------------------ what cannot be compared
def images(run):
    return changed(run, corpus={"kind": "images"})


def edits(run):
    return replace(run, tables={"interventions": pd.DataFrame({"edit": ["sham"]})})


REFUSED = {
    "one run": (lambda: [made_run("one")], r"two runs or more; got 1\."),
    "none": (list, r"two runs or more; got 0\."),
    "interventions": (lambda: [made_run("one"), edits(made_run("other"))], r"'made/other' holds interventions"),
    "no common document": (
        lambda: [made_run("one", documents=("a",)), made_run("other", documents=("b",))],
        r"share no document \(they read made up\); analyze the models on the same text",
    ),
    "text and images": (lambda: [made_run("one"), images(made_run("other"))], "read texts and some looked at images"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_compared_is_said_in_one_sentence(case):
    runs, words = REFUSED[case]
    with pytest.raises(RunError, match=words) as caught:
        compare_runs(runs())
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("over", ["steps", "", "Step"])
def test_an_unknown_axis(over):
    with pytest.raises(InvalidParameter, match="over must be one of 'step', 'params'; got"):
        compare_runs([made_run("one"), made_run("other")], over=over)


def test_equal_steps_are_no_axis():
    runs = [made_run(name, **trained(100)) for name in ("one", "other")]
    with pytest.raises(InvalidParameter, match="--over step needs runs that differ in it"):
        compare_runs(runs, over="step")


def test_equal_sizes_are_no_axis():
    with pytest.raises(InvalidParameter, match="--over params needs runs that differ in it"):
        compare_runs([made_run("one"), made_run("other")], over="params")


def test_a_run_without_training_has_no_step():
    with pytest.raises(RunError, match="other does not say its training step; --over step takes checkpoints of"):
        compare_runs([made_run("one", **trained(100)), made_run("other")], over="step")
