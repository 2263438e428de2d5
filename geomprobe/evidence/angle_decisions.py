"""What norms do to angles: constant lengths (C3), tighter clusters (C4), rare words (C5)."""

import math
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe.evidence.contrasts import Contrast, Decision, Rule, all_for
from geomprobe.evidence.gauges import InGauges, about_gauges, deciding, in_gauges
from geomprobe.evidence.records import Records, at_equal_loss
from geomprobe.evidence.twins import NORMED, PLAIN, SHORT, VERSUS, own
from geomprobe.ledger.thresholds import of

Floats = NDArray[np.float64]
_NEAR_CHANCE: Final = 0.35  # place of a parent among all, from which the words have hardly been learned


def constant_lengths(records: Records) -> Decision:
    """C3: spread of key lengths, distance of attention from that of cosines, cost of neutral lengths, with a norm."""
    spread = Rule(
        f"supported: below {of('C3', 'log_sd')}; refuted: above {of('C3', 'not_log_sd')}",
        above=of("C3", "log_sd"),
        below=of("C3", "not_log_sd"),
        turned=True,
    )
    distance = Rule(
        f"supported: below {of('C3', 'tv')}; refuted: above {of('C3', 'not_tv')}",
        above=of("C3", "tv"),
        below=of("C3", "not_tv"),
        turned=True,
    )
    cost = Rule(f"supported: within ±{of('C3', 'delta_ce')} nats (TOST)", within=of("C3", "delta_ce"))
    costs = [own(records, NORMED, f"delta_ce_{edit}", cost) for edit in ("neutral_norm", "scalar_gain")]
    raw, balanced = (
        [own(records, NORMED, f"{name}{end}", rule) for name, rule in (("k_log_sd", spread), ("tv", distance))]
        for end in ("", "_balanced")
    )
    gauges = in_gauges(raw, balanced, costs)
    shown = [
        own(records, arm, name)
        for arm in (PLAIN, "A2", "A3", "A5", "A6", "A7")
        for name in ("k_log_sd", "tv", "delta_ce_neutral_norm", "r2")
    ]
    shown.insert(0, own(records, NORMED, "r2"))
    return InGauges(
        "C3",
        "With QK Norm lengths are constant and Q·K ≈ cos θ",
        (*deciding(gauges), *shown),
        all_for,
        note=about_gauges(gauges),
        gauges=gauges,
    )


def _gain_of(least: float) -> Rule:
    """A gain that is worth the name, or none."""
    return Rule(
        f"supported: ≥ {least} and interval above 0; refuted: within ±{least} (TOST) or below 0",
        above=0,
        least=least,
        below=0,
        none_within=least,
    )


def tighter(records: Records) -> Decision:
    """C4: how well keys and the residual stream tell categories apart, with a norm and without, at equal loss."""
    rule = _gain_of(of("C4", "auc"))
    made = {}
    for space in ("keys", "keys_balanced", "residual"):
        read = at_equal_loss(records, SHORT, (PLAIN, NORMED), f"auc_{space}")
        difference = (read[NORMED] - read[PLAIN]).to_numpy()
        made[space] = Contrast(f"auc_{space}", f"{VERSUS}, equal loss", difference, rule)
    gauges = in_gauges([made["keys"]], [made["keys_balanced"]], [made["residual"]])
    spaces = ("keys", "keys_balanced", "residual")
    shown = [f"auc_{space}" for space in (*spaces, "queries", "embedding")]
    shown += [f"{measure}_{space}" for measure in ("silhouette", "kappa") for space in spaces]
    others = []
    for name in (name for name in shown if not name.startswith("auc")):
        read = at_equal_loss(records, SHORT, (PLAIN, NORMED), name)
        others.append(Contrast(name, f"{VERSUS}, equal loss", (read[NORMED] - read[PLAIN]).to_numpy()))
    others += [Contrast(name, f"{VERSUS}, equal steps", records.paired(SHORT, NORMED, PLAIN, name)) for name in shown]
    others += [Contrast("auc_contexts", PLAIN, records.one(SHORT, PLAIN, "auc_contexts").to_numpy())]
    return InGauges(
        "C4",
        "Semantic clusters are tighter with QK Norm",
        (*deciding(gauges), *others),
        all_for,
        note=f"Cleaner (AUC) decides; tighter (κ) is shown. Keys before RoPE. {about_gauges(gauges)}".strip(),
        gauges=gauges,
    )


def rare(records: Records) -> Decision:
    """C5: whether rare words gain more than frequent ones, and whether a renamed word finds its parent."""
    share = _gain_of(of("C5", "purity"))
    positive = Rule("supported: interval above 0; refuted: below 0", above=0, below=0)
    nearer = Rule(
        "supported: interval below 0 (the parent lies nearer); refuted: above 0", above=0, below=0, turned=True
    )

    def asked(space: str) -> list[Contrast]:
        gaps = {scale: _rare_minus_frequent(records, space, scale) for scale in ("share", "logit")}
        place = f"parent_place_{space}_rare"
        return [
            Contrast(f"purity_{space}, rare − frequent", VERSUS, gaps["share"], share),
            Contrast(f"logit purity_{space}, rare − frequent", VERSUS, gaps["logit"], positive),
            Contrast(place, VERSUS, records.paired(SHORT, NORMED, PLAIN, place), nearer),
        ]

    gauges = in_gauges(asked("keys"), asked("keys_balanced"))
    contrasts = [*deciding(gauges)]
    for name in ("parent_place_keys_half", "parent_place_residual_rare", "parent_place_embedding_rare"):
        contrasts.append(Contrast(name, VERSUS, records.paired(SHORT, NORMED, PLAIN, name)))
    for name in ("parent_place_keys_rare", "purity_keys_rare", "purity_keys_frequent"):
        for arm in (PLAIN, NORMED):
            contrasts.append(Contrast(name, arm, records.one(SHORT, arm, name).to_numpy()))
    few = f"{_vocabulary(records)} has few rare words: the pseudo-rare ones, whose parent is known, carry this row."
    few += _near_chance(records)
    return InGauges(
        "C5",
        "Rare tokens get better neighbourhoods with QK Norm",
        tuple(contrasts),
        all_for,
        note=f"{few} {about_gauges(gauges)}".strip(),
        gauges=gauges,
    )


def _near_chance(records: Records) -> str:
    """Whether parents of pseudo-rare words stand where chance would put them: then the row can tell nothing."""
    places = [records.one(SHORT, arm, "parent_place_keys_rare").mean() for arm in (PLAIN, NORMED)]
    if not all(place > _NEAR_CHANCE for place in places):
        return ""
    told = " and ".join(f"{place:.2f}" for place in places)
    return f" Their parents stand at {told} of all (chance: .5): these trainings teach them too little to tell."


def _vocabulary(records: Records) -> str:
    sizes = {records.whole[name]["recipe"]["size"]["vocab_size"] for name in records.rows(SHORT, NORMED)["name"]}
    return f"A vocabulary of {sizes.pop():,}" if len(sizes) == 1 else "A small vocabulary"


def _rare_minus_frequent(records: Records, space: str, scale: str) -> Floats:
    def gap(arm: str) -> pd.Series:
        rare, frequent = (records.one(SHORT, arm, f"purity_{space}_{group}") for group in ("rare", "frequent"))
        return _logit(rare) - _logit(frequent) if scale == "logit" else rare - frequent

    difference = (gap(NORMED) - gap(PLAIN)).dropna()
    return difference.to_numpy(float)


def _logit(share: pd.Series) -> pd.Series:
    """Of shares; 0 and 1 have none."""
    inside = share[(share > 0) & (share < 1)]
    return (inside / (1 - inside)).map(math.log)
