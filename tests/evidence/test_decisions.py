"""The claims on planted twins: each is found as it was planted, and twins that do not differ support nothing."""

import math

import pytest

from geomprobe.evidence.contrasts import t_interval
from geomprobe.evidence.decisions import NEEDS, decide
from geomprobe.evidence.tables import contrast_table, weigh
from geomprobe.ledger.thresholds import of
from tests.evidence.made import ARMS, made, made_group, made_whole, stable

SEEDS = 6
FINE = 0.0003  # an own sd with which seeds tell everything apart


def nano(**planted):
    """Seeds of the short trainings of A0 and the arms that are planted."""
    return made(made_group("nano", sorted({"A0", *planted}), SEEDS, planted=planted))


def exact(**means):
    """Means that an arm's seeds hardly leave; what is planted in keys is so in both gauges, if nothing else is said."""
    mirrored = {
        name.replace("_keys", "_keys_balanced"): value for name, value in means.items() if "balanced" not in name
    }
    return {name: (value, 0.0, FINE) for name, value in {**mirrored, **means}.items()}


def at_rates(a0, a1, logit=(25.0, 25.0), rates=(3e-4, 3e-3, 1e-2), lost=()):
    """Trainings at several rates; what the loss of each arm gains from the lowest to the highest rate."""

    def arm(gain, largest):
        def means(rate):
            along = math.log(rate / rates[0]) / math.log(1e-2 / 3e-4)
            return exact(loss_1x=4.7 + gain * along, max_logit=largest)

        return means

    planted = {"A0": arm(a0, logit[0]), "A1": arm(a1, logit[1])}
    whole = made_group("stability", ["A0", "A1"], SEEDS, rates=rates, planted=planted)
    for name in lost:
        whole[name]["numbers"] |= {"loss_1x": None, "max_logit": None, "diverged": 1.0}
    return made(whole)


def long(a0, a1, own=0.002):
    """Long trainings with so much attention on the first of 64 positions."""
    planted = {arm: {"first_mass_64": (value, 0.0, own)} for arm, value in (("A0", a0), ("A1", a1))}
    return made(made_group("long", ["A0", "A1"], SEEDS, planted=planted, tokens=12_000_000))


EQUAL = exact(auc_keys=0.85, auc_residual=0.91, loss_1x=4.7)
CONSTANT = exact(k_log_sd=0.005, tv=0.01, tv_balanced=0.01, delta_ce_neutral_norm=0, delta_ce_scalar_gain=0)
PURE = exact(purity_keys_rare=0.35, purity_keys_frequent=0.46, parent_place_keys_rare=0.05)
LOSSES = exact(loss_1x=4.7, loss_2x=4.75, loss_4x=4.83)


SPACES = ("auc_keys", "auc_keys_balanced", "auc_residual")


def in_raw(planted):
    """The same, of runs that have no balanced gauge."""
    return {**planted, **{name: None for name in planted if "balanced" in name}}


def both(base, **changes):
    """The plain arm and the normed one, which differs from it in this."""
    return nano(A0=base, A1={**base, **exact(**changes)})


CASES = [
    ("C1t", "supported", nano()),
    ("C1t", "refuted", nano(A0=exact(growth_scored_k=-0.1))),
    ("C1t", "refuted", nano(A0=exact(radial_over_random_q=1.1))),  # as a random step
    ("C1t", "inconclusive", nano(A0={"growth_scored_q": (0.003, 0.0, 0.05)})),
    ("C1t", "inconclusive", nano(A0=exact(radial_over_random_q=0.5))),
    ("C3", "supported", nano(A1=CONSTANT)),
    ("C3", "refuted", nano(A1={**CONSTANT, **exact(tv=0.2, tv_balanced=0.2)})),
    ("C3", "refuted", nano(A1={**CONSTANT, **exact(k_log_sd=0.2, tv_balanced=0.2)})),
    ("C3", "not_identified", nano(A1={**CONSTANT, **exact(tv=0.2)})),
    ("C3", "not_identified", nano(A1={**CONSTANT, **exact(k_log_sd_balanced=0.2)})),
    ("C3", "refuted", nano(A1={**CONSTANT, "tv_balanced": None, **exact(tv=0.2)})),  # what there is decides
    ("C3", "inconclusive", nano(A1={**CONSTANT, **exact(tv=0.05, tv_balanced=0.05)})),
    ("C3", "inconclusive", nano(A1={**CONSTANT, **exact(delta_ce_scalar_gain=0.05)})),
    ("C3", "not_tested", nano(A1={**CONSTANT, "delta_ce_scalar_gain": None})),
    ("C4", "supported", both(EQUAL, auc_keys=0.9, auc_residual=0.94)),
    ("C4", "refuted", both(EQUAL)),
    ("C4", "refuted", both(EQUAL, auc_keys=0.9)),  # cleaner in keys alone
    ("C4", "refuted", both(EQUAL, auc_keys=0.8, auc_residual=0.8)),
    ("C4", "inconclusive", nano(A0=EQUAL, A1={**EQUAL, **dict.fromkeys(SPACES, (0.88, 0, 0.05))})),
    ("C4", "not_identified", both(EQUAL, auc_keys=0.9, auc_keys_balanced=0.85, auc_residual=0.94)),
    ("C4", "not_identified", both(EQUAL, auc_keys=0.85, auc_keys_balanced=0.9, auc_residual=0.94)),
    ("C4", "supported", nano(A0=in_raw(EQUAL), A1=in_raw({**EQUAL, **exact(auc_keys=0.9, auc_residual=0.94)}))),
    (
        "C4",
        "inconclusive",
        both(EQUAL, auc_keys=0.8695, auc_keys_balanced=0.87, auc_residual=0.94),
    ),  # too near to the margin either way
    ("C5", "supported", both(PURE, purity_keys_rare=0.41, parent_place_keys_rare=0.03)),
    ("C5", "refuted", both(PURE)),
    ("C5", "refuted", both(PURE, purity_keys_rare=0.41, purity_keys_frequent=0.52, parent_place_keys_rare=0.03)),
    ("C5", "refuted", both(PURE, purity_keys_rare=0.41, parent_place_keys_rare=0.07)),
    ("C5", "inconclusive", both(PURE, purity_keys_rare=0.41)),
    (
        "C5",
        "not_identified",
        both(PURE, purity_keys_rare=0.41, purity_keys_balanced_rare=0.35, parent_place_keys_rare=0.03),
    ),
    ("C6q", "supported", nano(A1=LOSSES, A3={**LOSSES, **exact(loss_1x=4.72)})),
    ("C6q", "supported", nano(A1=LOSSES, A3={**LOSSES, **exact(loss_4x=4.86)})),
    ("C6q", "refuted", nano(A1=LOSSES, A3=LOSSES)),
    ("C6q", "refuted", nano(A1=LOSSES, A3={**LOSSES, **exact(loss_4x=4.84)})),  # within what is allowed there
    ("C6q", "inconclusive", nano(A1=LOSSES, A3={**LOSSES, "loss_1x": (4.705, 0, 0.02)})),
    ("C7b", "supported", at_rates(0.4, 0.05, logit=(60.0, 20.0))),
    ("C7b", "refuted", at_rates(0.4, 0.4)),
    ("C7b", "inconclusive", at_rates(0.4, 0.05, logit=(30.0, 20.0))),
    ("C7b", "not_tested", at_rates(0.4, 0.05, rates=(3e-4,))),
    ("C7b", "not_tested", at_rates(0.4, 0.05, logit=(60.0, 20.0), lost=("stability-A0-r0.01-s2",))),
    ("C8", "supported", nano(A1=LOSSES, A6=LOSSES, A7={**LOSSES, **exact(loss_1x=4.705)})),
    ("C8", "inconclusive", nano(A1=LOSSES, A6=LOSSES, A7={**LOSSES, **exact(loss_1x=4.8)})),
    ("C8", "inconclusive", nano(A1=LOSSES, A6=exact(loss_1x=4.8), A7=exact(loss_1x=4.8))),
    ("H9", "supported", long(0.25, 0.05)),
    ("H9", "refuted", long(0.25, 0.24)),
    ("H9", "refuted", long(0.25, 0.35)),
    ("H9", "inconclusive", long(0.25, 0.2, own=0.03)),
    ("H9", "not_tested", long(0.17, 0.01)),  # no sink that could be removed
]


@pytest.mark.parametrize(
    ("claim", "verdict", "records"), CASES, ids=[f"{c}-{v}-{i}" for i, (c, v, _) in enumerate(CASES)]
)
def test_what_was_planted_is_what_is_found(claim, verdict, records):
    evidence = weigh(records)
    found = next(one for one in evidence.decisions if one.claim == claim)
    assert evidence.verdict(found) == verdict


def test_every_verdict_is_planted_for_every_claim_that_can_have_it():
    for claim in NEEDS:
        had = {verdict for name, verdict, _ in CASES if name == claim}
        assert {"supported", "inconclusive"} | ({"refuted"} if claim != "C8" else set()) <= had, claim


@pytest.fixture(scope="module")
def whole():
    """Runs of all groups, three seeds each."""
    return made_whole(seeds=3)


@pytest.mark.parametrize("claim", list(NEEDS))
def test_without_one_of_its_arms_a_claim_is_not_tested(claim, whole):
    group, arms = NEEDS[claim]
    for arm in arms:
        left = {name: one for name, one in whole.items() if not name.startswith(f"{group}-{arm}-")}
        assert _verdict(made(left), claim) == "not_tested", arm


def test_with_all_arms_every_claim_is_tested(whole):
    assert weigh(made(whole)).n_tested == len(NEEDS)


def _verdict(records, claim):
    evidence = weigh(records)
    return evidence.verdict(next(one for one in evidence.decisions if one.claim == claim))


def test_one_seed_decides_nothing(whole):
    first = {name: one for name, one in whole.items() if name.endswith("s0")}
    evidence = weigh(made(first))
    assert {evidence.verdict(one) for one in evidence.decisions} == {"not_tested"}
    assert evidence.n_tested == 0
    assert all(math.isnan(level) for level in evidence.levels)


# ---------------------------------------------------------------------- nothing where nothing is
def of_one_kind(whole):
    """The same runs under the name of every arm."""
    made_ = {}
    for name, record in whole.items():
        for arm in ARMS:
            made_[name.replace("A0", arm)] = {**record, "arm": arm}
    return made_


def test_arms_that_are_one_and_the_same_support_no_difference():
    whole = {
        **of_one_kind(made_group("nano", ["A0"], SEEDS)),
        **of_one_kind(made_group("long", ["A0"], SEEDS, planted={"A0": {"first_mass_64": 0.3}})),
        **of_one_kind(made_group("stability", ["A0"], SEEDS, rates=(3e-4, 1e-2), planted={"A0": stable(0.3)})),
    }
    for record in whole.values():
        record["numbers"]["delta_ce_scalar_gain"] = 0.0
    evidence = weigh(made(whole))
    found = {one.claim: evidence.verdict(one) for one in evidence.decisions}
    # C1t is about the plain arm alone, and C8 says that there is no difference.
    assert {claim for claim, verdict in found.items() if verdict == "supported"} == {"C1t", "C8"}
    assert {found[claim] for claim in ("C4", "C5", "C6q", "C7b", "H9")} == {"refuted"}


def test_arms_of_the_same_distribution_seldom_support_anything():
    wrong, n = 0, 30
    for start in range(n):
        seeds = range(100 * start, 100 * start + SEEDS)
        evidence = weigh(made(made_group("nano", ["A0", "A1", "A3"], seeds)))
        found = {one.claim: evidence.verdict(one) for one in evidence.decisions}
        wrong += any(found[claim] == "supported" for claim in ("C4", "C5", "C6q"))
    assert wrong <= 5  # .05, and three standard errors of it


# ---------------------------------------------------------------------- the table of contrasts
def test_intervals_are_at_the_level_at_which_each_contrast_is_asked(whole):
    evidence = weigh(made(whole))
    table = contrast_table(evidence)
    for decision, level in zip(evidence.decisions, evidence.levels, strict=True):
        own = table[table["claim"] == decision.claim].to_dict("records")
        for one, row in zip(decision.contrasts, own, strict=True):
            alone = one.rule is None
            equivalence = not alone and math.isfinite(one.rule.within)
            asked = 0.05 if alone else decision.level_of(level) * (2 if equivalence else 1)
            assert row["level"] == pytest.approx(asked)
            assert (row["low"], row["high"]) == pytest.approx(t_interval(one.values, asked), nan_ok=True)
            if equivalence:  # the interval that is shown decides
                inside = max(-row["low"], row["high"]) < one.rule.within
                assert (row["verdict"] == "supported") == inside
            elif not alone and math.isinf(one.rule.least) and not one.rule.turned:
                assert (row["verdict"] == "supported") <= (row["low"] > one.rule.above)


def test_signs_are_flipped_of_differences_alone(whole):
    table = contrast_table(weigh(made(whole)))
    paired = table["what"].str.contains(r"A\d −|A\d over A\d")
    assert (table["p_sign_flip"].notna() == paired & (table["n_seeds"] > 0)).all()
    known = table[paired & (table["n_seeds"] > 0)]
    assert (known["p_smallest"] == 2.0 ** (1 - known["n_seeds"])).all()
    assert (known["p_sign_flip"] >= known["p_smallest"]).all()


# ---------------------------------------------------------------------- what claims.md says
@pytest.fixture(scope="module")
def rules(whole):
    """The rules by claim, quantity and what it is of."""
    evidence = weigh(made(whole))
    return {(one.claim, each.name, each.what): each.rule for one in evidence.decisions for each in one.deciding}


def test_thresholds_are_those_of_the_file(rules):
    margins = {
        ("C4", "auc_keys"): ("least", of("C4", "auc")),
        ("C5", "purity_keys, rare − frequent"): ("none_within", of("C5", "purity")),
        ("C6q", "loss_4x"): ("above", of("C6q", "loss_4x")),
        ("C6q", "loss_2x"): ("below", of("C6q", "loss")),
        ("C7b", "loss_1x"): ("none_within", of("C7b", "loss")),
        ("C7b", "log max_logit ratio"): ("least", math.log(of("C7b", "logit_ratio"))),
        ("C8", "loss_1x"): ("within", of("C8", "loss")),
        ("C3", "delta_ce_neutral_norm"): ("within", of("C3", "delta_ce")),
        ("H9", "first_mass_64"): ("above", -of("H9", "first_mass")),
    }
    for (claim, name), (field, value) in margins.items():
        own = [rule for (c, quantity, _), rule in rules.items() if (c, quantity) == (claim, name)]
        assert own, (claim, name)
        assert all(getattr(rule, field) == pytest.approx(value) for rule in own), (claim, name)


def test_a_rule_says_what_it_does(rules):
    for key, rule in rules.items():
        can_refute = not (math.isnan(rule.below) and math.isnan(rule.none_within))
        assert ("refuted:" in rule.text) == can_refute, key
        assert "supported:" in rule.text, key


def test_a_share_of_0_or_1_has_no_logit_and_leaves_the_others():
    whole = made_group("nano", ["A0", "A1"], 4, planted={"A0": PURE, "A1": PURE})
    whole["nano-A1-s2"]["numbers"]["purity_keys_rare"] = 1.0
    evidence = weigh(made(whole))
    rare = next(one for one in evidence.decisions if one.claim == "C5")
    assert [one.n for one in rare.deciding] == [4, 3, 4, 4, 4]  # gauges are held against each other on the same seeds
    assert evidence.verdict(rare) != "not_tested"


def test_diverged_runs_are_counted_and_not_left_out_in_silence():
    records = at_rates(0.4, 0.05, lost=("stability-A0-r0.01-s2", "stability-A0-r0.01-s4", "stability-A1-r0.0003-s0"))
    missing = next(one for one in decide(records) if one.claim == "C7b").missing
    assert missing == (
        "Trainings diverged and have no loss to be compared: 1 of 6 of A1 at 0.0003, 2 of 6 of A0 at 0.01."
    )


def test_the_entry_of_sinks_is_told_with_its_numbers():
    missing = next(one for one in decide(long(0.17, 0.01)) if one.claim == "H9").missing
    assert "0.170 of its attention, less than 3 times the 0.059 of uniform attention" in missing


def test_a_sink_within_the_margin_decides_nothing():
    """Whatever the norm did to it, the difference would be within the margin that refutes."""
    whole = long(0.06, 0.01).whole
    for record in whole.values():
        record["numbers"]["first_mass_64_uniform"] = 0.0133
    found = weigh(made(whole))
    (sinks,) = (one for one in found.decisions if one.claim == "H9")
    assert found.verdict(sinks) == "not_tested"
    assert "0.047 more than uniform attention does, which is within the margin of 0.05" in sinks.missing


def test_what_sequences_begin_with_is_noted():
    def note(*, bos, others=()):
        planted = {"A0": {"first_mass_64": (0.25, 0.0, 0.0)}, "A1": {"first_mass_64": (0.24, 0.0, 0.0)}}
        whole = made_group("long", ["A0", "A1"], SEEDS, planted=planted)
        for record in whole.values():
            record["recipe"] |= {"bos": True} if bos else {}
        low = {arm: {"first_mass_64": (value, 0.0, 0.0)} for arm, value in (("A0", 0.042), ("A1", 0.031))}
        whole |= made_group("nobos", others, 2, planted=low)
        told = next(one for one in decide(made(whole)) if one.claim == "H9").note
        assert told.endswith("were chosen when seed 0 had been seen; the rule itself was not.")
        sizes, _, after = told.partition("(0.059). ")
        assert sizes == (
            "Of the attention of 64 positions the first gets 0.250 in A0 and 0.240 in A1, which is 4.2 and 4.0 times "
            "what uniform attention gives it "
        )
        return after.partition("Windows of 64")[0].strip()

    assert note(bos=False) == ""
    assert note(bos=True) == note(bos=True, others=("A0",)) == "Each sequence begins with a BOS here."
    told = note(bos=True, others=("A0", "A1"))
    assert "(group nobos, n = 2) the first position gets 0.042 of the attention in A0 and 0.031 in A1; uni" in told


def test_which_gauge_decided_is_noted():
    def note(**planted):
        return next(one for one in decide(nano(A1={**CONSTANT, **planted})) if one.claim == "C3").note

    assert "balanced gauge not all" in note()
    assert note(**exact(k_log_sd_balanced=0.005)) == ""
    assert "raw gauge alone" in note(tv_balanced=None)
    assert next(one for one in decide(nano()) if one.claim == "C3").note == ""


def test_whether_the_arm_that_must_fail_does_so_is_told():
    def note(a8):
        records = nano(A1=LOSSES, A6=LOSSES, A7=LOSSES, **({} if a8 is None else {"A8": exact(loss_1x=a8)}))
        return next(one for one in decide(records) if one.claim == "C8").note

    assert "it is (lower bound 0.3" in note(5.05)
    assert "it is not (lower bound 0.0" in note(4.72)
    assert note(None).endswith("above A1.")
