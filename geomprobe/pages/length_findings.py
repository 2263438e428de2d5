"""What a run says about the lengths of its keys."""

from geomprobe import tables
from geomprobe.pages.finding import Finding
from geomprobe.pages.wording import number
from geomprobe.run.reading import Run
from geomprobe.tables import count


def tell_key_lengths(run: Run) -> Finding | None:
    """How key lengths spread within a head, and how they change with the depth."""
    if not tables.has(run, "norms"):
        return None
    rows = tables.lengths(run, "k")
    spread = rows["log_sd"].dropna()
    medians = tables.over_heads(rows, "p50")["median"].dropna()
    if not len(spread) or not len(medians):
        return None
    values = {
        "log_sd": float(spread.median()),
        "log_sd_q25": float(spread.quantile(0.25)),
        "log_sd_q75": float(spread.quantile(0.75)),
        "n_heads": len(spread),
        "n": int(rows["n"].max()),
        "shortest": float(medians.min()),
        "longest": float(medians.max()),
    }
    text = (
        f"Within a head, log key lengths past position 0 have a standard deviation of {number(values['log_sd'])} at "
        f"the median head (quartiles {number(values['log_sd_q25'])} to {number(values['log_sd_q75'])}; "
        f"{count(len(spread), 'head')}, n = {count(values['n'], 'key')} each)"
    )
    if len(medians) > 1:
        text += (
            f"; the median key length of a layer lies between {number(values['shortest'])} (layer {medians.idxmin()}) "
            f"and {number(values['longest'])} (layer {medians.idxmax()})."
        )
    else:
        text += f"; the median key length is {number(values['shortest'])}."
    return Finding("Key lengths", text, "norms", values)


def tell_norm_effect(run: Run) -> Finding | None:
    """How much of the spread is there before the norm and after it."""
    normed = tables.normed_layers(run, "k")
    if not normed or not tables.has(run, "norms"):
        return None
    stages = [tables.lengths(run, "k", stage=stage) for stage in ("projected", "scored")]
    before, after = (rows[rows["layer"].isin(normed)]["log_sd"].dropna() for rows in stages)
    if not len(before) or not len(after):
        return None
    values = {"before": float(before.median()), "after": float(after.median()), "n_heads": len(after)}
    text = (
        f"Before the norm that standard deviation is {number(values['before'])} at the median head, after it "
        f"{number(values['after'])} ({count(len(after), 'head')} with a norm)."
    )
    return Finding("Key lengths", text, "norms", values)


def tell_first_length(run: Run) -> Finding | None:
    """Position 0's key against the others."""
    if not tables.has(run, "norms"):
        return None
    ratio = tables.first_ratio(run)
    found = ratio["ratio"].dropna()
    if not len(found):
        return None
    values = {
        "ratio": float(found.median()),
        "below_half": int((found < 0.5).sum()),
        "above_double": int((found > 2).sum()),
        "n_heads": len(found),
        "n": int(ratio["n"].max()),
    }
    text = (
        f"The key at position 0 is {values['ratio']:.2f} times as long as the others at the median head (geometric "
        f"means; less than half as long in {values['below_half']}, more than twice as long in {values['above_double']} "
        f"of {count(len(found), 'head')}; n = {count(values['n'], 'window')})."
    )
    return Finding("Key lengths", text, "norms", values)
