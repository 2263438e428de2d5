"""What several checkpoints say together: sizes of one family (C7a), and signs over families."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.stats import linregress, t

from geomprobe import tables
from geomprobe.ledger.endpoint import INCONCLUSIVE, NOT_IDENTIFIED, NOT_TESTED, REFUTED, SUPPORTED, Verdict
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import Ledger
from geomprobe.ledger.study import TITLES
from geomprobe.ledger.thresholds import of, thresholds
from geomprobe.stats.resampling import sign_test

# What is counted for a claim: its quantity, and from where on it speaks for the claim.
SIGNS: Final = {
    "C1": ("norm_share", "C1", "share"),
    "C2a": ("norm_lift", "C2a", "lift"),
    "C2b": ("class_sink", "C2b", "sink"),
    "C2c": ("norm_part_share", "C2c", "share"),
    "C3": ("tv", "C3", "not_tv"),
    "C7c": ("one_hot_rate_weighted", "C7c", "one_hot"),
}
POOLED: Final = ("claim", "quantity", "n_checkpoints", "n_families", "n_for", "p", "p_smallest", "sentence")


def pooled(ledgers: Sequence[Ledger]) -> pd.DataFrame:
    """By claim, in how many families the checkpoints lie on the claim's side of its threshold; exact sign test.

    A family counts once: where it has several checkpoints, their mean counts. In both gauges, where there are two; a
    family whose gauges disagree is on no side and left out.
    """
    rows = []
    for claim, (name, rule, threshold) in SIGNS.items():
        bound = math.log(of(rule, threshold)) if claim == "C2a" else of(rule, threshold)
        sides: dict[str, list[pd.Series]] = {}
        checkpoints = 0
        for ledger in ledgers:
            if claim == "C3" and not any(layer["k_norm"] for layer in ledger.manifest["anatomy"]):
                continue  # the claim is about models with a norm
            found = ledger.evidence
            mine = found[(found["claim"] == claim) & (found["quantity"] == name) & found["estimate"].notna()]
            mine = mine[mine["token_class"].isin(["", "function"])]
            if not len(mine):
                continue
            checkpoints += 1
            away = mine.groupby("gauge")["estimate"].mean() - bound
            away = -away if claim == "C3" else away  # constant lengths: near a cosine is for the claim
            sides.setdefault(str(ledger.manifest["family"]), []).append(away)
        signs = [_side(pd.concat(several, axis=1).mean(axis=1)) for several in sides.values()]
        counted = [sign for sign in signs if sign]
        n, positive = len(counted), sum(sign > 0 for sign in counted)
        smallest = min(1.0, 2.0 ** (1 - n)) if n else math.nan
        rows.append((claim, name, checkpoints, n, positive, sign_test(positive, n), smallest, _told(positive, n)))
    return pd.DataFrame(rows, columns=POOLED)


def _side(values: pd.Series) -> int:
    signs = {int(np.sign(value)) for value in values}
    return signs.pop() if len(signs) == 1 else 0


def _told(positive: int, n: int) -> str:
    if not n:
        return "No family has this number."
    word = "family" if n == 1 else "families"
    least = min(1.0, 2.0 ** (1 - n))
    able = "" if least < 0.05 else f"; {n} {word} cannot decide, as the smallest p is {least:.2g}"
    return f"{positive} of {n} {word} on the claim's side{able}."


@dataclass(frozen=True)
class Growth:
    """How the spread of logits changes with the size of a family's models (C7a).

    Attributes
    ----------
    family : str
    quantity : str
        log row_sd or log p999, mean over heads and layers.
    sizes : tuple of int
        Parameters.
    values : tuple of float
    slope, low, high : float
        A doubling of the parameters; NaN where there are too few sizes.
    p_smallest : float
        Of an exact test on the order of so many sizes.
    verdict : Verdict
    """

    family: str
    quantity: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    slope: float
    low: float
    high: float
    p_smallest: float
    verdict: Verdict


def growth(checkpoints: Sequence[Checkpoint]) -> list[Growth]:
    """C7a for every family without QK norm that has two sizes at least."""
    made = []
    families: dict[str, list[Checkpoint]] = {}
    for one in checkpoints:
        if one.has("logits") and not one.normed:
            families.setdefault(str(one.manifest["family"]), []).append(one)
    for family, members in families.items():
        by_size = {int(one.manifest["parameters"]): one for one in members}
        if len(by_size) < 2:
            continue
        for column in ("row_sd", "p999"):
            values = [float(np.log(tables.final_logits(by_size[size].run)[column]).mean()) for size in sorted(by_size)]
            made.append(_growth(family, column, tuple(sorted(by_size)), tuple(values)))
    return made


def _growth(family: str, column: str, sizes: tuple[int, ...], values: tuple[float, ...]) -> Growth:
    n = len(sizes)
    smallest = 2 / math.factorial(n)
    x = np.log2(np.array(sizes, dtype=float))
    slope = low = high = math.nan
    verdict: Verdict = INCONCLUSIVE
    if n >= 3:
        fit = linregress(x, np.array(values))
        reach = float(t.ppf(0.975, n - 2)) * float(fit.stderr)
        slope, low, high = float(fit.slope), float(fit.slope) - reach, float(fit.slope) + reach
    if n >= int(thresholds()["C7a"]["least_sizes"]):
        bound = of("C7a", "slope")
        verdict = REFUTED if high < bound else SUPPORTED if low > bound else INCONCLUSIVE
    return Growth(family, f"log {column}", sizes, values, slope, low, high, smallest, verdict)


def told(grown: Sequence[Growth]) -> tuple[str, str, Verdict, str]:
    """The ledger's row of C7a."""
    if not grown:
        return (
            "C7a",
            TITLES["C7a"],
            NOT_TESTED,
            "No family without QK norm has several sizes among these runs.",
        )
    said: set[Any] = {one.verdict for one in grown}
    verdict: Verdict = (
        said.pop() if len(said) == 1 else NOT_IDENTIFIED if {SUPPORTED, REFUTED} <= said else INCONCLUSIVE
    )
    parts = [
        f"{one.family}, {len(one.sizes)} sizes: {one.quantity} "
        + (f"{one.slope:+.3f} a doubling ({one.low:+.3f} to {one.high:+.3f})" if one.slope == one.slope else "no slope")
        for one in grown
    ]
    least = int(thresholds()["C7a"]["least_sizes"])
    few = any(len(one.sizes) < least for one in grown)
    behind = (
        f" Fewer than {least} sizes cannot decide (smallest p {max(o.p_smallest for o in grown):.2g})." if few else ""
    )
    return "C7a", TITLES["C7a"], verdict, f"{'; '.join(parts)}.{behind}"
