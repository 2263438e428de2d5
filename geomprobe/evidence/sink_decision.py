"""Whether a norm removes attention sinks (H9), in trainings long enough to have them."""

from typing import Final

import pandas as pd

from geomprobe.evidence.contrasts import Contrast, Decision, Rule, all_for
from geomprobe.evidence.records import SHORT_SINK, Records
from geomprobe.evidence.twins import LONG, NO_BOS, NORMED, PLAIN, VERSUS
from geomprobe.ledger.thresholds import of

_LEAD: Final = ("first_lead", "first_lead_by_length", "first_lead_by_angle")
_SINCE: Final = (
    "Windows of 64 positions, and that a sink must be more than the margin, were chosen when seed 0 had been seen; the "
    "rule itself was not."
)


def sinks(records: Records) -> Decision:
    """H9: attention on the first of 64 positions, with a norm and without."""
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
    told = (_what_they_have(records), _about_bos(records), _SINCE)
    return Decision(
        "H9",
        title,
        tuple(contrasts),
        all_for,
        missing=_no_sink(plain, uniform, margin),
        note=" ".join(one for one in told if one),
    )


def _what_they_have(records: Records) -> str:
    """How large the sinks of both arms are, over the seeds that both have: a difference alone does not tell."""
    has = pd.concat([records.one(LONG, arm, SHORT_SINK) for arm in (PLAIN, NORMED)], axis=1).dropna()
    uniform = records.one(LONG, PLAIN, f"{SHORT_SINK}_uniform")
    if has.empty or uniform.empty:
        return ""
    plain, normed = (float(mean) for mean in has.mean())
    even = float(uniform.mean())
    return (
        f"Of the attention of 64 positions the first gets {plain:.3f} in {PLAIN} and {normed:.3f} in {NORMED}, which "
        f"is {plain / even:.1f} and {normed / even:.1f} times what uniform attention gives it ({even:.3f})."
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


def _tokens(records: Records, group: str) -> str:
    """How many tokens the trainings of a group saw, where all saw as many: ", 12 M tokens"."""
    seen = set(records.table.loc[records.table["group"] == group, "tokens"])
    return f", {seen.pop() / 1e6:.3g} M tokens" if len(seen) == 1 else ""
