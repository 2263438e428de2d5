"""Each verdict follows from its row: made again from the evidence and thresholds.toml by code that shares nothing."""

import tomllib
from math import isnan, log
from pathlib import Path

import numpy as np
import pytest

import geomprobe
from geomprobe.ledger.claims import STUDIES
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import make_ledger
from geomprobe.ledger.thresholds import thresholds
from tests.ledger.made import checkpoint, edits
from tests.synthetic_run import write_synthetic_run

NUMBERS = tomllib.loads((Path(geomprobe.__file__).parent / "data" / "thresholds.toml").read_text(encoding="utf-8"))
LEVELS = {"neutral_norm": 0.001, "scalar_gain": -0.001}
LONG, TURNED = edits(0.09, 0.01, **LEVELS), edits(0.01, 0.09, **LEVELS)
NORM = {"norm": True, "gain_cv": 0.2}
ERRORS = {"commutation_error": 0.3, "shift_error": 0.2, "folding_error": 1e-7}
CASES = {
    "nothing planted": (None, {}),
    "no edits, long keys": (None, {"lift": 0.1, "sink": 0.5, "part": 0.8, "one_hot": 0.1}),
    "length in everything": (LONG, {"share": 0.8, "lift": 0.1, "sink": 0.5, "part": 0.8, "one_hot": 0.1}),
    "angle in everything": (TURNED, {"share": 0.2, "sink": (0.5, 0.0, -0.5), "lift": 0.05, "one_hot": 0.002}),
    "gauges apart": (
        edits({"raw": 0.09, "balanced": 0.01}, {"raw": 0.01, "balanced": 0.09}),
        {
            **NORM,
            "share": {"raw": 0.8, "balanced": 0.2},
            "lift": {"raw": 0.1, "balanced": 0.01},
            "part": {"raw": 0.8, "balanced": 0.1},
            "sink": 0.5,
            "log_sd": {"raw": 0.01, "balanced": 0.2},
            "tv": 0.01,
        },
    ),
    "cosines": (LONG, {**NORM, "share": 0.8, "rho": -0.2, "log_sd": 0.01, "tv": 0.01, "errors": ERRORS}),
    "cosines without a gain": (
        TURNED,
        {"norm": True, "gain_cv": 0.0, "log_sd": {"raw": 0.0001, "balanced": 0.3}, "tv": 0.01},
    ),
    "no cosines": (TURNED, {**NORM, "log_sd": 0.2, "tv": 0.2, "errors": {**ERRORS, "shift_error": 0.005}}),
    "hardly cosines": (LONG, {**NORM, "log_sd": 0.05, "tv": 0.05, "lift": 0.034, "sink": 0.14, "part": 0.4}),
    "noise": (edits(0.05, 0.05), {"share": 0.5, "noise": 0.3, "spread": 3.0, "one_hot": 0.05}),
    "more noise": (edits(0.05, 0.05), {"share": 0.6, "noise": 0.6, "spread": 1.0, "sink": 0.3, "lift": 0.1, "seed": 3}),
    "little text": (TURNED, {"documents": 4, "sink": 0.0}),
    "few types": (TURNED, {"function": 8, "sink": 0.0}),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def fast_enough():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(thresholds()["statistics"], "draws", 600)
        patch.setitem(thresholds()["statistics"], "permutations", 999)
        yield


@pytest.fixture(scope="module")
def decided(fast_enough):
    """Each case: the checkpoint and its ledger."""
    every = {name: checkpoint(costs, **planted) for name, (costs, planted) in CASES.items()}
    return {name: (one, make_ledger(one)) for name, one in every.items()}


# ------------------------------------------------------------------ by another hand
def number(claim, name):
    return NUMBERS[claim][name]


def beyond(claim, over, under):
    """For above one number of a claim, against below another."""
    return lambda low, high, *_: (low > number(claim, over), high < number(claim, under))


def below(claim, under, over):
    return lambda low, high, *_: (high < number(claim, under), low > number(claim, over))


def level(low, high, *_):
    return max(-low, high) < number("C3", "delta_ce"), False


# What lies for a claim and what against it: quantity → (for, against) of (low, high, estimate, p is small enough).
SAYS = {
    ("C1", "norm_share"): beyond("C1", "share", "share"),
    ("C1", "edit_ratio"): beyond("C1", "edit_ratio", "edit_ratio"),
    ("C2a", "norm_lift"): lambda low, high, estimate, small: (
        low > 0 and estimate >= log(number("C2a", "lift")) and small,
        high < log(number("C2a", "no_lift")),
    ),
    ("C2b", "class_sink"): lambda low, high, estimate, small: (
        low > 0 and estimate >= number("C2b", "sink") and small,
        high < number("C2b", "no_sink"),
    ),
    ("C2c", "norm_part_share"): beyond("C2c", "share", "no_share"),
    ("C3", "k_log_sd"): below("C3", "log_sd", "not_log_sd"),
    ("C3", "tv"): below("C3", "tv", "not_tv"),
    ("C3", "neutral_norm"): level,
    ("C3", "scalar_gain"): level,
    ("C7c", "one_hot_rate_weighted"): beyond("C7c", "one_hot", "rare"),
}


def of_row(row):
    small = isnan(row["p"]) or row["p"] <= row["level"]
    for_, against = SAYS[row["claim"], row["quantity"]](row["low"], row["high"], row["estimate"], small)
    return "refuted" if against else "supported" if for_ else "inconclusive"


def together(said):
    """Of several that must all agree."""
    return said[0] if set(said) in ({"supported"}, {"refuted"}) else "inconclusive"


def of_gauge(claim, rows, rho, gainless):
    said = [of_row(row) for row in rows]
    if claim == "C1":
        verdict = together(said)
        return "inconclusive" if verdict == "supported" and not rho > 0 else verdict
    if claim == "C3":
        if "refuted" in said:
            return "refuted"
        needed = {"k_log_sd", "tv", "neutral_norm"} | (set() if gainless else {"scalar_gain"})
        return together(said) if needed <= {row["quantity"] for row in rows} else "inconclusive"
    return together(said)


def of_claim(claim, evidence, gainless):
    """The verdict of a claim from its rows; None where none of them decides."""
    rows = evidence[(evidence["claim"] == claim) & evidence["primary"]].to_dict("records")
    thirds = {}
    for row in rows:
        where = row["where"] if claim in ("C2b", "C2c") else ""
        thirds.setdefault(where, []).append(row)
    said = []
    for own in thirds.values():
        by_gauge = {row["gauge"] for row in own} - {""} or {""}
        verdicts = set()
        for gauge in by_gauge:
            rho = evidence[(evidence["quantity"] == "norm_attention_rho") & (evidence["gauge"] == gauge)]["estimate"]
            mine = [row for row in own if row["gauge"] in ("", gauge)]
            verdicts.add(of_gauge(claim, mine, float(rho.iloc[0]) if len(rho) else 0.0, gainless))
        said.append(verdicts.pop() if len(verdicts) == 1 else "not_identified")
    if not said:
        return None
    if "supported" in said:
        return "supported"
    if set(said) == {"refuted"}:
        return "refuted"
    return "not_identified" if "not_identified" in said else "inconclusive"


def whole(said):
    parts = [said["C2a"], said["C2b"], said["C2c"]]
    if parts == ["supported"] * 3:
        return {"supported"}
    if "refuted" in (parts[0], parts[2]):
        return {"refuted"}
    return {"inconclusive", "not_identified", "not_tested"}


def check_follows(one, ledger):
    evidence, said = ledger.evidence, dict(zip(ledger.claims["claim"], ledger.claims["verdict"], strict=True))
    for row in evidence.to_dict("records"):
        assert row["verdict"] == (of_row(row) if row["primary"] else ""), row
        assert row["primary"] <= (row["rule"] != "")
    for claim in ("C1", "C2a", "C2c", "C3"):
        gauges = set(evidence.loc[(evidence["claim"] == claim) & evidence["primary"], "gauge"]) - {""}
        assert gauges in (set(), {"raw"} if one.gainless else {"raw", "balanced"}), claim
    for claim in ("C1", "C2a", "C2b", "C2c", "C3", "C7c"):
        expected = of_claim(claim, evidence, one.gainless)
        assert said[claim] == (expected or "not_tested"), claim
    assert said["C2"] in whole(said)
    assert said["C8"] == said["C7a"] == "not_tested"
    shown = evidence[evidence["claim"] == "C6s"].set_index("quantity")["estimate"]
    if len(shown):  # all heads alike here
        most = "supported" if shown["shift_error"] > number("C6s", "shift_error") else "inconclusive"
        assert said["C6s"] == ("refuted" if shown.max() < number("C6s", "commutes") else most)


@pytest.mark.parametrize("case", CASES)
def test_each_verdict_follows_from_its_row(decided, case):
    check_follows(*decided[case])


@pytest.mark.parametrize("qk_norm", [False, True])
def test_each_verdict_of_a_whole_run_follows_from_its_row(qk_norm, tmp_path):
    """Random numbers in all tables of a run folder."""
    one = Checkpoint(write_synthetic_run(tmp_path, qk_norm=qk_norm))
    ledger = make_ledger(one)
    check_follows(one, ledger)
    check_levels(one, ledger)
    # One-hot rates are made up between 30 and 50%, all else around nothing.
    assert set(ledger.claims.loc[ledger.claims["verdict"] == "supported", "claim"]) == {"C7c"}


def test_the_cases_hold_every_verdict_of_every_claim(decided):
    """So that what is made again above is not all of one kind."""
    seen = {}
    for _, ledger in decided.values():
        for row in ledger.claims.to_dict("records"):
            seen.setdefault(row["claim"], set()).add(row["verdict"])
    three = {"supported", "refuted", "inconclusive"}
    for claim in ("C1", "C2a", "C2c", "C3"):
        assert seen[claim] == three | {"not_identified", "not_tested"}, claim
    for claim in ("C2", "C2b", "C7c"):
        assert seen[claim] >= three, claim


# ------------------------------------------------------------------ levels
def p_of(quantity):
    """(for, against): two-sided p by counting draws."""
    rule, draws = quantity.rule, quantity.draws
    n = len(draws) + 1
    if not isnan(rule.within):
        return (1 + max((~(draws > -rule.within)).sum(), (~(draws < rule.within)).sum())) / n, 1.0
    right, wrong = (draws < rule.above, draws > rule.below) if rule.turned else (draws > rule.above, draws < rule.below)
    small = 0.0 if isnan(quantity.p) else quantity.p
    return min(1, max(2 * (1 + (~right).sum()) / n, small)), min(1, 2 * (1 + (~wrong).sum()) / n)


def p_of_endpoint(endpoint):
    own = [q for q in endpoint.quantities if q.rule is not None]
    against = []
    for gauge in {q.gauge for q in own} - {""} or {""}:
        mine = [q for q in own if q.gauge in ("", gauge)]
        found = [p_of(q)[1] for q in mine]
        against.append(min(1, 2 * min(found)) if endpoint.one_refutes else max(found))
    return min(1, max(halves(q, endpoint) * p_of(q)[0] for q in own), max(against))


def halves(quantity, endpoint):
    """Of log_sd and tv each alone may refute C3: each has half of its level."""
    return 1 + (endpoint.one_refutes and quantity.name in ("k_log_sd", "tv"))


def holm(p, level):
    """The level of each: the smallest p at level/m, the next at level/(m − 1) …, up to the first that fails."""
    order = sorted(range(len(p)), key=lambda at: p[at])
    made, failed = {}, False
    for place, at in enumerate(order):
        made[at] = made[order[place - 1]] if failed else level / (len(p) - place)
        failed = failed or p[at] > made[at]
    return [made[at] for at in range(len(p))]


def check_levels(one, ledger):
    studies = [study(one) for study in STUDIES]
    endpoints = [(study.claim, endpoint) for study in studies for endpoint in study.endpoints]
    assert ledger.n_primary == len(endpoints)
    expected = holm([p_of_endpoint(endpoint) for _, endpoint in endpoints], 1 - NUMBERS["statistics"]["confidence"])
    found = []
    primary = ledger.evidence[ledger.evidence["primary"]]
    for claim, endpoint in endpoints:
        rows = primary[primary["claim"] == claim]
        if claim in ("C2b", "C2c"):
            rows = rows[rows["where"] == endpoint.quantities[0].where]
        doubled = rows["quantity"].isin(LEVELS)  # equivalence: the 90 % interval
        halved = rows["quantity"].isin(["k_log_sd", "tv"])
        levels = rows["level"].to_numpy() / np.where(doubled, 2, 1) * np.where(halved, 2, 1)
        assert np.allclose(levels, levels[0])
        found.append(levels[0])
        assert len(rows) == len(endpoint.deciding)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    shown = ledger.evidence[~ledger.evidence["primary"] & ledger.evidence["level"].notna()]
    assert np.isclose(shown["level"], 0.05).all()


@pytest.mark.parametrize("case", CASES)
def test_levels_are_holms(decided, case):
    check_levels(*decided[case])


def test_intervals_are_those_of_their_level(decided):
    """A row's low and high leave out half of its level at either end of the draws."""
    given, ledger = decided["more noise"]
    rows = ledger.evidence[ledger.evidence["primary"]].to_dict("records")
    quantities = [q for study in STUDIES for e in study(given).endpoints for q in e.deciding]
    assert len(rows) == len(quantities) > 8
    for row, quantity in zip(rows, quantities, strict=True):
        ordered = np.sort(quantity.draws)
        at = row["level"] / 2 * (len(ordered) - 1)
        low, high = (np.interp(x, np.arange(len(ordered)), ordered) for x in (at, len(ordered) - 1 - at))
        np.testing.assert_allclose((row["low"], row["high"]), (low, high), rtol=1e-9)
        assert row["estimate"] == quantity.estimate


def test_two_ledgers_of_a_run_are_the_same(decided):
    one, first = decided["length in everything"]
    again = make_ledger(one)
    assert first.claims.equals(again.claims)
    assert first.evidence.equals(again.evidence)
