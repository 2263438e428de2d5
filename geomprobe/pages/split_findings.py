"""What a run says about length against angle."""

from geomprobe import tables
from geomprobe.pages.finding import Finding, known
from geomprobe.pages.wording import number, percent, signed
from geomprobe.run.reading import Run
from geomprobe.tables import count

GAUGES = ("raw", "balanced")
SAME = 0.1  # shares of two gauges that differ by less agree


def tell_split(run: Run) -> Finding | None:
    """How much of the attention lengths tell, in both gauges."""
    if not tables.has(run, "split"):
        return None
    shares = {gauge: tables.whole_share(run, gauge, "out") for gauge in GAUGES}
    if not known(shares["raw"]):
        return None
    values = {f"share_{gauge}": value for gauge, value in shares.items() if known(value)}
    inside = tables.whole_share(run, "raw", "in")
    text = (
        f"Lengths of keys tell {percent(shares['raw'])} of the attention and angles the rest, position 0 left out "
        f"(norm_share, raw gauge, all heads; {percent(inside)} with it in)"
    )
    if known(shares["balanced"]):
        near = abs(shares["raw"] - shares["balanced"]) < SAME
        text += f"; in the balanced gauge it is {percent(shares['balanced'])}" + (
            "." if near else ", so how much is length and how much angle is not identified here."
        )
    else:
        text += "; the balanced gauge could not be found, as the rotation of its channels is not known."
    return Finding("Length against angle", text, "split", {**values, "share_in": inside})


def tell_fidelity(run: Run) -> Finding | None:
    """How far attention is from a softmax of cosines alone."""
    if not tables.has(run, "split"):
        return None
    rows = tables.split_rows(run, "raw", "out")
    tv, r2, rho = (rows[name].dropna() for name in ("tv", "r2", "norm_attention_rho"))
    if not len(tv) or not len(rho):
        return None
    text = (
        f"A softmax of cosines alone, with one temperature a head, is off by {number(float(tv.median()))} in total "
        f"variation at the median head (R² {number(float(r2.median()))}; {count(len(tv), 'head')}). Longer keys get "
        f"more attention in {int((rho > 0).sum())} of {count(len(rho), 'head')} (rank correlation "
        f"{signed(float(rho.median()))} at the median head)."
    )
    values = {"tv": float(tv.median()), "r2": float(r2.median()), "rho": float(rho.median()), "n_heads": len(tv)}
    return Finding("Length against angle", text, "split", values)


def tell_first_split(run: Run) -> Finding | None:
    """What draws attention to position 0: its key's length, or its angle."""
    if not tables.has(run, "class_split"):
        return None
    table = run.tables["class_split"]
    first = table[(table["token_class"] == "first") & (table["gauge"] == "raw")].dropna(subset=["class_sink"])
    drawn = first[first["class_sink"] > 0]
    if not len(first):
        return None
    values = {"n_heads": len(first), "n_drawn": len(drawn)}
    if not len(drawn):
        text = (
            f"Position 0 has no larger logits than the content words behind it in any of {count(len(first), 'head')}."
        )
        return Finding("Length against angle", text, "class_split", values)
    norm, angle = float(drawn["norm_part"].median()), float(drawn["angle_part"].median())
    text = (
        f"Position 0 has larger logits than the content words behind it in {len(drawn)} of "
        f"{count(len(first), 'head')}; there the length of its key adds {signed(norm)} nats at the median head and "
        f"its angle {signed(angle)} (raw gauge)."
    )
    return Finding("Length against angle", text, "class_split", {**values, "norm_part": norm, "angle_part": angle})


def tell_values(run: Run) -> Finding | None:
    """Whether what is looked at most is also used."""
    if not tables.has(run, "values"):
        return None
    table = run.tables["values"]
    first = table[table["token_class"] == "first"].dropna(subset=["share", "value_weighted"])
    if not len(first):
        return None
    share, weighted = float(first["share"].mean()), float(first["value_weighted"].mean())
    ratio = float(first["v_norm_ratio"].median())
    text = (
        f"Weighted by the lengths of the values, position 0 brings {percent(weighted)} of what heads take in, from "
        f"{percent(share)} of the attention (means over {count(len(first), 'head')}, its own row included): its "
        f"value is {number(ratio)} times as long as others at the median head."
    )
    values = {"share": share, "value_weighted": weighted, "v_norm_ratio": ratio, "n_heads": len(first)}
    return Finding("Where attention sinks", text, "values", values)
