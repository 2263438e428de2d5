"""What a run says about function tokens: whether they draw more attention than their neighbours."""

import math

from geomprobe import tables
from geomprobe.labels import CLOSED_CLASSES
from geomprobe.pages.finding import Finding, known
from geomprobe.pages.wording import listing, number, signed
from geomprobe.run.reading import Run
from geomprobe.tables import count

AGREE = 0.75  # share of the heads on one side of zero from which they are said to agree


def tell_approximate(run: Run) -> Finding | None:
    """That the language has no list of function words, where it has none."""
    corpus = run.manifest["corpus"]
    if not tables.of_text(run) or corpus.get("function_words") != "approximate":
        return None
    n = int(corpus["n_function_words"])
    text = (
        f"The function words of this language ({corpus['language']}) are approximate: its {n:,} most frequent words, "
        "all under the class particle."
    )
    return Finding("Function tokens", text, "manifest", {"n_function_words": n})


def tell_function_tokens(run: Run) -> Finding | None:
    """Whether function tokens draw more attention than the content words beside them, by third of the depth."""
    if not tables.of_text(run) or not tables.has(run, "class_attention"):
        return None
    values: dict[str, float] = {}
    sides: dict[str, list[str]] = {}
    for index, third in enumerate(tables.thirds(run)):
        rows = tables.class_rows(run, "function", third).dropna(subset=["class_sink"])
        if not len(rows):
            continue
        middle, above = float(rows["class_sink"].median()), int((rows["class_sink"] > 0).sum())
        n_types = int(rows["n_types"].max())
        values |= {f"class_sink_{index}": middle, f"above_{index}": above, f"n_heads_{index}": len(rows)}
        values["n_types"] = max(n_types, values.get("n_types", 0))
        sides.setdefault(_side(above / len(rows)), []).append(
            f"{tables.span(third)} ({signed(middle)} nats at the median head, above zero in {above} of "
            f"{count(len(rows), 'head')})"
        )
    if not values:
        text = "No function word occurs often enough in this text to tell whether such tokens are sinks."
        return Finding("Function tokens", text, "class_attention", {"n_types": 0})
    said = {
        "favoured": "most heads favour function tokens in",
        "disfavoured": "most heads disfavour function tokens in",
        "mixed": "heads disagree about function tokens in",
    }
    clauses = [f"{said[side]} {listing(where)}" for side, where in sides.items()]
    text = (
        f"Against the content words beside them (class_sink, n = {count(int(values['n_types']), 'type')}), "
        f"{'; '.join(clauses)}."
    )
    return Finding("Function tokens", text, "class_attention", values)


def _side(above: float) -> str:
    """What the heads agree on, from the share of them that is above zero."""
    if above >= AGREE:
        return "favoured"
    return "disfavoured" if above <= 1 - AGREE else "mixed"


def tell_yardstick(run: Run) -> Finding | None:
    """How much single content types differ among themselves in the same number."""
    if not tables.has(run, "type_stats"):
        return None
    parts: list[str] = []
    values: dict[str, float] = {}
    for index, third in enumerate(tables.thirds(run)):
        spread, n = tables.type_spread(run, third)
        if known(spread):
            values |= {f"sd_{index}": spread, f"n_types_{index}": n}
            parts.append(f"{number(spread)} in {tables.span(third)}")
    if not parts:
        return None
    types = max(int(n) for name, n in values.items() if name.startswith("n_types"))
    text = (
        f"For scale: single content words differ among themselves with a standard deviation (nats, mean over heads and "
        f"layers first) of {listing(parts)} (n = {count(types, 'type')})."
    )
    return Finding("Function tokens", text, "type_stats", values)


def tell_closed_classes(run: Run) -> Finding | None:
    """class_sink of each closed class, by third."""
    return _tell_classes(run, CLOSED_CLASSES, "Closed classes")


def tell_marks(run: Run) -> Finding | None:
    """class_sink of punctuation and newlines, for comparison."""
    return _tell_classes(run, ("punctuation", "newline"), "Marks, for comparison")


def _tell_classes(run: Run, names: tuple[str, ...], lead: str) -> Finding | None:
    if not tables.has(run, "class_attention"):
        return None
    summary = tables.class_summary(run).to_dict("index")
    sinks = [f"class_sink_{index}" for index in range(len(tables.thirds(run)))]
    parts: list[str] = []
    values: dict[str, float] = {}
    for name in (name for name in names if name in summary):
        row = summary[name]
        if all(math.isnan(row[column]) for column in sinks):
            continue
        values |= {f"{name}_{index}": float(row[column]) for index, column in enumerate(sinks)}
        values[f"{name}_n_types"] = int(row["n_types"])
        parts.append(f"{name} {', '.join(signed(row[column]) for column in sinks)} ({count(row['n_types'], 'type')})")
    if not parts:
        return None
    stacks = ", ".join(tables.parts(run))
    where = f", {stacks or 'from the first third of the depth to the last'}" if len(sinks) > 1 else ""
    text = f"{lead}{where} (class_sink of the median head, nats): {'; '.join(parts)}."
    return Finding("By category", text, "class_attention", values)


def tell_function_lift(run: Run) -> Finding | None:
    """What function tokens get of the attention, over a uniform share."""
    if not tables.has(run, "class_attention"):
        return None
    rows = tables.class_rows(run, "function").dropna(subset=["lift"])
    if not len(rows):
        return None
    lift = rows["lift"]
    values = {"lift": float(lift.median()), "q25": float(lift.quantile(0.25)), "q75": float(lift.quantile(0.75))}
    values |= {"n_heads": len(rows), "n_tokens": int(rows["n_tokens"].max())}
    text = (
        f"Function tokens receive {number(values['lift'])} times their uniform share of the attention at the median "
        f"head (quartiles {number(values['q25'])} and {number(values['q75'])}; {count(len(rows), 'head')}, n = "
        f"{count(values['n_tokens'], 'token')})."
    )
    return Finding("Function tokens", text, "class_attention", values)
