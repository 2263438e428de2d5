"""C1 and C3: what lengths tell of attention, and whether a QK norm makes cosines of it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from geomprobe import tables
from geomprobe.ledger import evidence
from geomprobe.ledger.endpoint import (
    INCONCLUSIVE,
    NOT_IDENTIFIED,
    REFUTED,
    SUPPORTED,
    Endpoint,
    Quantity,
    Rule,
    Verdict,
    all_agree,
)
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.study import (
    TITLES,
    Study,
    both_gauges,
    edit_documents,
    few_documents,
    gauges_of,
    not_identified,
    not_tested,
    pct,
    positive,
)
from geomprobe.ledger.thresholds import of
from geomprobe.pooling import ByDocument
from geomprobe.run.reading import Run


# ------------------------------------------------------------------ C1
def length_or_angle(checkpoint: Checkpoint) -> Study:
    """C1: norm_share, edit_ratio and the sign of norm_attention_rho."""
    if not checkpoint.has("split"):
        return not_tested("C1", "The probe split was not run.")
    rule = Rule(
        f"interval above {of('C1', 'share'):g} (below: refuted); edit_ratio likewise; norm_attention_rho above 0",
        above=of("C1", "share"),
        below=of("C1", "share"),
    )
    ratio_rule = replace(rule, above=of("C1", "edit_ratio"), below=of("C1", "edit_ratio"))
    heads, layers = checkpoint.n_heads, checkpoint.n_layers
    quantities: list[Quantity] = []
    rho: dict[str, float] = {}
    few = ""
    for gauge in gauges_of(checkpoint, gainless_raw=True):
        estimate, draws, n = evidence.share_of_lengths(checkpoint.run, gauge)
        few = few or few_documents(n)
        common: dict[str, Any] = {"gauge": gauge, "n_documents": n, "n_layers": layers, "n_heads": heads}
        quantities.append(Quantity("norm_share", estimate, draws, rule, **common))
        rho[gauge] = float(tables.split_rows(checkpoint.run, gauge, "out")["norm_attention_rho"].median())
        quantities.append(Quantity("norm_attention_rho", rho[gauge], gauge=gauge, n_layers=layers, n_heads=heads))
        ratio = evidence_of_edits(checkpoint, gauge)
        if ratio is not None:
            few = few or few_documents(ratio.n_documents)
            quantities.append(replace(ratio, rule=ratio_rule))
    shown = tuple(q if q.rule is None else replace(q, rule=None) for q in quantities)
    if few or not_identified(checkpoint):
        return not_tested("C1", few or not_identified(checkpoint), shown)
    missing = [g for g in rho if not any(q.name == "edit_ratio" and q.gauge == g for q in quantities)]
    if missing:
        edits = " ".join(
            f"--edit {edit}{'' if gauge == 'raw' else '@' + gauge}"
            for gauge in missing
            for edit in ("permute_norm", "swap_angle:permute_norm")
        )
        reason = (
            "What moved lengths cost against moved angles is not known; run geomprobe intervene with "
            f"{edits} and give that run too."
        )
        return not_tested("C1", reason, shown)

    def agree(gauge: str, said: dict[str, Verdict]) -> Verdict:
        verdict = all_agree(gauge, said)
        return INCONCLUSIVE if verdict == SUPPORTED and not rho[gauge] > 0 else verdict

    share = {q.gauge: q.estimate for q in quantities if q.name == "norm_share"}
    cost = {q.gauge: q.estimate for q in quantities if q.name == "edit_ratio"}
    first = _first_key(checkpoint.run)

    apart = {share[gauge] < of("C1", "share") < cost[gauge] for gauge in share} == {True}
    split = (
        "the pattern of attention follows angles, yet predictions lean on lengths, so the two witnesses disagree"
        if apart
        else "which of the two matters more is not settled by these numbers"
    )

    def tell(verdict: Verdict, _own: Sequence[Verdict]) -> str:
        told = (
            f"Key lengths tell {both_gauges(share)} of where attention goes and angles the rest, and shuffling lengths "
            f"costs {both_gauges(cost)} of what shuffling lengths and moving angles as far cost together"
        )
        meant = {
            SUPPORTED: "length makes tokens important here",
            REFUTED: "length does not make tokens important here; direction does",
            NOT_IDENTIFIED: "what is length and what is angle depends on the gauge, which the model leaves open",
        }.get(verdict, split)
        return f"{told}: {meant}.{first}"

    return Study("C1", TITLES["C1"], tell, (Endpoint(tuple(quantities), agree),))


def _first_key(run: Run) -> str:
    """What the most attended place has for a key, where it is the first one."""
    if not tables.has(run, "norms", "sinks"):
        return ""
    mass = float(run.tables["sinks"]["first_mass"].mean())
    ratio = float(tables.first_ratio(run)["ratio"].median())
    if not mass > 0.1 or math.isnan(ratio):
        return ""
    size = "shorter than" if ratio < 0.95 else "longer than" if ratio > 1.05 else "as long as"
    return (
        f" The most attended place, the first token, has keys {size} others at the median head ({ratio:.2f} times as "
        f"long) and takes {pct(mass)} of the attention."
    )


def evidence_of_edits(checkpoint: Checkpoint, gauge: str) -> Quantity | None:
    """edit_ratio of a gauge: ΔCE(permute_norm) over itself plus ΔCE(swap_angle as far); None where it was not run."""
    for run in checkpoint.trials:
        length = edit_documents(run, "permute_norm", gauge)
        angle = edit_documents(run, "swap_angle(permute_norm)", gauge)
        if length is None or angle is None:
            continue
        both = length.merge(angle, on="document", suffixes=("_length", "_angle"))
        sums = {
            name: (both[f"delta_ce_{name}"] * both[f"n_tokens_{name}"]).to_numpy(float) for name in ("length", "angle")
        }
        data = ByDocument(sums)
        whole, drawn = data.whole(), data.drawn(evidence.n_draws())
        # A cost below 0 is none: the ratio is of costs.
        estimate, draws = (
            np.maximum(x["length"], 0) / positive(np.maximum(x["length"], 0) + np.maximum(x["angle"], 0))
            for x in (whole, drawn)
        )
        return Quantity(
            "edit_ratio",
            float(estimate),
            draws,
            gauge=gauge,
            n_documents=data.n,
            n_layers=checkpoint.n_layers,
        )
    return None


# ------------------------------------------------------------------ C3
def constant_lengths(checkpoint: Checkpoint) -> Study:
    """C3: spread of key lengths, distance from cosines, and what setting lengths or gains level costs."""
    if not checkpoint.has("split"):
        return not_tested("C3", "The probe split was not run.")
    rules = {
        "k_log_sd": Rule(
            f"interval at or below {of('C3', 'log_sd'):g} (refuted: above {of('C3', 'not_log_sd'):g})",
            above=of("C3", "log_sd"),
            below=of("C3", "not_log_sd"),
            turned=True,
        ),
        "tv": Rule(
            f"interval at or below {of('C3', 'tv'):g} (refuted: above {of('C3', 'not_tv'):g})",
            above=of("C3", "tv"),
            below=of("C3", "not_tv"),
            turned=True,
        ),
    }
    quantities: list[Quantity] = []
    few = ""
    for gauge in gauges_of(checkpoint, gainless_raw=True):
        for name, measure in (("k_log_sd", evidence.spread_of_lengths), ("tv", evidence.distance_from_cosines)):
            estimate, draws, n = measure(checkpoint.run, gauge)
            few = few or few_documents(n)
            common: dict[str, Any] = {"gauge": gauge, "n_documents": n, "n_layers": checkpoint.n_layers}
            quantities.append(Quantity(name, estimate, draws, rules[name], n_heads=checkpoint.n_heads, **common))
        r2 = float(tables.split_rows(checkpoint.run, gauge, "out")["r2"].median())
        quantities.append(Quantity("r2", r2, gauge=gauge, n_layers=checkpoint.n_layers, n_heads=checkpoint.n_heads))
    costs = _level_costs(checkpoint)
    raw = {q.name: q.estimate for q in quantities if q.gauge == "raw"}
    seen = (
        f"Key lengths differ by {raw['k_log_sd']:.2f} (log sd, median head), and a softmax of cosines alone is off by "
        f"{raw['tv']:.2f} in total variation"
    )
    if not checkpoint.normed:
        shown = tuple(replace(q, rule=None) for q in [*quantities, *costs])
        return not_tested("C3", f"This model has no QK norm. For comparison: {seen[0].lower()}{seen[1:]}.", shown)
    few = few or not_identified(checkpoint)
    if few:
        return not_tested("C3", few, tuple(replace(q, rule=None) for q in [*quantities, *costs]))
    tried = {q.name for q in costs if q.rule is not None}

    def agree(_gauge: str, said: dict[str, Verdict]) -> Verdict:
        if REFUTED in said.values():
            return REFUTED
        needed = {"neutral_norm", *(set() if checkpoint.gainless else {"scalar_gain"})}
        return SUPPORTED if set(said.values()) == {SUPPORTED} and needed <= tried else INCONCLUSIVE

    def tell(verdict: Verdict, _own: Sequence[Verdict]) -> str:
        meant = {
            SUPPORTED: "q·k is a cosine here, up to a temperature",
            REFUTED: "q·k is not a cosine here, QK norm or not",
            NOT_IDENTIFIED: "whether q·k is a cosine depends on the gauge, which the gain leaves open",
        }.get(verdict, "whether that is near enough to a cosine is not settled by these numbers")
        return f"{seen}: {meant}."

    return Study("C3", TITLES["C3"], tell, (Endpoint((*quantities, *costs), agree, one_refutes=True),))


def _level_costs(checkpoint: Checkpoint) -> list[Quantity]:
    margin = of("C3", "delta_ce")
    rule = Rule(f"90 % interval within ±{margin:g} nats (TOST)", within=margin)
    made = []
    for edit in ("neutral_norm", "scalar_gain"):
        for run in checkpoint.trials:
            rows = edit_documents(run, edit, "raw")
            if rows is None:
                continue
            data = ByDocument(
                {
                    "cost": (rows["delta_ce"] * rows["n_tokens"]).to_numpy(float),
                    "n": rows["n_tokens"].to_numpy(float),
                }
            )
            whole, drawn = data.whole(), data.drawn(evidence.n_draws())
            made.append(
                Quantity(
                    edit,
                    float(whole["cost"] / whole["n"]),
                    drawn["cost"] / drawn["n"],
                    None if few_documents(data.n) else rule,
                    n_documents=data.n,
                    n_layers=checkpoint.n_layers,
                )
            )
            break
    return made
