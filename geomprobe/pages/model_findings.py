"""What a run says about its model: what was read, whether there is a QK norm, and whether the capture is true."""

from collections import Counter

import numpy as np
import pandas as pd

from geomprobe import tables
from geomprobe.labels import ALL_HEADS, CROSS, WHOLE_MODEL
from geomprobe.pages.finding import Finding, known
from geomprobe.pages.wording import listing, number, ranges
from geomprobe.run.reading import Run
from geomprobe.tables import count

AXES = {"head": "over each head by itself", "full": "over all heads together"}
ORDERS = {
    "before_rope": "before the rotation (RoPE)",
    "after_rope": "after the rotation (RoPE)",
    "no_rope": "where there is no rotation",
    "unknown": "at a place that could not be told from the rotation's",
}
BOS = {
    True: "Position 0 of a window is the tokenizer's BOS.",
    False: "No BOS is added: position 0 is whatever token a window starts with.",
}
VECTORS = {"q": "queries", "k": "keys"}


def tell_scope(run: Run) -> Finding:
    """Which checkpoint read which text."""
    model, corpus = run.manifest["model"], run.manifest["corpus"]
    shape = tables.anatomy(run)
    n_layers = len(shape)
    who = (
        f"{model['name']} ({model['family']}, {count(n_layers, 'attention layer')} of "
        f"{_each(shape['q_heads'], 'query head')} and {_each(shape['kv_heads'], 'key head')}, {model['dtype']})"
    )
    if tables.of_text(run):
        what = (
            f"read {count(corpus['n_windows'], 'window')} of {corpus['window']:,} tokens from "
            f"{count(corpus['n_documents'], 'document')} of {corpus['name']}"
        )
        first = BOS[bool(corpus["bos"])]
    else:
        what = f"looked at {count(corpus['n_windows'], 'image')}, at {corpus['window']:,} places each"
        first = "A token below is such a place, position 0 the first of them: a class token where the model has one."
    text = (
        f"{who} {what}. {_parts(run)}{_windows(run)}{_causality(run)}{_skipped(run)}{first} "
        f"All that follows holds for this checkpoint on {'this text' if tables.of_text(run) else 'these images'}."
    )
    values = {"layers": n_layers, "n_windows": corpus["n_windows"], "window": corpus["window"]}
    return Finding("What was read", text, "manifest", values | {"n_documents": corpus["n_documents"]})


def _each(values: pd.Series, noun: str) -> str:
    found = np.unique(values.to_numpy(int))
    return count(int(found[0]), noun) if len(found) == 1 else f"{found[0]}–{found[-1]} {noun}s"


def _parts(run: Run) -> str:
    parts = tables.parts(run)
    if not parts:
        return ""
    where = listing([f"{tables.span(layers)} are its {part}" for part, layers in parts.items()])
    return (
        f"Its encoder and its decoder read the same windows; {where}, in which the decoder's queries look at the "
        "encoder's keys. "
        if CROSS in parts
        else f"{where}. "
    )


def _skipped(run: Run) -> str:
    left_out = run.manifest["model"].get("skipped", [])
    if not left_out:
        return ""
    return (
        f"{count(len(left_out), 'module')} that {'mixes' if len(left_out) == 1 else 'mix'} tokens "
        f"{'is' if len(left_out) == 1 else 'are'} in no number below; of the first: {left_out[0]['reason']} "
    )


def _causality(run: Run) -> str:
    ahead = [entry for entry in run.manifest["model"]["anatomy"] if not entry.get("causal", True)]
    if not ahead:
        return ""
    where = "" if len(ahead) == len(run.manifest["model"]["anatomy"]) else f", in {count(len(ahead), 'layer')}"
    return (
        f"Each token sees what stands behind it, too{where}: there is no loss there, no sink rate and no sink tokens, "
        "which look at later queries. "
    )


def _windows(run: Run) -> str:
    stated = {int(entry["window"]) for entry in run.manifest["model"]["anatomy"] if entry["window"] is not None}
    if not stated:
        return ""
    widths = listing([f"{width:,}" for width in sorted(stated)])
    binding = tables.binding_windows(run)
    if not binding:
        return f"Its sliding windows of {widths} tokens hide nothing at this length. "
    if not tables.full_layers(run):
        return f"All its layers see a sliding window of {widths} tokens. "
    return (
        f"{len(binding)} of its {len(tables.layers(run))} layers see a sliding window of {widths} tokens, the others "
        "all that went before. "
    )


def tell_loss(run: Run) -> Finding | None:
    """How well the model predicts this text, so that a reader sees that it runs as it should."""
    if not tables.has(run, "document_stats"):
        return None
    table = run.tables["document_stats"]
    table = table[(table["layer"] == WHOLE_MODEL) & table["loss"].notna()]
    if not len(table):
        return None
    weight = table["n_rows"] if table["n_rows"].sum() else 1 + 0 * table["n_rows"]  # a run of few probes counts none
    mean = float((table["loss"] * weight).sum() / weight.sum())
    low, high, n = tables.document_interval(run, "loss")
    interval = f"95% interval {number(low)} to {number(high)}, " if known(low, high) else ""
    text = f"It predicts this text at {number(mean)} nats a token ({interval}n = {count(n, 'document')})."
    return Finding("What was read", text, "document_stats", {"loss": mean, "n": n})


def tell_norm(run: Run) -> Finding:
    """Whether there is a QK norm, on what, over what and where."""
    every = tables.layers(run)
    normed = {vector: tables.normed_layers(run, vector) for vector in VECTORS}
    values = {"layers": len(every), **{f"{vector}_layers": len(found) for vector, found in normed.items()}}
    anatomy = run.manifest["model"]["anatomy"]
    blind = [layer for layer in anatomy if any("projected" not in layer["stages"].get(v, ()) for v in ("q", "k"))]
    if not any(normed.values()) and blind:
        text = (
            f"Whether there is a QK norm is not known: in {len(blind)} of {count(len(every), 'attention layer')} "
            "queries or keys could not be followed back to their projection."
        )
        return Finding("QK norm", text, "manifest", values)
    if not any(normed.values()):
        text = (
            f"There is no QK norm: in {_all(len(every))} keys and queries enter the dot product at the lengths that "
            "the projections give them."
        )
        return Finding("QK norm", text, "manifest", values)
    if normed["q"] == normed["k"]:
        text = f"A QK norm stands on queries and keys in {_part(normed['k'], every)}, {_kinds(run, 'qk')}."
    else:
        parts = [f"on the {VECTORS[v]} in {_part(f, every)}, {_kinds(run, v)}" for v, f in normed.items() if f]
        text = f"A QK norm stands {listing(parts)}."
    return Finding("QK norm", text, "manifest", values)


def _all(n: int) -> str:
    return "its one attention layer" if n == 1 else f"all {n} attention layers"


def _part(chosen: list[int], every: list[int]) -> str:
    if chosen == every:
        return _all(len(every))
    return f"{len(chosen)} of {count(len(every), 'attention layer')} ({ranges(chosen)})"


def _kinds(run: Run, vectors: str) -> str:
    norms = [e[f"{v}_norm"] for e in run.manifest["model"]["anatomy"] for v in vectors if e[f"{v}_norm"]]
    kinds = Counter((str(norm["axis"]), str(norm["order"])) for norm in norms)
    said = [f"{AXES.get(axis, axis)}, {ORDERS.get(order, order)}" for axis, order in kinds]
    if len(said) == 1:
        return said[0]
    return listing([f"{words} ({count(n, 'norm')})" for words, n in zip(said, kinds.values(), strict=True)])


def tell_gains(run: Run) -> Finding | None:
    """How far the gains of the norms differ between channels."""
    if not tables.has(run, "gains"):
        return None
    table = run.tables["gains"]
    parts: list[str] = []
    values: dict[str, float] = {}
    for vector in ("k", "q"):
        cv = table.loc[table["vector"] == vector, "cv"].dropna()
        if len(cv):
            values |= {f"{vector}_cv": float(cv.median()), f"{vector}_n": len(cv)}
            spread = f" ({number(cv.min())} to {number(cv.max())})" if len(cv) > 1 else ""
            noun = "key norm" if vector == "k" else "query norm"
            parts.append(f"{number(cv.median())} over the {count(len(cv), noun)}{spread}")
    if not parts:
        return None
    shared = "" if (table["head"] == ALL_HEADS).all() else " (a head's norm counts by itself)"
    text = f"The gains vary between channels with a coefficient of variation (median) of {listing(parts)}{shared}."
    return Finding("QK norm", text, "gains", values)


def tell_gauge(run: Run) -> Finding | None:
    """What lengths mean here: without a norm that has no gain they are fixed only up to a rescaling."""
    if tables.kind(run) == tables.INTERVENTION:  # where edits are told, in which gauge
        return None
    normed = all(tables.normed_layers(run, vector) == tables.layers(run) for vector in VECTORS)
    if normed and tables.has(run, "gains") and bool((run.tables["gains"]["cv"].fillna(1) < 1e-6).all()):
        return None
    cause = "the gains of the norm take up such a factor" if normed else "nothing fixes such a factor"
    text = (
        "Lengths below are raw and not comparable between models as they stand: keys can be rescaled against queries "
        f"without any change to the attention, and {cause}."
    )
    return Finding("QK norm", text, "manifest")


def tell_parity(run: Run) -> Finding:
    """Whether what was captured reproduces the model's own attention and left its output alone."""
    parity = run.manifest["parity"]
    output, values = float(parity["max_abs_output"]), {}
    rebuilt = "the model gives no attention weights to compare with"
    if parity["max_abs_attention"] is not None:
        values["max_abs_attention"] = float(parity["max_abs_attention"])
        rebuilt = (
            f"softmax rebuilt from it differs by at most {number(values['max_abs_attention'])} "
            f"(tolerance {number(float(parity['tolerance']))}, n = {count(parity['n_tokens'], 'token')})"
        )
    verdict = "reproduces" if parity["ok"] else "does NOT reproduce"
    text = (
        f"What was captured {verdict} the model's own attention: {rebuilt}, and watching the model changes its output "
        f"by {number(output)}."
    )
    return Finding("Check", text, "manifest", {**values, "max_abs_output": output})
