"""The claims that only trained twins can decide, each with its contrasts and rules."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe.evidence.contrasts import LEVEL, Contrast, Decision, Rule, all_for, any_for, both_all, t_interval
from geomprobe.evidence.records import SHORT_SINK, Records, at_equal_loss
from geomprobe.ledger.endpoint import INCONCLUSIVE, NOT_IDENTIFIED, NOT_TESTED, REFUTED, SUPPORTED, Verdict
from geomprobe.ledger.thresholds import of

Floats = NDArray[np.float64]
PLAIN, NORMED = "A0", "A1"
SHORT, LONG, STABILITY = "nano", "long", "stability"  # the groups of the plan
_SINCE: Final = (
    "Windows of 64 positions, and that a sink must be more than the margin, were chosen when seed 0 had been seen; the "
    "rule itself was not."
)
NO_BOS: Final = "nobos"  # the group whose trainings are as long, and whose sequences begin without a BOS
VERSUS = f"{NORMED} − {PLAIN}"
_NEAR_CHANCE: Final = 0.35  # place of a parent among all, from which the words have hardly been learned
_LEAD: Final = ("first_lead", "first_lead_by_length", "first_lead_by_angle")
# The group and the arms without which a claim is not tested.
NEEDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "C1t": (SHORT, (PLAIN,)),
        "C3": (SHORT, (NORMED,)),
        "C4": (SHORT, (PLAIN, NORMED)),
        "C5": (SHORT, (PLAIN, NORMED)),
        "C6q": (SHORT, (NORMED, "A3")),
        "C7b": (STABILITY, (PLAIN, NORMED)),
        "C8": (SHORT, (NORMED, "A6", "A7")),
        "H9": (LONG, (PLAIN, NORMED)),
    }
)


@dataclass(frozen=True, eq=False)
class InGauges(Decision):
    """A claim about lengths and angles, decided in each gauge by itself.

    Not identified where one gauge speaks for it and another against it; where one says neither, neither is said.

    Attributes
    ----------
    gauges : tuple of tuple of Contrast
        The deciding contrasts of each gauge; what does not depend on it is in all of them.
    """

    gauges: tuple[tuple[Contrast, ...], ...] = ()

    @property
    def p(self) -> float:
        """Both gauges must say so, and the same."""
        if not self.tested:
            return 1.0
        sides = [Decision(self.claim, self.title, own, self.agree).sides for own in self.gauges]
        return min(max(side) for side in zip(*sides, strict=True))

    def level_of(self, level: float) -> float:
        """The part of the level at which each contrast is asked: as many share it as a gauge has."""
        return level / max(len(own) for own in self.gauges)

    def verdict(self, level: float) -> Verdict:
        """What both gauges say at a level."""
        if not self.tested:
            return NOT_TESTED
        asked = self.level_of(level)
        said = {self.agree([one.speaks(asked) for one in own]) for own in self.gauges}
        if {SUPPORTED, REFUTED} <= said:
            return NOT_IDENTIFIED
        return said.pop() if len(said) == 1 else INCONCLUSIVE


def decide(records: Records) -> list[Decision]:
    """Every claim on twins, whether its runs are there or not."""
    return [
        _inflation(records),
        _constant_lengths(records),
        _tighter(records),
        _rare(records),
        _after_rope(records),
        _stability(records),
        _temperature(records),
        _sinks(records),
    ]


def _own(records: Records, arm: str, name: str, rule: Rule | None = None) -> Contrast:
    """A number of an arm itself, over the seeds of the short trainings."""
    return Contrast(name, arm, records.one(SHORT, arm, name).to_numpy(float), rule)


def _inflation(records: Records) -> Decision:
    grows = Rule("supported: interval above 0; refuted: below 0", above=0, below=0)
    radial = Rule(
        f"supported: interval above 0 (more than a random step has); refuted: within ±{of('C1t', 'radial')} (TOST)",
        above=0,
        none_within=of("C1t", "radial"),
    )
    contrasts = [_own(records, PLAIN, f"growth_scored_{vector}", grows) for vector in "kq"]
    contrasts += [
        Contrast(name, f"{PLAIN}, less 1", records.one(SHORT, PLAIN, name).to_numpy(float) - 1, radial)
        for name in ("radial_over_random_k", "radial_over_random_q")
    ]
    keys, queries = (records.one(SHORT, PLAIN, f"growth_scored_{vector}") for vector in "kq")
    contrasts.append(Contrast("growth_both", PLAIN, ((keys + queries) / 2).dropna().to_numpy(float)))
    for vector in "kq":
        for name in (f"growth_projected_{vector}", f"growth_scored_{vector}", f"turn_{vector}"):
            contrasts.append(Contrast(name, VERSUS, records.paired(SHORT, NORMED, PLAIN, name)))
        contrasts.append(_own(records, PLAIN, f"radial_cosine_{vector}"))
    return Decision(
        "C1t",
        "The optimiser inflates lengths during training",
        tuple(contrasts),
        all_for,
        note=(
            "Growth: slope of mean log length from a quarter of the steps on, per whole training. That of keys or of "
            "queries alone is of the raw gauge; what they grow together no gauge changes, as it gives to keys what it "
            "takes from queries."
        ),
    )


def _constant_lengths(records: Records) -> Decision:
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
    costs = [_own(records, NORMED, f"delta_ce_{edit}", cost) for edit in ("neutral_norm", "scalar_gain")]
    raw, balanced = (
        [_own(records, NORMED, f"{name}{end}", rule) for name, rule in (("k_log_sd", spread), ("tv", distance))]
        for end in ("", "_balanced")
    )
    gauges = _gauges(raw, balanced, costs)
    shown = [
        _own(records, arm, name)
        for arm in (PLAIN, "A2", "A3", "A5", "A6", "A7")
        for name in ("k_log_sd", "tv", "delta_ce_neutral_norm", "r2")
    ]
    shown.insert(0, _own(records, NORMED, "r2"))
    return InGauges(
        "C3",
        "With QK Norm lengths are constant and Q·K ≈ cos θ",
        (*_deciding(gauges), *shown),
        all_for,
        note=_about_gauges(gauges),
        gauges=gauges,
    )


def _gauges(
    raw: Sequence[Contrast], balanced: Sequence[Contrast], both: Sequence[Contrast] = ()
) -> tuple[tuple[Contrast, ...], ...]:
    """The contrasts that decide in each gauge: in the balanced one those that all seeds of the raw one have, if any.

    Gauges are not held against each other on different seeds: records of an older version have one gauge.
    """
    measured = [one for one, own in zip(balanced, raw, strict=True) if one.n and one.n == own.n]
    return ((*raw, *both), (*measured, *both)) if measured else ((*raw, *both),)


def _deciding(gauges: Sequence[tuple[Contrast, ...]]) -> tuple[Contrast, ...]:
    """Those of all gauges, each once."""
    return tuple(dict.fromkeys(one for own in gauges for one in own))


def _about_gauges(gauges: Sequence[tuple[Contrast, ...]]) -> str:
    """What the balanced gauge lacks of what the raw one has."""
    raw = gauges[0]
    if not any(one.n for one in raw):
        return ""
    if len(gauges) == 1:
        return "Keys were measured in the raw gauge alone."
    lacks = len(gauges[1]) < len(raw)
    return "In the balanced gauge not all was measured: there the rest of the contrasts decides." if lacks else ""


def _tighter(records: Records) -> Decision:
    least = of("C4", "auc")
    rule = Rule(
        f"supported: ≥ {least} and interval above 0; refuted: within ±{least} (TOST) or below 0",
        above=0,
        least=least,
        below=0,
        none_within=least,
    )
    made = {}
    for space in ("keys", "keys_balanced", "residual"):
        read = at_equal_loss(records, SHORT, (PLAIN, NORMED), f"auc_{space}")
        difference = (read[NORMED] - read[PLAIN]).to_numpy()
        made[space] = Contrast(f"auc_{space}", f"{VERSUS}, equal loss", difference, rule)
    gauges = _gauges([made["keys"]], [made["keys_balanced"]], [made["residual"]])
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
        (*_deciding(gauges), *others),
        all_for,
        note=f"Cleaner (AUC) decides; tighter (κ) is shown. Keys before RoPE. {_about_gauges(gauges)}".strip(),
        gauges=gauges,
    )


def _rare(records: Records) -> Decision:
    least = of("C5", "purity")
    share = Rule(
        f"supported: ≥ {least} and interval above 0; refuted: within ±{least} (TOST) or below 0",
        above=0,
        least=least,
        below=0,
        none_within=least,
    )
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

    gauges = _gauges(asked("keys"), asked("keys_balanced"))
    contrasts = [*_deciding(gauges)]
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
        note=f"{few} {_about_gauges(gauges)}".strip(),
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


def _after_rope(records: Records) -> Decision:
    near, far = of("C6q", "loss"), of("C6q", "loss_4x")
    contrasts = [
        Contrast(
            f"loss_{factor}x",
            f"A3 − {NORMED}",
            records.paired(SHORT, "A3", NORMED, f"loss_{factor}x"),
            Rule(f"supported: interval above {bound} nats; refuted: below it", above=bound, below=bound),
        )
        for factor, bound in ((1, near), (2, near), (4, far))
    ]
    contrasts += [
        Contrast(f"loss_{factor}x", "A4 − A2, the same function", records.paired(SHORT, "A4", "A2", f"loss_{factor}x"))
        for factor in (1, 2, 4)
    ]
    return Decision("C6q", "A norm behind RoPE costs quality", tuple(contrasts), any_for)


def _stability(records: Records) -> Decision:
    title = "QK Norm stabilises training"
    rates = records.rates(STABILITY)
    if len(rates) < 2:
        there = f"there {'is one' if rates else 'is none'}"
        missing = f"It takes two learning rates at least in the group {STABILITY}; {there}."
        return Decision("C7b", title, (), missing=missing)
    low, high = rates[0], rates[-1]

    def interaction(number: str) -> Floats:
        """The slope of the arms' difference over log rate, from all rates, times the range: (seed,)."""
        gaps = pd.concat(
            [
                records.one(STABILITY, PLAIN, number, rate) - records.one(STABILITY, NORMED, number, rate)
                for rate in rates
            ],
            axis=1,
        ).dropna()
        along = np.log(rates) - np.log(rates).mean()  # (rate,)
        slope = gaps.to_numpy(float) @ along / (along**2).sum()
        return slope * math.log(high / low)

    ratio = records.one(STABILITY, PLAIN, "max_logit", high) / records.one(STABILITY, NORMED, "max_logit", high)
    margin = of("C7b", "loss")
    contrasts = (
        Contrast(
            "loss_1x",
            f"{PLAIN} − {NORMED}, change from rate {low:g} to {high:g}",
            interaction("loss_1x"),
            Rule(f"supported: interval above 0; refuted: within ±{margin} nats (TOST)", above=0, none_within=margin),
        ),
        Contrast(
            "log max_logit ratio",
            f"{PLAIN} over {NORMED} at {high:g}",
            np.log(ratio.dropna().to_numpy(float)),
            Rule(
                f"supported: {of('C7b', 'logit_ratio'):g} times or more, and interval above 0 (of the log)",
                above=0,
                least=math.log(of("C7b", "logit_ratio")),
            ),
        ),
        Contrast("n_spikes", f"{PLAIN} − {NORMED}, change from rate {low:g} to {high:g}", interaction("n_spikes")),
    )
    note = f"The change is that of a line through {len(rates)} rates, over log rate."
    return Decision("C7b", title, contrasts, all_for, missing=_diverged(records, rates), note=note)


def _diverged(records: Records, rates: Sequence[float]) -> str:
    """Which trainings have no loss to be compared; those that are left are the tamer ones, and would say too little."""
    said = []
    for rate in rates:
        for arm in (PLAIN, NORMED):
            known = records.one(STABILITY, arm, "diverged", rate)
            if known.any():
                said.append(f"{int(known.sum())} of {len(known)} of {arm} at {rate:g}")
    return f"Trainings diverged and have no loss to be compared: {', '.join(said)}." if said else ""


def _temperature(records: Records) -> Decision:
    margin = of("C8", "loss")
    same = Rule(f"supported: within ±{margin} nats (TOST); no rule refutes it", within=margin)
    contrasts = [
        Contrast("loss_1x", f"{arm} − {NORMED}", records.paired(SHORT, arm, NORMED, "loss_1x"), same)
        for arm in ("A6", "A7")
    ]
    helpless = records.paired(SHORT, "A8", NORMED, "loss_1x")
    for arm in ("A8", "A2", "A5"):
        contrasts.append(Contrast("loss_1x", f"{arm} − {NORMED}", records.paired(SHORT, arm, NORMED, "loss_1x")))
    contrasts.append(Contrast("loss_1x", f"A9 − {PLAIN}", records.paired(SHORT, "A9", PLAIN, "loss_1x")))
    return Decision(
        "C8",
        "1/√d can be replaced by a learned temperature, or dropped",
        tuple(contrasts),
        both_all,
        note=_about_helpless(helpless),
    )


def _about_helpless(gap: Floats) -> str:
    """Whether the arm that must fail does so."""
    least = of("C8", "helpless")
    expected = f"A8, whose logits cannot leave ±1, is expected more than {least:g} nats above {NORMED}"
    low, _ = t_interval(gap, LEVEL)
    if math.isnan(low):
        return f"{expected}."
    return f"{expected}: it {'is' if low > least else 'is not'} (lower bound {low:.3f})."


def _tokens(records: Records, group: str) -> str:
    """How many tokens the trainings of a group saw, where all saw as many: ", 12 M tokens"."""
    seen = set(records.table.loc[records.table["group"] == group, "tokens"])
    return f", {seen.pop() / 1e6:.3g} M tokens" if len(seen) == 1 else ""


def _sinks(records: Records) -> Decision:
    title = "QK Norm removes attention sinks"
    plain, uniform = records.one(LONG, PLAIN, SHORT_SINK), records.one(LONG, PLAIN, f"{SHORT_SINK}_uniform")
    margin, after = of("H9", "first_mass"), _tokens(records, LONG)
    rule = Rule(
        f"supported: interval below −{margin}; refuted: within ±{margin} (TOST) or above 0",
        above=-margin,
        below=0,
        none_within=margin,
        turned=True,
    )
    contrasts = [
        Contrast(SHORT_SINK, f"{VERSUS}{after}", records.paired(LONG, NORMED, PLAIN, SHORT_SINK), rule),
        Contrast(SHORT_SINK, f"{PLAIN}{after}", plain.to_numpy(float)),
        Contrast(SHORT_SINK, f"{NORMED}{after}", records.one(LONG, NORMED, SHORT_SINK).to_numpy(float)),
        Contrast(f"{SHORT_SINK}_uniform", "what uniform attention gives", uniform.to_numpy(float)),
        Contrast("sink_rate", f"{VERSUS}{after}", records.paired(LONG, NORMED, PLAIN, "sink_rate")),
        Contrast("first_mass", f"{VERSUS}{after}", records.paired(LONG, NORMED, PLAIN, "first_mass")),
    ]
    contrasts += [
        Contrast(name, f"{arm}{after}", records.one(LONG, arm, name).to_numpy(float))
        for arm in (PLAIN, NORMED)
        for name in ("first_key_ratio", *_LEAD, *(f"{part}_balanced" for part in _LEAD[1:]))
    ]
    missing = _no_sink(plain, uniform, margin)
    return Decision(
        "H9", title, tuple(contrasts), all_for, missing=missing, note=f"{_about_bos(records)} {_SINCE}".strip()
    )


def _no_sink(plain: pd.Series, uniform: pd.Series, margin: float) -> str:
    """Why there is nothing that a norm could remove."""
    if plain.empty:
        return ""
    has, even, entry = float(plain.mean()), float(uniform.mean()), of("H9", "entry")
    if has < entry * even:
        return (
            f"{PLAIN} gives the first position {has:.3f} of its attention, less than {entry:g} times the {even:.3f} of "
            "uniform attention: there is no sink to be removed."
        )
    if has - even <= margin:  # the rule that refutes would hold whatever became of it
        return (
            f"{PLAIN} gives the first position {has - even:.3f} more than uniform attention does, which is within the "
            f"margin of {margin:g}: a sink that is removed could not be told from one that stays."
        )
    return ""


def _about_bos(records: Records) -> str:
    """What the first position is in these trainings, and what it gets where sequences begin with any token."""
    recipes = [records.whole[name]["recipe"] for name in records.rows(LONG, PLAIN)["name"]]
    said = "Each sequence begins with a BOS here." if recipes and all(one.get("bos") for one in recipes) else ""
    other = {arm: records.one(NO_BOS, arm, SHORT_SINK) for arm in (PLAIN, NORMED)}
    if any(other[arm].empty for arm in other):
        return said
    uniform = records.one(NO_BOS, PLAIN, f"{SHORT_SINK}_uniform").mean()
    n = min(len(values) for values in other.values())
    without = (
        f"Where sequences begin without a BOS (group {NO_BOS}, n = {n}) the first position gets "
        f"{other[PLAIN].mean():.3f} of the attention in {PLAIN} and {other[NORMED].mean():.3f} in {NORMED}; uniform "
        f"attention gives {uniform:.3f}."
    )
    return f"{said} {without}".strip()
