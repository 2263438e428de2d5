"""The opening paragraphs of a comparison, in words: every sentence is made from rows of its tables."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from geomprobe.comparison.comparison import Comparison, about
from geomprobe.comparison.differing import same_weights
from geomprobe.comparison.measured import records
from geomprobe.comparison.sides import shared_characters
from geomprobe.pages.finding import Finding
from geomprobe.pages.wording import NOTHING, change, coded, listing, number, percent
from geomprobe.tables import count

DIFFERENCES: Final = "differences"
MOST_NAMED: Final = 5  # runs that a sentence lists
# What is told of in words, by paragraph: (quantity, gauge, token class, what is said of it).
TOLD: Final[Mapping[str, tuple[tuple[str, str, str, str], ...]]] = {
    "Sinks": (
        ("first_mass", "", "", "Of the attention, position 0 takes {}"),
        ("sink_rate", "", "", "Of the windows × heads, those with a sink on position 0 (α₀ > .3) are {}"),
        ("class_sink", "", "function", "Over content words beside them, function words draw, in nats, {}"),
    ),
    "Length and angle": (
        ("norm_share", "raw", "", "Of the attention past position 0, key lengths tell (raw gauge) {}"),
        ("norm_share", "balanced", "", "In the balanced gauge they tell {}"),
        ("k_log_sd", "raw", "", "The spread of key lengths (log sd, median head, raw gauge) is {}"),
        ("tv", "raw", "", "A softmax of cosines alone is off (total variation, median head, raw gauge) by {}"),
    ),
    "Logits": (
        ("entropy", "", "", "The entropy of a row of attention, in nats, is {}"),
        ("logit_max", "", "", "The largest logit stands over its row's mean, in nats, by {}"),
    ),
    "Words": (
        ("cluster_auc", "", "content", "Categories of nouns are told apart by keys (raw gauge) with an AUC of {}"),
        ("cluster_auc", "balanced", "content", "In the balanced gauge with {}"),
        ("cluster_auc", "", "residual", "By the residual stream they are with {}"),
        ("cluster_auc", "", "embedding", "By the input embedding with {}"),
    ),
    "Prediction": (
        ("loss", "", "", "The loss a token, in nats, is {}"),
        ("loss_per_character", "", "", "The loss a character, in nats, is {}"),
    ),
}


def side_findings(comparison: Comparison) -> list[Finding]:
    """What the comparison says, in the page's order."""
    made = [*_scope(comparison), Finding("What else differs", comparison.caveat, "differing"), _counted(comparison)]
    tell: Callable[[Comparison, str, tuple[str, str, str, str]], Finding | None]
    tell = _pair if comparison.sides.n == 2 else _ranked
    for topic, told in TOLD.items():
        for one in told:
            found = tell(comparison, topic, one)
            if found is not None:
                made.append(found)
    return [one for one in made if one is not None]


def _scope(comparison: Comparison) -> list[Finding]:
    sides = comparison.sides
    names = [coded(label) for label in sides.labels]
    who = listing(names) if sides.n <= MOST_NAMED else f"{sides.n} checkpoints, {names[0]} to {names[-1]},"
    said = f"{who} read {count(len(sides.documents), 'common document')}"
    if sides.same_tokens:
        text = f"{said}: the very same tokens."
    else:
        shared = shared_characters(sides)
        part = (
            f"; {percent(shared)} of the characters that any of them read were read by all" if shared == shared else ""
        )
        text = (
            f"{said}, cut into other tokens{part}. What is a mean over tokens is over each model's own; words are "
            "matched where they are one token to every model, nouns by the places where they stand in the text."
        )
    first = "" if sides.n == 2 else f" The others are held against {names[0]}."
    return [Finding("What is compared", f"{text}{first}", "manifest", {"n_documents": float(len(sides.documents))})]


def _counted(comparison: Comparison) -> Finding | None:
    table = comparison.differences
    known = table[table["low"].notna()]
    if not len(known):
        shared = count(len(comparison.sides.documents), "document")
        reason = (
            f"five documents are needed, and these runs share {shared}" if len(table) else "nothing is kept by document"
        )
        return Finding("How much differs", f"There is no interval: {reason}.", DIFFERENCES)
    apart = known[(known["low"] > 0) | (known["high"] < 0)]
    beyond = int(known["beyond"].sum())
    same = " As it should be: nothing differs." if same_weights(comparison.sides) and not len(apart) else ""
    text = (
        f"Of {count(len(known), 'difference')} with a 95% interval, {len(apart)} have an interval without 0; if "
        f"nothing differed, about {number(0.05 * len(known))} would by chance. {beyond} are beyond the band that holds "
        f"all of them together at 95%.{same}"
    )
    values = {"known": float(len(known)), "apart": float(len(apart)), "beyond": float(beyond)}
    return Finding("How much differs", text, DIFFERENCES, values)


def amount(value: float, unit: str) -> str:
    """A value as it is read: a share as a percentage."""
    return percent(value) if unit == "share" else number(value)


def gap(value: float, unit: str) -> str:
    """A difference as it is read, with its sign: of shares in percentage points."""
    if unit != "share" or value != value:
        return change(value)
    points = 100 * value
    return "0" if points == 0 else change(points)


def between(row: Mapping[str, Any]) -> str:
    """The interval of a difference, or what stands for none."""
    if row["low"] != row["low"]:
        return NOTHING
    return f"{gap(row['low'], row['unit'])} to {gap(row['high'], row['unit'])}"


def _pair(comparison: Comparison, topic: str, told: tuple[str, str, str, str]) -> Finding | None:
    name, gauge, token_class, sentence = told
    row = comparison.whole(name, gauge, token_class)
    if row is None:
        return None
    unit = str(row["unit"])
    a, b = (coded(label) for label in comparison.labels)
    points = " points" if unit == "share" else ""
    values = {key: float(row[key]) for key in ("estimate_a", "estimate_b", "difference", "low", "high")}
    if row["low"] == row["low"]:
        low, high = (gap(row[key], unit) for key in ("low", "high"))
        held = f"difference {gap(row['difference'], unit)}{points}, {low} to {high}"
        sure = "; that may be nothing" if row["low"] <= 0 <= row["high"] and row["difference"] != 0 else ""
    else:
        held, sure = f"difference {gap(row['difference'], unit)}{points}, without an interval", ""
    said = sentence.format(f"{amount(row['estimate_a'], unit)} in {a} and {amount(row['estimate_b'], unit)} in {b}")
    n = _n(row)
    return Finding(topic, f"{said[0].upper()}{said[1:]} ({held}{sure}; n = {n}).", DIFFERENCES, values)


def _n(row: Mapping[str, Any]) -> str:
    parts = []
    if row["n_types"]:
        parts.append(count(row["n_types"], "type"))
    if row["n_documents"]:
        parts.append(count(row["n_documents"], "document"))
    return " in ".join(parts)


def _ranked(comparison: Comparison, topic: str, told: tuple[str, str, str, str]) -> Finding | None:
    name, gauge, token_class, sentence = told
    ordered = records(about(comparison.values, name, gauge, token_class).dropna(subset=["estimate"]))
    ordered.sort(key=lambda row: float(row["estimate"]))
    if len(ordered) < 2:
        return None
    bottom, top = ordered[0], ordered[-1]
    unit = str(bottom["unit"])
    said = sentence.format(
        f"{amount(bottom['estimate'], unit)} ({coded(str(bottom['run']))}) to "
        f"{amount(top['estimate'], unit)} ({coded(str(top['run']))})"
    )
    values = {"low": float(bottom["estimate"]), "high": float(top["estimate"])}
    return Finding(topic, f"{said[0].upper()}{said[1:]} (n = {_n(bottom)}).", "values", values)


def command(comparison: Comparison) -> str:
    """The command that makes the comparison again."""
    paths = " ".join(str(run.path) for run in comparison.sides.runs)
    return coded(f"geomprobe compare {paths}{f' --over {comparison.over}' if comparison.over else ''}")
