"""The evidence of twins as tables: contrasts, numbers, losses, the noise floor, sinks, what was trained."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from geomprobe.evidence.contrasts import LEVEL, Contrast, Decision, holm, sign_flip_p, t_interval
from geomprobe.evidence.decisions import decide
from geomprobe.evidence.record import uniform_first
from geomprobe.evidence.records import Records
from geomprobe.evidence.twins import LONG, NORMED, PLAIN, SHORT
from geomprobe.labels import FROM_ROW
from geomprobe.ledger.endpoint import NOT_TESTED, Verdict
from geomprobe.ledger.thresholds import of

BACKCOPY, MICRO = "backcopy", "micro"  # groups that decide nothing
FACTORS: Final = (1, 2, 4)  # of the training length
OTHER_TEXT: Final = "loss_other_text"
LOSSES: Final = {**{f"loss_{factor}x": f"{factor}×" for factor in FACTORS}, OTHER_TEXT: "other text"}  # and in words
CONTRASTS: Final = (
    *("claim", "quantity", "what", "n_seeds", "estimate", "low", "high", "level", "p_sign_flip", "p_smallest"),
    *("decides", "verdict", "rule"),
)
TWICE: Final = ("A4", "A2")  # the same function, trained twice: what differs between them is noise
OF_NOISE: Final = (
    *(f"loss_{factor}x" for factor in FACTORS),
    *("auc_keys", "auc_keys_balanced", "auc_residual", "first_mass", "parent_place_keys_rare"),
)
OF_IDLE: Final = (
    *("idle_first", "idle_uniform", "trigger_first", "trigger_before", "key_ratio", "value_ratio"),
    *("cos_first", "cos_others", "gap_by_length", "gap_by_angle"),
)
OF_LARGER: Final = (
    *("loss_1x", "auc_keys", "auc_keys_balanced", "auc_residual", "k_log_sd", "k_log_sd_balanced", "tv"),
    *("tv_balanced", "norm_share", "norm_share_balanced", "growth_scored_k", "growth_scored_q", "max_logit"),
    *("first_mass", "first_mass_uniform", "sink_rate", "first_lead", "first_lead_by_length", "first_lead_by_angle"),
)
_COPIES: Final = 0.6  # of a trigger row's attention on the token before it: such a run has learned to copy
_ALONE: Final = 1e-9  # below it a spread is what rounding leaves


@dataclass(frozen=True, eq=False)
class Evidence:
    """Records, and what they say of the claims.

    Attributes
    ----------
    records : Records
    decisions : tuple of Decision
    levels : tuple of float
        Of each, by Holm's procedure over those that are tested; NaN for the others.
    """

    records: Records
    decisions: tuple[Decision, ...]
    levels: tuple[float, ...]

    @property
    def n_tested(self) -> int:
        """How many claims share the level: m."""
        return sum(one.tested for one in self.decisions)

    def verdict(self, decision: Decision) -> Verdict:
        """Of a claim, at its level."""
        return decision.verdict(self.levels[self.decisions.index(decision)]) if decision.tested else NOT_TESTED


def weigh(records: Records) -> Evidence:
    """Decide every claim, all of them together by Holm's procedure."""
    decisions = tuple(decide(records))
    return Evidence(records, decisions, tuple(holm(decisions)))


def n_seeds(decision: Decision) -> int:
    """Behind a claim: those of the deciding contrast that has the fewest."""
    return min((one.n for one in decision.deciding), default=0)


# ---------------------------------------------------------------------- claims
def contrast_table(evidence: Evidence) -> pd.DataFrame:
    """A row a contrast, with CONTRASTS as columns.

    `low` and `high` err by `level`: for what decides, its part of its claim's level, and twice that where the rule is
    one of equivalence alone (TOST); 5 % for each by itself of the others.
    """
    rows = []
    for decision, level in zip(evidence.decisions, evidence.levels, strict=True):
        asked = decision.level_of(level) if decision.tested else LEVEL
        rows += [_contrast_row(decision, one, asked) for one in decision.contrasts]
    return pd.DataFrame(rows, columns=list(CONTRASTS))


def _contrast_row(decision: Decision, contrast: Contrast, asked: float) -> dict[str, Any]:
    rule, verdict, level = contrast.rule, "", LEVEL
    if rule is not None:
        verdict = contrast.speaks(asked) if decision.tested else NOT_TESTED
        level = asked if math.isnan(rule.within) else 2 * asked
    low, high = t_interval(contrast.values, level)
    paired = " − " in contrast.what or " over " in contrast.what
    p, smallest = sign_flip_p(contrast.values) if paired else (math.nan, math.nan)
    return {
        "claim": decision.claim,
        "quantity": contrast.name,
        "what": contrast.what,
        "n_seeds": contrast.n,
        "estimate": contrast.estimate,
        "low": low,
        "high": high,
        "level": level,
        "p_sign_flip": p,
        "p_smallest": smallest,
        "decides": rule is not None,
        "verdict": verdict,
        "rule": "" if rule is None else rule.text,
    }


def number_table(records: Records) -> pd.DataFrame:
    """A row a run, in the order of their names: what it is, then every number."""
    return records.table.sort_values("name", kind="stable", ignore_index=True)


# ---------------------------------------------------------------------- arms beside each other
def loss_table(records: Records) -> pd.DataFrame:
    """Held-out losses in nats: a row a group, rate and arm.

    Columns: group, rate, arm, n_seeds (that have a loss), n_diverged, and for 1, 2 and 4 times the training length the
    mean over seeds and its sd (`loss_1x`, `loss_1x_sd`), and the mean difference to the plain arm of the same seeds
    (`loss_1x_gap`); the same of another text, at the training length.
    """
    rows = []
    for key, own in records.table.groupby(["group", "rate", "arm"], sort=True):
        group, rate, arm = str(key[0]), float(str(key[1])), str(key[2])
        n = records.one(group, arm, "loss_1x", rate).count()
        diverged = int(own["diverged"].sum()) if "diverged" in own else 0
        row: dict[str, Any] = {"group": group, "rate": rate, "arm": arm, "n_seeds": int(n), "n_diverged": diverged}
        for name in LOSSES:
            values = records.one(group, arm, name, rate).to_numpy(float)
            gap = records.paired(group, arm, PLAIN, name, rate)
            row |= {name: mean(values), f"{name}_sd": spread(values)}
            row[f"{name}_gap"] = mean(gap) if arm != PLAIN else math.nan
        rows.append(row)
    return pd.DataFrame(rows)


def noise_table(records: Records) -> pd.DataFrame:
    """What differs between two arms that are the same function: quantity, n_seeds, mean, sd, largest."""
    rows = []
    for name in OF_NOISE:
        gap = records.paired(SHORT, *TWICE, name)
        largest = float(np.abs(gap).max()) if len(gap) else math.nan
        rows.append({"quantity": name, "n_seeds": len(gap), "mean": mean(gap), "sd": spread(gap), "largest": largest})
    return pd.DataFrame(rows)


def idle_table(records: Records) -> pd.DataFrame:
    """The sinks of Backcopy: a row a group (layers of the model), arm and layer.

    Columns: group, arm, layer, n_seeds, mean over seeds of each of OF_IDLE and its sd (`idle_first_sd`), n_copying: the
    seeds that learned the task, whose trigger rows look at the token before them more than at all others together.
    """
    rows = []
    for group in sorted({group for group in records.table["group"] if str(group).startswith(BACKCOPY)}):
        for arm in arms_of(records, group):
            n_layers = max(records.whole[name]["recipe"]["size"]["layers"] for name in records.rows(group, arm)["name"])
            copying = np.max([idle(records, arm, group, at)["trigger_before"] for at in range(n_layers)], axis=0)
            for layer in range(n_layers):
                values = idle(records, arm, group, layer)
                row: dict[str, Any] = {"group": group, "arm": arm, "layer": layer, "n_seeds": len(values)}
                row["n_copying"] = int((copying > _COPIES).sum())
                for name in OF_IDLE:
                    known = values[name].dropna().to_numpy(float)
                    row |= {name: mean(known), f"{name}_sd": spread(known)}
                rows.append(row)
    return pd.DataFrame(rows)


def idle(records: Records, arm: str, group: str = BACKCOPY, layer: int = 0) -> pd.DataFrame:
    """The sinks of an arm's Backcopy runs in a layer: a row a seed, with OF_IDLE as columns."""
    rows = records.rows(group, arm)

    def column(name: str) -> pd.Series:
        full = f"{name}_layer{layer}"
        return rows[full].astype(float) if full in rows else pd.Series(math.nan, index=rows.index)

    made = {name: column(name) for name in OF_IDLE if not name.endswith("_ratio")}
    made |= {f"{what}_ratio": column(f"{what}_first") / column(f"{what}_others") for what in ("key", "value")}
    return pd.DataFrame(made)[list(OF_IDLE)]


def sink_table(records: Records) -> pd.DataFrame:
    """Where and when sinks appear: a row a group, rate and arm.

    A run has a sink where at its end the first position gets at least `H9.entry` times what uniform attention gives,
    on held-out sequences of the training length (of Backcopy, over all rows); it appears at the first measured step
    from which on that is so.

    Columns: group, rate, arm, n_runs, n_sinks, first_mass (mean over runs), uniform, first_step, last_step (of the runs
    with a sink: the earliest and the latest), n_steps.
    """
    rows = []
    for key, own in records.table.groupby(["group", "rate", "arm"], sort=True):
        whole = [records.whole[str(name)] for name in own["name"]]
        length = int(whole[0]["recipe"]["length"])
        uniform = uniform_first(length, FROM_ROW)
        known = [curve for one in whole if (curve := _first_masses(one))]
        if not known:
            continue
        begun = [step for curve in known if (step := _from_then_on(curve, of("H9", "entry") * uniform)) is not None]
        rows.append(
            {
                "group": str(key[0]),
                "rate": float(str(key[1])),
                "arm": str(key[2]),
                "n_runs": len(known),
                "n_sinks": len(begun),
                "first_mass": mean(np.array([curve[-1][1] for curve in known])),
                "uniform": uniform,
                "first_step": min(begun, default=math.nan),
                "last_step": max(begun, default=math.nan),
                "n_steps": max(int(one["step"]) for one in whole),
            }
        )
    return pd.DataFrame(rows)


def _first_masses(record: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Attention on the first position by measured step; nothing of a run that diverged."""
    if record["numbers"].get("diverged"):
        return []
    curve = [(int(row["step"]), row.get("first_mass")) for row in record["curves"]]
    return [(step, float(value)) for step, value in curve if value is not None]


def _from_then_on(curve: Sequence[tuple[int, float]], least: float) -> int | None:
    """The first step from which on all values reach `least`; None where the last does not."""
    begun = None
    for step, value in reversed(curve):
        if value < least:
            break
        begun = step
    return begun


def temperature_table(records: Records) -> pd.DataFrame:
    """The best temperature of each arm of the short trainings: mean over seeds and sd.

    Columns: arm, n_seeds, and for 1, 2 and 4 times the training length `best_beta_1x` (geometric mean),
    `best_beta_1x_sd` (of its log), `beta_gain_1x`.
    """
    rows = []
    for arm in arms_of(records, SHORT):
        values = {
            name: records.one(SHORT, arm, name).to_numpy(float)
            for factor in FACTORS
            for name in (f"best_beta_{factor}x", f"beta_gain_{factor}x")
        }
        if all(len(one) for one in values.values()):
            row: dict[str, Any] = {"arm": arm, "n_seeds": min(len(one) for one in values.values())}
            for name, one in values.items():
                beta = name.startswith("best_beta")
                row |= {name: math.exp(mean(np.log(one))) if beta else mean(one)}
                row |= {f"{name}_sd": spread(np.log(one)) if beta else spread(one)}
            rows.append(row)
    return pd.DataFrame(rows)


# Of the claims C1 and C2, which `geomprobe claims` decides on any checkpoint: what twins have of them.
OF_LENGTH: Final = (
    *("norm_share", "norm_share_balanced", "norm_attention_rho", "norm_attention_rho_balanced", "edit_ratio"),
    *("norm_lift_function", "class_sink_function", "class_sink_function_by_length"),
    *("class_sink_function_by_length_balanced", "first_lead", "first_lead_by_length", "first_lead_by_length_balanced"),
)


def length_table(records: Records) -> pd.DataFrame:
    """What lengths tell in the two main arms: a row a group and quantity of OF_LENGTH.

    Columns: group, quantity, plain, normed (means over seeds), n_seeds, estimate of the difference, low, high.
    """
    rows = []
    for group in (SHORT, LONG):
        for name in OF_LENGTH:
            each = {arm: length_number(records, group, arm, name) for arm in (PLAIN, NORMED)}
            if all(len(one) for one in each.values()):
                rows.append({"group": group, "quantity": name, **_beside(each)})
    return pd.DataFrame(rows)


def length_number(records: Records, group: str, arm: str, name: str) -> pd.Series:
    """A number of OF_LENGTH by seed; `edit_ratio` is made of what two edits cost."""
    if name != "edit_ratio":
        return records.one(group, arm, name)
    lengths = records.one(group, arm, "delta_ce_permute_norm")
    angles = records.one(group, arm, "delta_ce_swap_angle(permute_norm)")
    return (lengths / (lengths + angles)).dropna()


def _beside(each: Mapping[str, pd.Series]) -> dict[str, Any]:
    gap = (each[NORMED] - each[PLAIN]).dropna().to_numpy(float)
    low, high = t_interval(gap, LEVEL)
    own = {"plain": mean(each[PLAIN].to_numpy(float)), "normed": mean(each[NORMED].to_numpy(float))}
    return {**own, "n_seeds": len(gap), "estimate": mean(gap), "low": low, "high": high}


def larger_table(records: Records) -> pd.DataFrame:
    """The two main arms at a larger size: quantity, plain, normed, n_seeds, estimate of the difference, low, high."""
    rows = []
    for name in OF_LARGER:
        rows.append({"quantity": name, **_beside({arm: records.one(MICRO, arm, name) for arm in (PLAIN, NORMED)})})
    return pd.DataFrame(rows)


def arms_of(records: Records, group: str) -> list[str]:
    """The arms that have runs in a group, by name."""
    return sorted(set(records.table.loc[records.table["group"] == group, "arm"]))


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, each by its columns."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def mean(values: np.ndarray) -> float:
    """NaN of nothing."""
    return float(values.mean()) if len(values) else math.nan


def spread(values: np.ndarray) -> float:
    """Standard deviation over seeds; NaN for fewer than two, 0 where they differ by rounding alone."""
    if len(values) < 2:
        return math.nan
    found = float(values.std(ddof=1))
    return 0.0 if found < _ALONE * float(np.abs(values).max()) else found


# ---------------------------------------------------------------------- what the runs are
def n_parameters(size: Mapping[str, int]) -> int:
    """Weights of the lab's decoder: tied embeddings, attention, SwiGLU and norms; gains of a QK norm not counted."""
    hidden, width = size["hidden"], size["head_dim"]
    attention = 2 * hidden * width * (size["heads"] + size["kv_heads"])
    layer = attention + 3 * hidden * size["intermediate"] + 2 * hidden
    return size["vocab_size"] * hidden + size["layers"] * layer + hidden


def group_table(records: Records) -> pd.DataFrame:
    """What each group trained: group, task, n_parameters, layers, length, tokens, arms, rates, seeds, n_runs, hours."""
    rows = []
    for group, own in records.table.groupby("group", sort=True):
        whole = [records.whole[name] for name in own["name"]]
        recipe = whole[0]["recipe"]
        rows.append(
            {
                "group": group,
                "task": recipe["task"],
                "n_parameters": n_parameters(recipe["size"]),
                "layers": recipe["size"]["layers"],
                "length": recipe["length"],
                "tokens": float(own["tokens"].max()),
                "arms": ", ".join(sorted(set(own["arm"]))),
                "rates": ", ".join(f"{rate:g}" for rate in sorted(set(own["rate"]))),
                "n_seeds": own["seed"].nunique(),
                "n_runs": len(own),
                "hours": sum(one["seconds"] for one in whole) / 3600,
            }
        )
    return pd.DataFrame(rows)


def not_twins(records: Records) -> list[str]:
    """Runs that differ from the first of their group, seed and rate in more than the arm, and be it in roundings."""
    found = []
    for _, own in records.table.sort_values("name").groupby(["group", "seed", "rate"], sort=True):
        whole = [records.whole[name] for name in own["name"]]
        pairs = [(one.get("pair"), bool(one.get("compiled"))) for one in whole]
        found += [name for name, pair in zip(own["name"], pairs, strict=True) if pair != pairs[0]]
    return found
