"""A claim under study: its endpoints, and how it is told."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from geomprobe.labels import GAUGES
from geomprobe.ledger.endpoint import (
    INCONCLUSIVE,
    NOT_IDENTIFIED,
    NOT_TESTED,
    REFUTED,
    SUPPORTED,
    Endpoint,
    Quantity,
    Verdict,
    first_of,
)
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.thresholds import thresholds
from geomprobe.run.reading import Run


@dataclass(frozen=True, eq=False)
class Study:
    """What a checkpoint has to say of a claim, before anything is decided.

    Attributes
    ----------
    claim, title : str
    endpoints : tuple of Endpoint
        Empty where the claim is not tested, or needs no interval.
    shown : tuple of Quantity
        Numbers beside them that decide nothing.
    reason : str
        Why it is not tested.
    settled : Verdict or None
        What algebra says, where that decides.
    tell : callable
        From the verdict and the endpoints' own verdicts to a sentence that anybody can read.
    """

    claim: str
    title: str
    tell: Callable[[Verdict, Sequence[Verdict]], str]
    endpoints: tuple[Endpoint, ...] = ()
    shown: tuple[Quantity, ...] = ()
    reason: str = ""
    settled: Verdict | None = None
    combine: Callable[[Sequence[Verdict]], Verdict] | None = None

    def verdict(self, own: Sequence[Verdict]) -> Verdict:
        """Of the claim, from its endpoints' verdicts."""
        if self.settled is not None:
            return self.settled
        if not self.endpoints:
            return NOT_TESTED
        return self.combine(own) if self.combine is not None else own[0]


TITLES: Final = {
    "C1": "Tokens become important by length, not by angle",
    "C2": "Function tokens are attention sinks because their keys are long",
    "C2a": "Frequent function tokens have inflated key lengths",
    "C2b": "Function tokens are attention sinks",
    "C2c": "… because of their length",
    "C3": "With QK Norm lengths are constant and q·k is a cosine",
    "C6s": "The norm must stand before RoPE",
    "C7a": "Without QK Norm logits grow with scale",
    "C7c": "Softmax becomes one-hot",
    "C8": "1/√d can be replaced by a learned temperature, or dropped",
}


def somewhere(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a claim that some part of the network does something: one part is enough for it, all are needed against."""
    found = first_of(verdicts, SUPPORTED)
    if found is not None:
        return found
    return REFUTED if set(verdicts) == {REFUTED} else first_of(verdicts, NOT_IDENTIFIED, INCONCLUSIVE) or INCONCLUSIVE


def pct(value: float) -> str:
    """A share in words."""
    return "–" if math.isnan(value) else f"{100 * value:.0f}%" if abs(value) >= 0.1 else f"{100 * value:.1f}%"


def not_tested(claim: str, reason: str, shown: tuple[Quantity, ...] = ()) -> Study:
    """A claim that these runs cannot decide, with the reason in a sentence."""
    return Study(claim, TITLES[claim], lambda *_: reason, shown=shown, reason=reason)


def few_documents(n: int) -> str:
    """Why so few documents give no interval; empty where they are enough."""
    least = int(thresholds()["statistics"]["least_documents"])
    return "" if n >= least else f"An interval needs {least} documents; these windows are of {n}."


def gauges_of(checkpoint: Checkpoint, *, gainless_raw: bool = False) -> list[str]:
    """The gauges in which the analysis has the split; the raw one alone where lengths are identified."""
    there = list(checkpoint.run.tables["split"]["gauge"].unique())
    if gainless_raw and checkpoint.gainless:
        return ["raw"]
    return [gauge for gauge in GAUGES if gauge in there]


def not_identified(checkpoint: Checkpoint) -> str:
    """Why one gauge cannot decide; empty where there are both, or lengths are identified."""
    if checkpoint.gainless or set(gauges_of(checkpoint)) == set(GAUGES):
        return ""
    return "What is length and what is angle is not identified in this model, and this run has the raw gauge alone."


def both_gauges(values: dict[str, float]) -> str:
    """A share in both gauges."""
    parts = [pct(value) for value in values.values()]
    return parts[0] if len(set(parts)) == 1 else f"{parts[0]} ({parts[1]} in the balanced gauge)"


def positive(value: Any) -> Any:
    """A denominator: NaN where it is not above 0."""
    return np.where(value > 0, value, np.nan)


def edit_documents(run: Run, setting: str, gauge: str) -> pd.DataFrame | None:
    """By document, what an edit of all layers cost; None where the run has not tried it.

    Parameters
    ----------
    run : Run
        Of `geomprobe intervene`.
    setting : str
        As the table has it in the raw gauge: swap_angle(permute_norm).
    gauge : str
    """
    table = run.tables["interventions"]
    asked = setting if gauge == "raw" else f"{setting}@{gauge}"
    rows = table[(table["layers"] == "all") & (table["document"] >= 0) & (table["setting"] == asked)]
    return rows[["document", "delta_ce", "n_tokens"]] if len(rows) else None
