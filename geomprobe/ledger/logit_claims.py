"""C6s, C7 and C8: the place of the norm, the reach of the logits, the scale."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from geomprobe.ledger import evidence
from geomprobe.ledger.endpoint import INCONCLUSIVE, REFUTED, SUPPORTED, Endpoint, Quantity, Rule, Verdict, all_agree
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.study import TITLES, Study, few_documents, not_tested, pct
from geomprobe.ledger.thresholds import of


# ------------------------------------------------------------------ C6s, C8
def _order(checkpoint: Checkpoint, claim: str) -> pd.DataFrame | Study:
    if not checkpoint.has("order"):
        reason = (
            "This model has no RMS norm of each head's queries and keys beside a rotation."
            if checkpoint.analysis is not None and "order" in checkpoint.run.tables
            else "The probe order was not run."
        )
        return not_tested(claim, reason)
    rows = checkpoint.run.tables["order"].dropna(subset=["commutation_error", "shift_error"])
    return (
        rows
        if len(rows)
        else not_tested(claim, "The norm of this model is no gain · x/rms(x), so its algebra is open.")
    )


def before_rotation(checkpoint: Checkpoint) -> Study:
    """C6s: by algebra, on the model's own gains and activations."""
    rows = _order(checkpoint, "C6s")
    if isinstance(rows, Study):
        return rows
    shift, apart = float(rows["shift_error"].median()), float(rows["commutation_error"].median())
    text = (
        f"shift_error of the median head above {of('C6s', 'shift_error'):g} (refuted: both errors below "
        f"{of('C6s', 'commutes'):g} in every head); by algebra, without an interval"
    )
    most = float(rows[["shift_error", "commutation_error"]].max().max())
    settled: Verdict = (
        REFUTED if most < of("C6s", "commutes") else SUPPORTED if shift > of("C6s", "shift_error") else INCONCLUSIVE
    )
    side = str(rows["order"].iloc[0])
    where = "before" if side == "before_rope" else "behind"
    common: dict[str, Any] = {"n_layers": int(rows["layer"].nunique()), "n_heads": len(rows)}
    shown = (
        Quantity("commutation_error", apart, rule=Rule(text), **common),
        Quantity("shift_error", shift, rule=Rule(text), **common),
    )

    def tell(verdict: Verdict, _own: Sequence[Verdict]) -> str:
        if verdict == REFUTED:
            return "The gain is equal within each rotary pair, or there is none: norm and rotation may change places."
        return (
            f"The norm stands {where} the rotation. On the other side it would change logits by {pct(apart)} (median "
            f"head), and behind the rotation the same two tokens, moved 777 places on, would get logits that are off "
            f"by {pct(shift)}: its gain is not equal within the rotary pairs."
        )

    return Study("C6s", TITLES["C6s"], tell, shown=shown, settled=settled)


def folded_scale(checkpoint: Checkpoint) -> Study:
    """C8: whether the scale may stand in the gain. What training makes of it is for trained twins."""
    rows = _order(checkpoint, "C8")
    if isinstance(rows, Study):
        return rows
    error = float(rows["folding_error"].max())
    exact = error <= of("C8", "folding_error")
    shown = (
        Quantity(
            "folding_error",
            error,
            rule=Rule(f"exact where at most {of('C8', 'folding_error'):g}; decides nothing"),
            n_layers=int(rows["layer"].nunique()),
            n_heads=len(rows),
        ),
    )
    change = f"by {error:.1g} of their size" if error else "in no digit"
    reason = (
        f"The scale can be folded into the gain of the query norm {'exactly' if exact else 'not exactly'} here: logits "
        f"change {change}. With a gain, 1/√d is a matter of initialisation; whether a model trains as well without it "
        "is for trained twins."
    )
    return not_tested("C8", reason, shown)


# ------------------------------------------------------------------ C7c
def one_hot_rows(checkpoint: Checkpoint) -> Study:
    """C7c: one-hot rows without position 0, weighted by what goes past it."""
    if not checkpoint.has("document_stats") or not checkpoint.has("logits"):
        return not_tested("C7c", "The probe logits was not run.")
    if "one_hot_rate_weighted" not in checkpoint.run.tables["document_stats"]:
        return not_tested("C7c", "This run was made by an older geomprobe; analyze again.")
    estimate, draws, n = evidence.one_hot(checkpoint.run)
    rule = Rule(
        f"interval above {of('C7c', 'one_hot'):g} (refuted: below {of('C7c', 'rare'):g})",
        above=of("C7c", "one_hot"),
        below=of("C7c", "rare"),
    )
    quantity = Quantity(
        "one_hot_rate_weighted",
        estimate,
        draws,
        rule,
        n_documents=n,
        n_layers=checkpoint.n_layers,
        n_heads=checkpoint.n_heads,
    )
    few = few_documents(n)
    if few:
        return not_tested("C7c", few, (replace(quantity, rule=None),))

    def tell(verdict: Verdict, _own: Sequence[Verdict]) -> str:
        meant = {
            SUPPORTED: "softmax is one-hot often",
            REFUTED: "softmax hardly ever is one-hot",
        }.get(verdict, "neither often nor hardly ever")
        return (
            f"Of the attention that goes past the first token, {pct(estimate)} is of queries that put over 95% of it "
            f"on one key: {meant}."
        )

    return Study("C7c", TITLES["C7c"], tell, (Endpoint((quantity,), all_agree),))


def grown_logits(checkpoint: Checkpoint) -> Study:
    """C7a: needs several sizes of one family (ledger.family)."""
    return not_tested("C7a", "One checkpoint has one size; give the runs of several sizes of one family.")
