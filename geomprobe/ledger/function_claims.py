"""C2: whether function words are sinks, whether their keys are long, and whether the one makes the other."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from geomprobe import tables
from geomprobe.labels import CLOSED_CLASSES
from geomprobe.ledger import evidence
from geomprobe.ledger.endpoint import INCONCLUSIVE, REFUTED, SUPPORTED, Endpoint, Quantity, Rule, Verdict, all_agree
from geomprobe.ledger.evidence import Cells, Checkpoint
from geomprobe.ledger.study import (
    TITLES,
    Study,
    both_gauges,
    few_documents,
    gauges_of,
    not_identified,
    not_tested,
    positive,
    somewhere,
)
from geomprobe.ledger.thresholds import of, thresholds
from geomprobe.run.reading import Run

FUNCTION: Final = "function"
TOKENS: Final = 5  # of a type in a layer, for it to count
PER_TYPE: Final = 4  # types of a small class that are shown one by one, the most frequent


# ------------------------------------------------------------------ C2
def _depth(run: Run) -> list[tuple[str, list[int]]]:
    return [(tables.span(third), third) for third in tables.thirds(run)]


def _members(name: str) -> tuple[str, ...]:
    return CLOSED_CLASSES if name == FUNCTION else (name,)


def inflated_lengths(checkpoint: Checkpoint) -> Study:
    """C2a: norm_lift of function words, all heads and layers."""
    if not checkpoint.has("type_split", "type_places"):
        return not_tested("C2a", "The probe split was not run, or this text has no token classes.")
    rule = Rule(
        f"at least log {of('C2a', 'lift'):g}, interval above 0 (refuted: wholly below log {of('C2a', 'no_lift'):g})",
        above=0.0,
        least=math.log(of("C2a", "lift")),
        below=math.log(of("C2a", "no_lift")),
    )
    quantities, shown, extrapolated, few = [], [], 0, ""
    least = int(thresholds()["statistics"]["least_types"])
    for gauge in gauges_of(checkpoint, gainless_raw=True):
        frame = checkpoint.run.tables["type_split"]
        cells = evidence.cells_of(frame[frame["gauge"] == gauge], "n", ("k_log_mean",), TOKENS)
        asked = {FUNCTION: CLOSED_CLASSES, **{name: (name,) for name in CLOSED_CLASSES}}
        lifts = evidence.lifts_of(checkpoint.run, cells, asked)
        if FUNCTION not in lifts:
            return not_tested("C2a", "Too few function words, or content words, occur often enough.")
        contrast, extrapolated = lifts.pop(FUNCTION)
        few = few or few_documents(contrast.n_documents)
        if contrast.n_types < least:
            few = few or f"A verdict on a class needs {least} types; this text has {contrast.n_types} often enough."
        quantities.append(of_contrast(checkpoint, contrast, "norm_lift", rule, gauge, FUNCTION))
        shown += [
            of_contrast(checkpoint, other, "norm_lift", None, gauge, name)
            for name, (other, _) in lifts.items()
            if other.n_types >= least
        ]
    few = few or not_identified(checkpoint)
    if few:
        return not_tested("C2a", few, tuple(replace(q, rule=None) for q in quantities))
    by_gauge = {q.gauge: q.estimate for q in quantities}
    n = quantities[0].n_types

    def tell(verdict: Verdict, _own: Sequence[Verdict]) -> str:
        sizes = [f"{math.exp(value):.2f} times" for value in by_gauge.values()]
        size = sizes[0] if len(set(sizes)) == 1 else f"{sizes[0]} ({sizes[1]} in the balanced gauge)"
        return (
            f"Keys of function words are {size} as long as their frequency and places would have them, going by "
            f"content words ({n} types; {extrapolated} of them are more frequent than any content word here, so that "
            "the frequency of content words is drawn out beyond what was seen)."
        )

    return Study("C2a", TITLES["C2a"], tell, (Endpoint(tuple(quantities), all_agree),), tuple(shown))


def of_contrast(
    checkpoint: Checkpoint, found: evidence.Contrast, name: str, rule: Rule | None, gauge: str, token_class: str
) -> Quantity:
    """A contrast of types as a quantity over all layers."""
    return Quantity(
        name,
        found.estimate[name],
        found.draws[name],
        rule,
        gauge=gauge,
        where="all layers",
        token_class=token_class,
        p=found.p[name],
        p_smallest=1 / (1 + int(thresholds()["statistics"]["permutations"]))
        if found.p[name] == found.p[name]
        else math.nan,
        n_types=found.n_types,
        n_documents=found.n_documents,
        n_layers=checkpoint.n_layers,
        n_heads=checkpoint.n_heads,
    )


def function_sinks(checkpoint: Checkpoint) -> Study:
    """C2b: class_sink of function words, by third of the depth."""
    if not checkpoint.has("type_stats") or not tables.of_text(checkpoint.run):
        return not_tested("C2b", "The probe class_attention was not run, or this text has no token classes.")
    rule = Rule(
        f"at least {of('C2b', 'sink'):g} nats, interval above 0 (refuted: upper end below {of('C2b', 'no_sink'):g})",
        above=0.0,
        least=of("C2b", "sink"),
        below=of("C2b", "no_sink"),
    )
    least = int(thresholds()["statistics"]["least_types"])
    endpoints, shown, values = [], [], {}
    few = ""
    for where, layers in _depth(checkpoint.run):
        cells = _sink_cells(checkpoint.run, layers)
        found = evidence.contrast(cells, CLOSED_CLASSES) if len(cells.kinds) else None
        if found is None:
            continue
        few = few or few_documents(found.n_documents)
        if found.n_types < least:
            few = few or f"A verdict on a class needs {least} types; this text has {found.n_types} often enough."
        quantity = _sink_quantity(checkpoint, found, rule, where, layers, FUNCTION)
        values[where] = quantity.estimate
        endpoints.append(Endpoint((quantity,), all_agree))
        shown += _sink_classes(checkpoint, cells, where, layers)
    if not endpoints:
        return not_tested("C2b", "No function word, or no content word, occurs often enough.")
    if few:
        return not_tested("C2b", few, tuple(replace(e.quantities[0], rule=None) for e in endpoints))

    def tell(_verdict: Verdict, own: Sequence[Verdict]) -> str:
        words = {
            SUPPORTED: "attract attention",
            REFUTED: "do not attract more attention",
            INCONCLUSIVE: "attract too little more, or too unsteadily, to call them sinks",
        }
        parts = [
            f"in {where} they {words[said]} ({value:+.2f} nats)"
            for (where, value), said in zip(values.items(), own, strict=True)
        ]
        n = endpoints[0].quantities[0].n_types
        return f"Function words ({n} types) against the content words beside them: {'; '.join(parts)}."

    return Study("C2b", TITLES["C2b"], tell, tuple(endpoints), tuple(shown), combine=somewhere)


def _sink_cells(run: Run, layers: list[int]) -> Cells:
    frame = run.tables["type_stats"]
    return evidence.cells_of(frame[frame["layer"].isin(layers)], "n_sink", ("lambda",), TOKENS)


def _sink_quantity(
    checkpoint: Checkpoint, found: evidence.Contrast, rule: Rule | None, where: str, layers: list[int], name: str
) -> Quantity:
    heads = int(tables.anatomy(checkpoint.run)["q_heads"].reindex(layers).sum())
    made = of_contrast(checkpoint, found, "lambda", rule, "", name)
    return replace(made, name="class_sink", where=where, n_layers=len(layers), n_heads=heads)


def _sink_classes(checkpoint: Checkpoint, cells: Cells, where: str, layers: list[int]) -> list[Quantity]:
    """Class by class; the types of a small class one by one, as no interval over so few types would hold."""
    least = int(thresholds()["statistics"]["least_types"])
    heads = int(tables.anatomy(checkpoint.run)["q_heads"].reindex(layers).sum())
    made = []
    for name in (*CLOSED_CLASSES, "punctuation", "newline"):
        n_types = int(cells.of_class([name]).sum())
        if n_types >= least:
            found = evidence.contrast(cells, [name], test=False)
            if found is not None:
                made.append(_sink_quantity(checkpoint, found, None, where, layers, name))
            continue
        each = evidence.single_types(cells, [name], "lambda")
        tokens = dict(zip(cells.kinds["type"], cells.n.sum(1), strict=True))
        each.sort(key=lambda one: -tokens[one[0]])
        made += [
            Quantity(
                "class_sink",
                value,
                draws,
                where=where,
                token_class=f"{name} {kind}",
                n_types=1,
                n_documents=len(cells.documents),
                n_layers=len(layers),
                n_heads=heads,
            )
            for kind, value, draws in each[:PER_TYPE]
        ]
    return made


def because_of_length(checkpoint: Checkpoint) -> Study:
    """C2c: the part of the class sink that lies in lengths, where there is a sink and its keys are longer."""
    if not checkpoint.has("type_split", "type_stats"):
        return not_tested("C2c", "The probe split or class_attention was not run, or this text has no token classes.")
    endpoints, shown, values = [], list(_doses(checkpoint)), {}
    sinks: list[str] = []
    for where, layers in _depth(checkpoint.run):
        found = evidence.contrast(_sink_cells(checkpoint.run, layers), CLOSED_CLASSES, test=False)
        if found is None or not found.draws["lambda"].size or not np.quantile(found.draws["lambda"], 0.025) > 0:
            continue
        sinks.append(where)
        both = [
            pair for gauge in gauges_of(checkpoint, gainless_raw=True) for pair in _parts(checkpoint, gauge, layers)
        ]
        lengths, shares = [pair[0] for pair in both], [pair[1] for pair in both]
        shown += lengths
        if shares and all(q.estimate > 0 for q in lengths):
            values[where] = {q.gauge: q.estimate for q in shares}
            endpoints.append(Endpoint(tuple(shares), all_agree))
        else:
            shown += [replace(q, rule=None) for q in shares]
    reason = ""
    if not sinks:
        reason = "Function words draw no more attention than content words here, so there is nothing to explain."
    elif not endpoints:
        reason = (
            f"Where function words draw more attention than content words ({', '.join(sinks)}), their keys are not "
            "longer, so length cannot be why."
        )
    reason = reason or not_identified(checkpoint) or _too_little(endpoints)
    if reason:
        untold = [replace(q, rule=None) for one in endpoints for q in one.quantities]
        return not_tested("C2c", reason, (*shown, *untold))

    def tell(_verdict: Verdict, _own: Sequence[Verdict]) -> str:
        parts = [
            f"in {where} {both_gauges(share)}" + (", so it works against it" if max(share.values()) < 0 else "")
            for where, share in values.items()
        ]
        return (
            "Where function words draw more attention and their keys are longer, this is the part of it that lies in "
            f"length: {'; '.join(parts)}; the rest is direction."
        )

    return Study("C2c", TITLES["C2c"], tell, tuple(endpoints), tuple(shown), combine=somewhere)


def _parts(checkpoint: Checkpoint, gauge: str, layers: list[int]) -> list[tuple[Quantity, Quantity]]:
    """How much longer keys of function words are, and the share of their sink that lies in it; none without types."""
    frame = checkpoint.run.tables["type_split"]
    rows = frame[(frame["gauge"] == gauge) & frame["layer"].isin(layers)]
    lengths = evidence.contrast(evidence.cells_of(rows, "n", ("k_log_mean",), TOKENS), CLOSED_CLASSES, test=False)
    parts = evidence.contrast(
        evidence.cells_of(rows, "n_sink", ("lambda", "norm_part"), TOKENS), CLOSED_CLASSES, test=False
    )
    if lengths is None or parts is None:
        return []
    rule = Rule(
        f"interval above {of('C2c', 'share'):g} (refuted: below {of('C2c', 'no_share'):g})",
        above=of("C2c", "share"),
        below=of("C2c", "no_share"),
    )
    common: dict[str, Any] = {
        "gauge": gauge,
        "where": tables.span(layers),
        "token_class": FUNCTION,
        "n_types": parts.n_types,
        "n_documents": parts.n_documents,
        "n_layers": len(layers),
    }
    share = parts.estimate["norm_part"] / parts.estimate["lambda"]
    draws = parts.draws["norm_part"] / positive(parts.draws["lambda"])
    return [
        (
            Quantity("k_log_mean", lengths.estimate["k_log_mean"], lengths.draws["k_log_mean"], **common),
            Quantity("norm_part_share", share, draws, rule, **common),
        )
    ]


def _too_little(endpoints: Sequence[Endpoint]) -> str:
    """Why types or documents are too few for a verdict; empty where they are enough."""
    least = int(thresholds()["statistics"]["least_types"])
    found = [q for one in endpoints for q in one.deciding]
    n = min((q.n_types for q in found), default=least)
    few = few_documents(min(q.n_documents for q in found)) if found else ""
    return few or ("" if n >= least else f"A verdict on a class needs {least} types; this text has {n} often enough.")


def _doses(checkpoint: Checkpoint) -> list[Quantity]:
    """What lengthening the keys of function words did to their sink: a check, decides nothing."""
    made = []
    for run in checkpoint.trials:
        table = run.tables["interventions"]
        rows = table[(table["edit"] == "scale_class") & (table["layers"] == "all") & (table["document"] < 0)]
        made += [
            Quantity(
                "delta_class_sink",
                float(row["delta_class_sink"]),
                gauge=str(row["gauge"]),
                where=f"keys e^{row['strength']:g} times as long",
                token_class=str(row["token_class"]),
                n_layers=checkpoint.n_layers,
            )
            for row in rows.to_dict("records")
        ]
    return made
