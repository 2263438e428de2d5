"""The tests of comparisons catch defects: each is planted, and a test that passes without it must fail."""

import math
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from geomprobe import pooling, tables
from geomprobe.comparison import depths, differing, kinds, measured, quantities, sides, words
from geomprobe.comparison.measured import Measured
from geomprobe.comparison.sides import Sides
from geomprobe.figures import side_differences
from geomprobe.pages import side_findings
from geomprobe.stats.pairs import Pairs
from geomprobe.stats.resampling import counts_of_draws
from tests.comparison import (
    test_calibration,
    test_comparison,
    test_depths,
    test_differing,
    test_kinds,
    test_measured,
    test_quantities,
    test_sides,
    test_words,
)
from tests.comparison.made import DOCUMENTS, made_run, nouns, with_words
from tests.pages import test_side_findings

N_DRAWS = 300


def everywhere(patch, owner, name, new):
    """Put something in the place of a function, wherever the package or these tests have imported it."""
    old = getattr(owner, name)
    for module in list(sys.modules.values()):
        known = str(getattr(module, "__name__", "")).startswith(("geomprobe", "tests."))
        if known and vars(module).get(name) is old:
            patch.setattr(module, name, new)
    return old


# ------------------------------------------------------------------ defects
def draws_unpaired(patch):
    """Another seed for the second side."""
    original = measured.of_documents

    def of_documents(sides, quantity, place, *, draws=N_DRAWS):
        found = original(sides, quantity, place, draws=draws)
        if found is None:
            return None
        aligned, common = sides.aligned([(1, quantity.pooled(sides.runs[1], sides.layers(1, place)))])
        other = counts_of_draws(len(common), draws, (9, 1))
        return replace(found, draws=np.stack([found.draws[0], aligned[0].weighed(other)]))

    everywhere(patch, measured, "of_documents", of_documents)


def documents_by_number(patch):
    def aligned(self, owned):
        n = min(len(self.documents), *(one.data.n for _, one in owned))
        return [one.only(range(n)) for _, one in owned], list(self.documents)[:n]

    patch.setattr(Sides, "aligned", aligned)


def documents_of_types_by_number(patch):
    patch.setattr(Sides, "document_ids", lambda self, _index: {name: at for at, name in enumerate(self.documents)})


def names_that_come_again(patch):
    everywhere(patch, sides, "document_names", lambda run: list(run.manifest["corpus"]["documents"]))


def not_expanded(patch):
    everywhere(patch, measured, "expanded", lambda _n, level=0.05: level)


def layers_by_index(patch):
    def layers(self, index, place):
        whole = place == sides.WHOLE
        return tables.layers(self.runs[index]) if whole else tables.thirds(self.runs[0])[self.places.index(place) - 1]

    patch.setattr(Sides, "layers", layers)


def depths_by_index(patch):
    def depth(run):
        every = tables.layers(run)
        return pd.Series((np.arange(len(every)) + 0.5) / 6, index=pd.Index(every, name="layer"))

    everywhere(patch, sides, "depth", depth)


def depths_from_0_to_1(patch):
    def depth(run):
        every = tables.layers(run)
        return pd.Series(np.linspace(0, 1, len(every)), index=pd.Index(every, name="layer"))

    everywhere(patch, sides, "depth", depth)


def types_not_intersected(patch):
    """Each side's own types, cut to the documents of all."""

    def aligned(cells):
        n = min(len(one.kinds) for one in cells)
        return [
            replace(
                one,
                kinds=cells[0].kinds.iloc[:n],
                n=one.n[:n],
                total={name: value[:n] for name, value in one.total.items()},
            )
            for one in cells
        ]

    everywhere(patch, kinds, "aligned", aligned)


def rare_types_kept(patch):
    patch.setattr(tables, "TYPE_TOKENS", 1)


def types_not_drawn(patch):
    original = kinds.weighted_means
    patch.setattr(kinds, "weighted_means", lambda values, weights: original(values, np.ones_like(weights)))


def documents_of_types_not_drawn(patch):
    original = kinds.means_of_types
    patch.setattr(kinds, "means_of_types", lambda n, total, drawn: original(n, total, np.ones_like(drawn)))


def effect_of_one_side(patch):
    """Over the spread of a side's documents, and not of their differences."""
    original = measured.of_documents

    def of_documents(sides, quantity, place, *, draws=N_DRAWS):
        found = original(sides, quantity, place, draws=draws)
        aligned, common = sides.aligned([(0, quantity.pooled(sides.runs[0], sides.layers(0, place)))])
        own = aligned[0].weighed(np.eye(len(common))).std(ddof=1)
        return replace(found, spread=np.full(sides.n, own))

    everywhere(patch, measured, "of_documents", of_documents)


def effect_with_ddof_0(patch):
    original = measured.of_documents

    def of_documents(sides, quantity, place, *, draws=N_DRAWS):
        found = original(sides, quantity, place, draws=draws)
        n = found.n_documents
        return replace(found, spread=found.spread * math.sqrt((n - 1) / n))

    everywhere(patch, measured, "of_documents", of_documents)


def all_nouns(patch):
    """Those of the first run, whatever the others have."""
    original = words.Nouns.of.__func__
    patch.setattr(
        words.Nouns, "of", classmethod(lambda cls, sides: original(cls, Sides((sides.runs[0],) * 2, ("", ""))))
    )


def nouns_by_row(patch):
    """The n-th vector for the n-th noun."""
    patch.setattr(words, "_saved", lambda _run: [word for word, _ in nouns()])


def auc_of_all_heads_at_once(patch):
    original = words._matrices

    def matrices(run, given, names):
        for key, heads in original(run, given, names):
            yield key, heads[:1]

    patch.setattr(words, "_matrices", matrices)


def pairs_with_themselves(patch):
    def of(cls, labels):
        first, second = np.triu_indices(len(labels))
        return cls(first, second, labels[first] == labels[second])

    patch.setattr(Pairs, "of", classmethod(of))


def shares_off_by_100(patch):
    everywhere(patch, side_findings, "amount", lambda value, _unit: f"{value:.1f}%")


def points_off_by_100(patch):
    everywhere(patch, side_findings, "gap", lambda value, _unit: side_findings.change(value))


def position_0_in(patch):
    original = pooling.split_documents

    def split_documents(run, gauge, layers=None):
        table = run.tables["split"]
        turned = table.assign(first=table["first"].map({"in": "out", "out": "in"}))
        return original(replace(run, tables={**run.tables, "split": turned}), gauge, layers)

    patch.setattr(pooling, "split_documents", split_documents)


def one_gauge_for_both(patch):
    original = pooling.split_documents
    patch.setattr(pooling, "split_documents", lambda run, _gauge, layers=None: original(run, "raw", layers))


def documents_weigh_alike(patch):
    original = pooling.mean_over_rows

    def mean_over_rows(run, column, layers):
        table = run.tables["document_stats"]
        even = table.assign(n_rows=table["n_rows"].where(table["n_rows"] == 0, 1))
        return original(replace(run, tables={**run.tables, "document_stats": even}), column, layers)

    patch.setattr(pooling, "mean_over_rows", mean_over_rows)


def bos_is_text(patch):
    original = quantities.windows_read

    def windows_read(run):
        window, bos = run.manifest["corpus"]["window"], bool(run.manifest["corpus"]["bos"])
        shrunk = (window - bos) / window
        return {name: [(a, a + (b - a) * shrunk) for a, b in read] for name, read in original(run).items()}

    patch.setattr(quantities, "windows_read", windows_read)


def loss_of_other_tokens(patch):
    patch.setattr(Sides, "same_tokens", True)


def variance_within_documents_alone(patch):
    def spread(sums):
        n = np.where(sums["n_keys"] > 0, sums["n_keys"], np.nan)
        return np.median(np.sqrt(np.maximum((sums["two"] - sums["one"] ** 2 / n) / n * 0.9, 0)), axis=0)

    patch.setattr(pooling, "_median_spread", spread)


def joint_bound_is_that_of_one(patch):
    everywhere(patch, measured, "joint_bound", lambda _drawn, _units, level=0.05: 1.959964)


def joint_bound_without_tails(patch):
    def standardised(one, side):
        drawn = one.draws[side] - one.draws[0]
        error = drawn.std() * math.sqrt(one.n / (one.n - 1))
        return abs(float(one.estimates[side] - one.estimates[0])) / error

    patch.setattr(measured, "_standardised", standardised)


def held_against_the_one_before(patch):
    original = measured._pair

    def pair(one, side, sides):
        shifted = replace(one, estimates=np.roll(one.estimates, 1)) if side > 1 else one
        return original(shifted, side, sides)

    patch.setattr(measured, "_pair", pair)


def ranks_from_the_smallest(patch):
    original = measured.values

    def values(given, sides):
        made = original(given, sides)
        return made.assign(rank=sides.n + 1 - made["rank"])

    everywhere(patch, measured, "values", values)


def heads_by_index(patch):
    original = depths.by_rank
    everywhere(patch, depths, "by_rank", lambda given: original(given).assign(rank=lambda table: table["head"]))


def twins_whatever_the_data(patch):
    everywhere(
        patch, differing, "twins", lambda given: all(run.manifest["model"].get("training") for run in given.runs)
    )


def units_are_the_more(patch):
    patch.setattr(Measured, "n", property(lambda self: max(self.n_documents, self.n_types)))


# ------------------------------------------------------------------ checks
def entropy():
    return next(one for one in quantities.QUANTITIES if one.name == "entropy")


def quantity_of(name, gauge=""):
    return next(one for one in quantities.QUANTITIES if (one.name, one.gauge) == (name, gauge))


def of_sides(name="entropy", gauge="", place=sides.WHOLE):
    """A quantity of two runs by loops; the second run has its documents in another order."""

    def check():
        other = (*DOCUMENTS[5:], "of the other alone", *DOCUMENTS[:4])
        both = [made_run("one", layers=6, seed=1), made_run("other", heads=3, seed=2, documents=other)]
        test_measured.test_a_quantity_of_all_sides_is_of_their_common_documents(
            quantity_of(name, gauge), place, Sides.of(both)
        )

    return check


def of_rows(name, gauge=""):
    return lambda: test_quantities.test_a_quantity_is_what_loops_over_rows_say(
        quantity_of(name, gauge), [0, 1, 2, 3], made_run(layers=4, seed=3)
    )


def of_class(place=sides.WHOLE):
    def check():
        more = {**test_kinds.TYPES, "content": test_kinds.TYPES["content"] + 3, "number": 2}
        one = made_run("one", layers=6, seed=1, types=more)
        other = made_run("other", seed=2, documents=(*DOCUMENTS[:0:-1], "another"))
        test_kinds.test_a_class_against_content_words_by_hand("function", place, Sides.of([one, other]))

    return check


@pytest.fixture
def of_words(tmp_path):
    """AUC by hand, of keys."""

    def check():
        one = with_words(made_run("one", layers=1), tmp_path / "one", words=[*nouns(), *test_words.OWN], seed=1)
        other = with_words(made_run("other", layers=1), tmp_path / "other", words=nouns()[::-1], seed=2)
        both = Sides.of([one, other])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(words, "AUC_DRAWS", test_words.N_DRAWS)
            try:
                found = words.separations(both, words.Nouns.of(both), lambda _done, _of: None)
            except KeyError as missing:  # a word that a run has not
                raise AssertionError(missing) from missing
        measured = {(test_words.space_of(one), one.place): one for one in found}, []
        test_words.test_auc_of_common_nouns_by_hand("content", "content.k", sides.WHOLE, ([0], [0]), both, measured)

    return check


def depths_by_hand():
    both = [made_run("deep", layers=6, seed=1), made_run("flat", layers=3, heads=3, seed=2)]
    test_depths.test_six_layers_meet_three_between_two_of_them(Sides.of(both))


def ranked_heads():
    both = [made_run("deep", layers=6, seed=1), made_run("flat", layers=3, heads=3, seed=2)]
    test_depths.test_heads_are_ranked_within_their_layer_from_the_largest(Sides.of(both))


def runs_alike():
    runs = [made_run("a", layers=2), made_run("b", layers=2), made_run("c", layers=2, seed=3)]
    found = [measured.of_documents(Sides.of(runs), entropy(), sides.WHOLE, draws=20)]
    table = measured.differences(found, Sides.of(runs))
    assert table["difference"].iloc[0] == 0
    assert table["difference"].iloc[1] == pytest.approx(found[0].estimates[2] - found[0].estimates[0], abs=1e-15)


def other_tokens():
    test_comparison.test_other_tokens_have_a_loss_a_character_alone(None)


DEFECTS = {
    "draws are not paired": (draws_unpaired, of_sides()),
    "documents are matched by number": (documents_by_number, of_sides()),
    "documents of types are matched by number": (documents_of_types_by_number, of_class()),
    "documents of one name are one": (
        names_that_come_again,
        test_sides.test_documents_of_one_name_are_told_apart_by_their_place,
    ),
    "intervals are not expanded": (not_expanded, of_sides()),
    "intervals of eight documents are not expanded": (
        not_expanded,
        lambda: test_calibration.test_intervals_of_two_seeds_hold_0_in_95_of_100(8, 1),
    ),
    "layers are matched by index": (layers_by_index, of_sides(place="early")),
    "depths are matched by index": (depths_by_index, depths_by_hand),
    "the first layer is at 0 and the last at 1": (depths_from_0_to_1, depths_by_hand),
    "types are not intersected": (types_not_intersected, of_class()),
    "rare types are in": (
        rare_types_kept,
        lambda: test_kinds.test_types_with_fewer_than_five_tokens_a_layer_are_left_out(4),
    ),
    "types are not drawn": (types_not_drawn, of_class()),
    "documents are not drawn of types": (documents_of_types_not_drawn, of_class()),
    "effect over the spread of one side": (effect_of_one_side, of_sides()),
    "effect over a spread with ddof 0": (effect_with_ddof_0, of_sides()),
    "position 0 is in": (position_0_in, of_rows("norm_share", "raw")),
    "both gauges are one": (one_gauge_for_both, of_rows("tv", "balanced")),
    "documents weigh alike": (documents_weigh_alike, of_rows("first_mass")),
    "spread is too small": (variance_within_documents_alone, of_rows("k_log_sd", "raw")),
    "BOS is text": (bos_is_text, lambda: test_quantities.test_characters_are_of_the_tokens_of_the_text(bos=True)),
    "loss a token of other tokens": (loss_of_other_tokens, other_tokens),
    "each difference is held against its own bound": (
        joint_bound_is_that_of_one,
        lambda: test_measured.test_each_of_many_is_held_against_the_bound_of_all(),
    ),
    "the joint bound forgets the tails of t": (
        joint_bound_without_tails,
        lambda: test_measured.test_beyond_is_past_the_joint_bound_with_the_tails_of_t(8),
    ),
    "the third run is held against the second": (held_against_the_one_before, runs_alike),
    "ranks are from the smallest": (
        ranks_from_the_smallest,
        test_measured.test_values_are_each_run_by_itself_with_ranks_from_the_largest,
    ),
    "heads are matched by index": (heads_by_index, ranked_heads),
    "any two trainings are twins": (
        twins_whatever_the_data,
        lambda: test_differing.test_other_trainings_are_no_twins(test_differing.trained(9, "A1", pair="q" * 64)),
    ),
    "units are the more of documents and types": (
        units_are_the_more,
        test_measured.test_units_are_the_fewer_of_documents_and_types,
    ),
    "percentages are off by 100": (shares_off_by_100, test_side_findings.test_shares_are_told_as_percentages),
    "points are off by 100": (points_off_by_100, test_side_findings.test_shares_are_told_as_percentages),
}
OF_WORDS = {
    "AUC of all nouns of the first run": all_nouns,
    "vectors are taken by row": nouns_by_row,
    "AUC of the first head": auc_of_all_heads_at_once,
    "a noun is paired with itself": pairs_with_themselves,
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught(defect, fast, monkeypatch):
    plant, check = DEFECTS[defect]
    check()  # it passes as the package is
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("defect", OF_WORDS)
def test_a_planted_defect_of_words_is_caught(defect, of_words, monkeypatch):
    of_words()
    OF_WORDS[defect](monkeypatch)
    with pytest.raises(AssertionError):
        of_words()


def test_the_defects_are_planted_where_comparisons_look():
    assert side_differences.records is measured.records
    assert quantities.pooling is pooling
    assert depths.depth is sides.depth
