"""What norms do to training: growing lengths (C1t), quality behind RoPE (C6q), stability (C7b), temperature (C8)."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe.evidence.contrasts import LEVEL, Contrast, Decision, Rule, all_for, any_for, both_all, t_interval
from geomprobe.evidence.records import Records
from geomprobe.evidence.twins import NORMED, PLAIN, SHORT, STABILITY, VERSUS, own
from geomprobe.ledger.thresholds import of

Floats = NDArray[np.float64]


def inflation(records: Records) -> Decision:
    """C1t: growth of log lengths over the steps without a norm, and the radial part of the updates."""
    grows = Rule("supported: interval above 0; refuted: below 0", above=0, below=0)
    radial = Rule(
        f"supported: interval above 0 (more than a random step has); refuted: within ±{of('C1t', 'radial')} (TOST)",
        above=0,
        none_within=of("C1t", "radial"),
    )
    contrasts = [own(records, PLAIN, f"growth_scored_{vector}", grows) for vector in "kq"]
    contrasts += [
        Contrast(name, f"{PLAIN}, less 1", records.one(SHORT, PLAIN, name).to_numpy(float) - 1, radial)
        for name in ("radial_over_random_k", "radial_over_random_q")
    ]
    keys, queries = (records.one(SHORT, PLAIN, f"growth_scored_{vector}") for vector in "kq")
    contrasts.append(Contrast("growth_both", PLAIN, ((keys + queries) / 2).dropna().to_numpy(float)))
    for vector in "kq":
        for name in (f"growth_projected_{vector}", f"growth_scored_{vector}", f"turn_{vector}"):
            contrasts.append(Contrast(name, VERSUS, records.paired(SHORT, NORMED, PLAIN, name)))
        contrasts.append(own(records, PLAIN, f"radial_cosine_{vector}"))
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


def after_rope(records: Records) -> Decision:
    """C6q: held-out loss of a norm behind RoPE against one before it, at one, two and four training lengths."""
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


def stability(records: Records) -> Decision:
    """C7b: what a higher rate costs without a norm, and the largest logit at the highest."""
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


def temperature(records: Records) -> Decision:
    """C8: held-out loss with a learned temperature, and without 1/√d."""
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
