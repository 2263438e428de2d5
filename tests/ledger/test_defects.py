"""The tests of the ledger catch defects: each is planted, and a test that passes without it must fail."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from geomprobe import pooling
from geomprobe.ledger import endpoint, evidence, family, function_claims, length_claims, study
from geomprobe.ledger.endpoint import Quantity
from geomprobe.ledger.evidence import Cells, Checkpoint
from geomprobe.ledger.ledger import make_ledger
from geomprobe.ledger.thresholds import thresholds
from geomprobe.pooling import ByDocument
from geomprobe.stats import resampling
from tests.ledger import test_endpoint, test_evidence, test_family, test_rows, test_verdicts
from tests.ledger.made import checkpoint, edits, made_run
from tests.stats import test_resampling

pytestmark = pytest.mark.usefixtures("fast")
SHARES = {"share": {"raw": 0.35, "balanced": 0.6}, "noise": 0.2}


def everywhere(patch, owner, name, new):
    """Put something in the place of a function, wherever the package or these tests have imported it."""
    old = getattr(owner, name)
    for module in list(sys.modules.values()):
        known = str(getattr(module, "__name__", "")).startswith(("geomprobe", "tests."))
        if known and vars(module).get(name) is old:
            patch.setattr(module, name, new)
    return old


def spoken(patch, change):
    """Another reading of what a quantity says."""
    original = Quantity.speaks
    patch.setattr(Quantity, "speaks", lambda self, level: change(original, self, level))


# ------------------------------------------------------------------ defects
def pooled_by_tokens(patch):
    """Every type as often as it has tokens."""
    original = evidence.contrast

    def contrast(cells, names, *, test=True):
        times = cells.n.sum(axis=1).astype(int)
        many = {name: np.repeat(x, times, axis=0) for name, x in cells.total.items()}
        kinds = cells.kinds.loc[np.repeat(np.arange(len(times)), times)].reset_index(drop=True)
        return original(Cells(kinds, np.repeat(cells.n, times, axis=0), many, cells.documents), names, test=test)

    patch.setattr(evidence, "contrast", contrast)


def documents_as_they_are(patch):
    original = evidence.means_of_types
    patch.setattr(evidence, "means_of_types", lambda n, total, drawn: original(n, total, np.ones_like(drawn)))


def documents_once(patch):
    patch.setattr(ByDocument, "drawn", lambda self, n: {k: x[..., :1].repeat(n, -1) for k, x in self.sums.items()})


def types_as_they_are(patch):
    original = evidence.weighted_means
    patch.setattr(evidence, "weighted_means", lambda values, weights: original(values, np.ones_like(weights)))


def draws_without_replacement(patch):
    patch.setattr(resampling, "counts_of_draws", lambda n, draws, _seed: np.ones((draws, n)))


def p_may_be_nothing(patch):
    original = resampling.permutation_p

    def permutation_p(values, inside, permutations, seed=0):
        p = original(values, inside, permutations, seed)
        return (p * (1 + permutations) - 1) / permutations

    everywhere(patch, resampling, "permutation_p", permutation_p)


def p_of_one_side(patch):
    original = resampling.permutation_p
    everywhere(patch, resampling, "permutation_p", lambda *given: original(*given) / 2)


def permutations_left_out(patch):
    everywhere(patch, resampling, "permutation_p", lambda *_given: math.nan)


def bonferroni(patch):
    everywhere(patch, resampling, "holm_levels", lambda p, level: np.full(len(p), level / max(len(p), 1)))


def not_adjusted(patch):
    everywhere(patch, resampling, "holm_levels", lambda p, level: np.full(len(p), level))


def one_sided(patch):
    original = resampling.interval
    everywhere(patch, resampling, "interval", lambda draws, level: original(draws, 2 * level))


def equivalence_by_95(patch):
    def change(original, quantity, level):
        return original(quantity, level / 2 if quantity.rule.within == quantity.rule.within else level)

    spoken(patch, change)


def supported_wins(patch):
    def change(original, quantity, level):
        asked = replace(quantity, rule=replace(quantity.rule, below=math.inf if quantity.rule.turned else -math.inf))
        said = original(asked, level)
        return said if said == "supported" else original(quantity, level)

    spoken(patch, change)


def least_forgotten(patch):
    spoken(patch, lambda original, q, level: original(replace(q, rule=replace(q.rule, least=-math.inf)), level))


def raw_gauge_alone(patch):
    everywhere(patch, study, "gauges_of", lambda *_given, **_more: ["raw"])


def gauges_of_a_gainless_norm(patch):
    patch.setattr(Checkpoint, "gainless", False)


def position_0_in(patch):
    def split_documents(run, gauge, _layers):
        table = run.tables["split"]
        return table[(table["gauge"] == gauge) & (table["first"] == "in") & (table["document"] >= 0)]

    patch.setattr(pooling, "split_documents", split_documents)


def ratio_to_angle_alone(patch):
    original = length_claims.evidence_of_edits

    def evidence_of_edits(one, gauge):
        found = original(one, gauge)
        return replace(found, estimate=found.estimate / (1 - found.estimate), draws=found.draws / (1 - found.draws))

    everywhere(patch, length_claims, "evidence_of_edits", evidence_of_edits)


def rows_over_all_documents(patch):
    def edit_documents(run, setting, gauge):
        table = run.tables["interventions"]
        asked = setting if gauge == "raw" else f"{setting}@{gauge}"
        rows = table[(table["layers"] == "all") & (table["setting"] == asked)]
        return rows[["document", "delta_ce", "n_tokens"]] if len(rows) else None

    everywhere(patch, study, "edit_documents", edit_documents)


def edits_of_the_raw_gauge(patch):
    original = study.edit_documents
    everywhere(patch, study, "edit_documents", lambda run, setting, _gauge: original(run, setting, "raw"))


def fit_made_once(patch):
    original = evidence.lift_draws

    def lift_draws(log_length, zipf, places, content, weight):
        return original(log_length, zipf, places, content, np.ones_like(weight))

    patch.setattr(evidence, "lift_draws", lift_draws)


def every_class_decides(patch):
    patch.setitem(thresholds()["statistics"], "least_types", 1)


def any_text_decides(patch):
    everywhere(patch, study, "few_documents", lambda _n: "")


def every_third_is_needed(patch):
    def somewhere(verdicts):
        return verdicts[0] if len(set(verdicts)) == 1 else "inconclusive"

    everywhere(patch, study, "somewhere", somewhere)


def one_third_refutes(patch):
    original = study.somewhere
    everywhere(patch, study, "somewhere", lambda verdicts: "refuted" if "refuted" in verdicts else original(verdicts))


def shorter_keys_are_asked_too(patch):
    original = function_claims.evidence.contrast

    def contrast(cells, names, *, test=True):
        found = original(cells, names, test=test)
        if found is not None and "k_log_mean" in found.estimate:
            return replace(found, estimate={"k_log_mean": abs(found.estimate["k_log_mean"])})
        return found

    patch.setattr(evidence, "contrast", contrast)


def checkpoints_are_counted(patch):
    """Every checkpoint as a family of its own."""
    original = family.pooled

    def pooled(ledgers):
        apart = [replace(one, manifest={**one.manifest, "family": str(at)}) for at, one in enumerate(ledgers)]
        return original(apart)

    everywhere(patch, family, "pooled", pooled)


def three_sizes_decide(patch):
    patch.setitem(thresholds()["C7a"], "least_sizes", 3)


# ------------------------------------------------------------------ checks
def run_of_shares():
    return made_run(log_sd={"raw": 0.2, "balanced": 0.1}, tv={"raw": 0.3, "balanced": 0.4}, **SHARES)


def case(name):
    costs, planted = test_rows.CASES[name]
    one = checkpoint(costs, **planted)
    return one, make_ledger(one)


def verdict(claim, expected, costs=None, **planted):
    return lambda: _same(test_verdicts.verdict(claim, costs, **planted), expected)


def _same(found, expected):
    assert found == expected


def levels(name):
    return lambda: test_rows.check_levels(*case(name))


def rows(name):
    return lambda: test_rows.check_follows(*case(name))


APART = {"raw": 0.1, "balanced": 0.0}
DEFECTS = {
    "types weigh by their tokens": (pooled_by_tokens, test_evidence.test_a_contrast_is_of_types_that_weigh_alike),
    "documents are not drawn": (
        documents_as_they_are,
        test_evidence.test_each_draw_of_a_contrast_draws_documents_and_both_groups_of_types,
    ),
    "draws of documents are all of one": (
        documents_once,
        lambda: test_evidence.test_norm_share_is_of_sums_over_rows_without_position_0(run_of_shares(), "raw"),
    ),
    "types are not drawn": (
        types_as_they_are,
        test_evidence.test_each_draw_of_a_contrast_draws_documents_and_both_groups_of_types,
    ),
    "nothing is drawn": (
        draws_without_replacement,
        test_resampling.test_draws_are_with_replacement_and_the_same_every_time,
    ),
    "p of a permutation may be 0": (
        p_may_be_nothing,
        test_resampling.test_the_smallest_p_is_that_of_the_observed_order_alone,
    ),
    "p of a permutation is one-sided": (
        p_of_one_side,
        lambda: test_resampling.test_a_permutation_p_is_that_of_all_reassignments(3, 7, 1, 0.0),
    ),
    "types are not permuted": (
        permutations_left_out,
        test_evidence.test_a_contrast_has_its_permutation_test_unless_it_is_not_asked_for,
    ),
    "Bonferroni in Holm's place": (bonferroni, levels("angle in everything")),
    "no adjustment": (not_adjusted, levels("more noise")),
    "intervals are one-sided": (one_sided, test_endpoint.test_the_interval_has_two_ends),
    "equivalence by the 95 % interval": (
        equivalence_by_95,
        test_resampling.test_equivalence_is_by_the_90_per_cent_interval,
    ),
    "supported wins where both hold": (supported_wins, test_endpoint.test_where_both_rules_hold_refuted_wins),
    "the estimate need not reach anything": (least_forgotten, rows("hardly cosines")),
    "the raw gauge decides alone: C1": (
        raw_gauge_alone,
        verdict("C1", "not_identified", edits(0.09, 0.01), share=0.8, rho={"raw": 0.3, "balanced": -0.3}),
    ),
    "the raw gauge decides alone: C2a": (raw_gauge_alone, verdict("C2a", "not_identified", lift=APART)),
    "a gainless norm is asked in both gauges": (
        gauges_of_a_gainless_norm,
        verdict("C2a", "supported", lift=APART, norm=True, gain_cv=0.0),
    ),
    "position 0 is in": (
        position_0_in,
        lambda: test_evidence.test_norm_share_is_of_sums_over_rows_without_position_0(run_of_shares(), "raw"),
    ),
    "edit_ratio is to the cost of angles": (
        ratio_to_angle_alone,
        lambda: test_evidence.test_edit_ratio_is_of_costs_over_the_same_documents(run_of_shares(), "raw"),
    ),
    "the row over all documents is a document": (
        rows_over_all_documents,
        lambda: test_evidence.test_edit_ratio_is_of_costs_over_the_same_documents(run_of_shares(), "raw"),
    ),
    "edits of the raw gauge serve for both": (
        edits_of_the_raw_gauge,
        lambda: test_evidence.test_edit_ratio_is_of_costs_over_the_same_documents(run_of_shares(), "balanced"),
    ),
    "the fit is made once": (
        fit_made_once,
        test_evidence.test_a_lift_is_that_of_the_class_and_its_draws_make_the_fit_anew,
    ),
    "a class of few types decides": (every_class_decides, verdict("C2b", "not_tested", sink=0.5, function=9)),
    "few documents decide": (
        any_text_decides,
        verdict("C1", "not_tested", edits(0.01, 0.09), documents=4),
    ),
    "a sink is needed in every third": (every_third_is_needed, verdict("C2b", "supported", sink=(0.0, 0.5, -0.5))),
    "a third without a sink refutes": (one_third_refutes, verdict("C2b", "supported", sink=(0.0, 0.5, -0.5))),
    "shorter keys make sinks too": (
        shorter_keys_are_asked_too,
        verdict("C2c", "not_tested", sink=0.5, lift=-0.1, part=0.8),
    ),
    "a family counts as often as it has checkpoints": (checkpoints_are_counted, test_family.test_a_family_counts_once),
    "three sizes decide": (
        three_sizes_decide,
        lambda: test_family.test_four_sizes_can_decide(3, 0.1, 0.0, "inconclusive"),
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught(defect, monkeypatch):
    plant, check = DEFECTS[defect]
    check()  # it passes as the package is
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_the_defects_are_planted_where_the_ledger_looks():
    assert endpoint.interval is resampling.interval
    assert endpoint.holm_levels is resampling.holm_levels
    assert length_claims.gauges_of is function_claims.gauges_of is study.gauges_of
