"""What twins say of the claims, in sentences made of their numbers; and what quantities are, in words."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pandas as pd

from geomprobe.evidence.contrasts import LEAST_SEEDS, LEVEL, Decision, seeds_needed
from geomprobe.evidence.decisions import NEEDS
from geomprobe.evidence.records import SHORT_SINK
from geomprobe.evidence.tables import Evidence, contrast_table, n_seeds, rows_of
from geomprobe.ledger.endpoint import INCONCLUSIVE, NOT_IDENTIFIED, NOT_TESTED, REFUTED, SUPPORTED, Verdict
from geomprobe.ledger.writing import WORDS
from geomprobe.pages.wording import NOTHING, change, listing, number

CLAIMS: Final = ("claim", "title", "verdict", "level", "p", "n_seeds", "sentence")
# What is said of a claim in general, behind its numbers.
MEANT: Final[Mapping[str, Mapping[Verdict, str]]] = MappingProxyType(
    {
        "C1t": {
            SUPPORTED: "without a QK norm lengths grow here, and updates are more radial than chance",
            REFUTED: "lengths do not grow here as the claim says",
        },
        "C3": {
            SUPPORTED: "with a QK norm logits are cosines here, up to a temperature",
            REFUTED: "with a QK norm lengths are not constant here, or logits are no cosines",
            NOT_IDENTIFIED: "whether logits are cosines depends on the gauge, which the gain leaves open",
        },
        "C4": {
            SUPPORTED: "categories of words are cleaner with a QK norm, in keys and in the residual stream",
            REFUTED: "in keys, in the residual stream or in both, a QK norm does not make categories cleaner",
            NOT_IDENTIFIED: "what keys say depends on the gauge, which no attention shows",
        },
        "C5": {
            SUPPORTED: "a QK norm helps rare words more than frequent ones here",
            REFUTED: "a QK norm does not help rare words more than frequent ones here",
            NOT_IDENTIFIED: "whether it helps rare words depends on the gauge, which no attention shows",
        },
        "C6q": {
            SUPPORTED: "a norm behind RoPE costs quality here",
            REFUTED: "a norm behind RoPE costs nothing worth the name here",
        },
        "C7b": {
            SUPPORTED: "a QK norm makes high learning rates cheaper here, and keeps logits small",
            REFUTED: "a QK norm does not make high learning rates cheaper here",
        },
        "C8": {
            SUPPORTED: "a learned temperature, or a gain alone, does what 1/√d does here",
            REFUTED: "neither a learned temperature nor a gain alone does what 1/√d does here",
        },
        "H9": {
            SUPPORTED: "a QK norm takes attention off the first position here",
            REFUTED: "a QK norm does not take attention off the first position here",
        },
    }
)
# What a claim's section asks.
QUESTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "C1t": "Without a QK norm, do keys and queries grow in training, and do updates point along the weights?",
        "C3": "With a QK norm, are key lengths constant, and is attention a softmax of cosines?",
        "C4": "At equal held-out loss, are categories of words cleaner with a QK norm?",
        "C5": "Does a QK norm help rare words more than frequent ones?",
        "C6q": "Does it cost loss to put the norm behind RoPE, at the training length and beyond?",
        "C7b": "Does a QK norm make high learning rates cheaper, and keep the largest logit small?",
        "C8": "Does a learned temperature, or a gain alone, do what 1/√d does?",
        "H9": "Does a QK norm take attention off the first position?",
    }
)
_UNSETTLED: Final = "the seeds at hand meet neither rule as a whole"
_VECTORS: Final = {"k": "keys", "q": "queries"}
_SPACES: Final = {
    "keys": "keys",
    "keys_balanced": "keys, balanced gauge",
    "residual": "the residual stream",
    "queries": "queries",
    "embedding": "embeddings",
}


def _quantities() -> dict[str, tuple[str, str]]:
    made: dict[str, tuple[str, str]] = {}
    for v, many in _VECTORS.items():
        made |= {
            f"growth_scored_{v}": (
                f"growth of {many}",
                f"slope of the mean log length of {many} as they are scored, behind the first quarter of the steps, "
                "for a whole training",
            ),
            f"growth_projected_{v}": (f"growth of projected {many}", "the same before any norm"),
            f"turn_{v}": (
                f"turning of {many}",
                f"mean angle between the {many} of the same tokens at two looks in a row (radians)",
            ),
            f"radial_over_random_{v}": (
                f"radial share, {many}",
                f"part of an update of the weights of {many} along these weights (squared cosine), over what a random "
                "step has",
            ),
            f"radial_cosine_{v}": (
                f"cosine of update and weights, {many}",
                "positive: the update makes them longer",
            ),
        }
    for space, many in _SPACES.items():
        made |= {
            f"auc_{space}": (
                f"AUC, {many}",
                "how often two words of one category point more alike than two of different ones (.5: chance); mean "
                "over heads and layers past the first",
            ),
            f"silhouette_{space}": (
                f"silhouette, {many}",
                "how much nearer a word's own category is than the next one",
            ),
            f"kappa_{space}": (f"tightness κ, {many}", "concentration of a category's directions about their mean"),
        }
        for group, who in (("rare", "pseudo-rare"), ("half", "halved")):
            made[f"parent_place_{space}_{group}"] = (
                f"parent's place, {who}, {many}",
                f"share of the other parents that lie nearer to a {who} word than its own parent (0: none, .5: chance)",
            )
    for factor, of in ((1, "the training length"), (2, "twice the training length"), (4, "four times that length")):
        made[f"loss_{factor}x"] = (f"loss at {factor}×", f"held-out loss at {of}, nats a token")
    return made


def _purities() -> dict[str, tuple[str, str]]:
    made: dict[str, tuple[str, str]] = {}
    for space, end, where in (("keys", "", ""), ("keys_balanced", ", balanced", ", in the balanced gauge")):
        made |= {
            f"purity_{space}, rare − frequent": (
                f"purity, rare less frequent{end}",
                "share of the ten nearest words by keys that are of the word's own category, over how many could be: "
                f"the rarest third of the words less the most frequent one{where}",
            ),
            f"logit purity_{space}, rare − frequent": (
                f"logit purity, rare less frequent{end}",
                "the same on the logit scale, where an equal gain everywhere gives no difference",
            ),
        }
    return made


def _tells() -> dict[str, tuple[str, str]]:
    made: dict[str, tuple[str, str]] = {
        "norm_lift_function": (
            "length of function words",
            "mean log length of their keys less that of content words of like frequency and place, raw gauge",
        ),
        "class_sink_function": (
            "lead of function words",
            "their logit less that of content words beside them, nats, mean over heads and layers",
        ),
        "edit_ratio": (
            "share of lengths, by edits",
            "cost of shuffled lengths over the costs of shuffled lengths and of directions moved as far (½: alike)",
        ),
    }
    for gauge, end, where in (("", "", ""), ("_balanced", ", balanced", ", in the balanced gauge")):
        made |= {
            f"norm_share{gauge}": (
                f"share of lengths{end}",
                f"share of the attention that key lengths tell (Shapley, position 0 out){where}",
            ),
            f"norm_attention_rho{gauge}": (
                f"rank correlation of length and attention{end}",
                f"of keys past position 0, median head{where}",
            ),
            f"class_sink_function_by_length{gauge}": (
                f"lead of function words by length{end}",
                f"the part of that which lengths make{where}",
            ),
        }
    return made


def _leads() -> dict[str, tuple[str, str]]:
    made: dict[str, tuple[str, str]] = {}
    for gauge, end, where in (("", "", ""), ("_balanced", ", balanced", ", in the balanced gauge")):
        made |= {
            f"first_lead{gauge}": (
                f"lead of the first key{end}",
                "its logit less the mean of the content keys', nats, mean over queries, heads and layers",
            ),
            f"first_lead_by_length{gauge}": (f"lead by length{end}", f"the part of that which lengths make{where}"),
            f"first_lead_by_angle{gauge}": (f"lead by angle{end}", f"the part which directions make{where}"),
        }
    return made


_LENGTHS: Final = "standard deviation of log key length, median head, position 0 out"
_COSINES: Final = "total variation between attention and a softmax of cosines, median head, position 0 out"
# Name → in a few words, and in a sentence.
QUANTITIES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        **_quantities(),
        "k_log_sd": ("spread of key lengths", _LENGTHS),
        "k_log_sd_balanced": ("spread of key lengths, balanced", f"{_LENGTHS}, in the balanced gauge"),
        "tv": ("distance from cosines", _COSINES),
        "tv_balanced": ("distance from cosines, balanced", f"{_COSINES}, in the balanced gauge"),
        "r2": ("R² on cosines", "R² of logits on cosines, median head"),
        "delta_ce_neutral_norm": (
            "cost of level lengths",
            "loss with every key at its head's usual length, less without (nats a token)",
        ),
        "delta_ce_scalar_gain": (
            "cost of a level gain",
            "loss with the key norm's gain replaced by one number, less without (nats a token)",
        ),
        "auc_contexts": (
            "AUC, contexts alone",
            "the same of a random vector a token, averaged over each word's contexts: what knowing nothing gives",
        ),
        **_purities(),
        "purity_keys_rare": ("purity, rare", "of the rarest third of the words"),
        "purity_keys_frequent": ("purity, frequent", "of the most frequent third of the words"),
        "log max_logit ratio": ("log ratio of largest logits", "of the largest logits of the two arms, natural log"),
        "max_logit": ("largest logit", "of all heads and rows of the held-out text"),
        "n_spikes": ("spikes", "updates whose loss lies far above those before"),
        SHORT_SINK: (
            "attention on the first of 64",
            "on the first position, in windows of 64 tokens that begin as in training: mean over later queries, heads "
            "and layers",
        ),
        f"{SHORT_SINK}_uniform": (
            "uniform attention, of 64",
            "what the first of 64 positions has where rows look everywhere alike",
        ),
        "first_mass": ("attention on the first position", "mean over queries, heads and layers"),
        "first_mass_uniform": ("uniform attention", "what the first position has where rows look everywhere alike"),
        "sink_rate": ("sink rate", "share of windows × heads with over .3 of the attention on the first position"),
        "first_key_ratio": ("length of the first key", "over the usual length of the other keys, median head"),
        **_leads(),
        **_tells(),
        "growth_both": (
            "growth of queries and keys together",
            "mean of the slopes of both, which is the same in every gauge",
        ),
    }
)


def short(name: str) -> str:
    """A quantity in a few words."""
    return QUANTITIES.get(name, (name, ""))[0]


_SIGNED: Final = ("growth", "delta_ce", "log ", "radial_cosine", "first_lead", "class_sink")


def value(row: Mapping[str, Any], column: str) -> str:
    """A number of a contrast as text: what may lie on either side of 0 has a sign."""
    what, name = str(row["what"]), str(row["quantity"])
    signed = " − " in what or "less" in what or name.startswith(_SIGNED)
    return (change if signed else number)(float(row[column]))


def interval(row: Mapping[str, Any]) -> str:
    """An interval in words; – where there is none."""
    if math.isnan(row["low"]):
        return NOTHING
    return f"{value(row, 'low')} to {value(row, 'high')}"


def confidence(level: float) -> str:
    """1 − level as a percentage, with the digits that tell levels apart."""
    return NOTHING if math.isnan(level) else f"{100 * (1 - level):.4g}%"


# ---------------------------------------------------------------------- a claim
def claim_table(evidence: Evidence) -> pd.DataFrame:
    """A row a claim, with CLAIMS as columns."""
    contrasts = contrast_table(evidence)
    rows = []
    for decision, level in zip(evidence.decisions, evidence.levels, strict=True):
        own = contrasts[(contrasts["claim"] == decision.claim) & contrasts["decides"]]
        verdict = evidence.verdict(decision)
        rows.append(
            {
                "claim": decision.claim,
                "title": decision.title,
                "verdict": verdict,
                "level": level,
                "p": decision.p if decision.tested else math.nan,
                "n_seeds": n_seeds(decision),
                "sentence": sentence(decision, rows_of(own), verdict),
            }
        )
    return pd.DataFrame(rows, columns=list(CLAIMS))


def sentence(decision: Decision, rows: Sequence[Mapping[str, Any]], verdict: Verdict) -> str:
    """What a claim comes to, and what was seen of each deciding contrast; or what is missing."""
    if verdict == NOT_TESTED:
        return missing_of(decision)
    settled = verdict in (SUPPORTED, REFUTED)
    seen = "; ".join(_clause(row) if settled else f"{_clause(row)}: {WORDS[row['verdict']]}" for row in rows)
    meant = MEANT[decision.claim].get(verdict, _UNSETTLED)
    return f"{meant[0].upper()}{meant[1:]}. {seen[0].upper()}{seen[1:]}."


def _clause(row: Mapping[str, Any]) -> str:
    behind = f"{confidence(row['level'])}: {interval(row)}, n = {row['n_seeds']}"
    return f"{short(row['quantity'])}, {row['what']}, {value(row, 'estimate')} ({behind})"


def missing_of(decision: Decision) -> str:
    """Why a claim is not tested."""
    if decision.missing:
        return decision.missing
    group, arms = NEEDS[decision.claim]
    needed = f"It takes {LEAST_SEEDS} seeds at least of {listing(arms)} in the group {group}"
    lacking = [one for one in decision.deciding if one.n < LEAST_SEEDS]
    if not lacking:
        return f"{needed}."
    least = min(lacking, key=lambda one: one.n)
    return f"{needed}; {short(least.name)}, {least.what}, has {'one' if least.n else 'none'}."


# ---------------------------------------------------------------------- all claims
def seeds_told(evidence: Evidence) -> list[str]:
    """How many seeds there are, the smallest p that a sign flip of so many can give, and what Holm needs."""
    m = evidence.n_tested
    if not m:
        return ["No claim has two seeds, so nothing is tested."]
    seeds = sorted({n_seeds(one) for one in evidence.decisions if one.tested})
    smallest = listing([f"{number(2.0 ** (1 - n))} with n = {n}" for n in seeds])
    needed = seeds_needed(m)
    told = [
        f"{m} {'claims are' if m > 1 else 'claim is'} tested, and share a level of {LEVEL:.0%} by Holm's procedure. "
        f"The smallest p that the exact flip of the signs of n paired differences can give is 2¹⁻ⁿ: {smallest}. "
        f"The first of {m} claims is asked for p ≤ {number(LEVEL / m)}, which takes {needed} seeds."
    ]
    if max(seeds) < needed:
        alone = f"{seeds_needed(1)} seeds" if max(seeds) < seeds_needed(1) else ""
        told.append(
            "So no sign flip can survive here, whatever the differences are"
            + (f"; one claim alone would take {alone}. " if alone else ". ")
            + "Verdicts rest on Student's t, which takes differences between seeds to be normally distributed; the "
            "sign flip's p is printed beside it."
        )
    else:
        fewer = [one.claim for one in evidence.decisions if one.tested and n_seeds(one) < needed]
        if fewer:
            told.append(f"Sign flips of {listing(fewer)}, which have fewer, can survive behind others alone.")
        told.append("Verdicts rest on Student's t; the sign flip's p is printed beside it.")
    return told


def grouped(claims: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The claims by what can be said of them, in the order of a page; groups without a claim are left out."""
    headed: dict[str, tuple[Verdict, ...]] = {
        "Hold at this size": (SUPPORTED,),
        "Do not hold at this size": (REFUTED,),
        "Cannot be told": (INCONCLUSIVE, NOT_IDENTIFIED),
        "Not tested": (NOT_TESTED,),
    }
    made = {}
    for head, verdicts in headed.items():
        rows = rows_of(claims[claims["verdict"].isin(verdicts)])
        if rows:
            made[head] = rows
    return made


def noise_told(noise: pd.DataFrame) -> str:
    """What two arms that are the same function differ by."""
    known = noise[(noise["n_seeds"] > 0) & noise["quantity"].isin(["loss_1x", "auc_keys", "auc_residual"])]
    if not len(known):
        return "There are no runs of both A2 and A4 yet, so the noise floor is not known."
    parts = [
        f"{short(row['quantity'])} {change(row['mean'])} (sd {number(row['sd'])}, n = {row['n_seeds']})"
        for row in rows_of(known)
    ]
    return (
        "A2 and A4 are the same function, computed in another order, from the same weights and data: what differs "
        f"between them is how rounding grows in training. A4 − A2: {'; '.join(parts)}."
    )
