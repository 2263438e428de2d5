"""What a run of `intervene` says: what edits of queries and keys cost the model's predictions."""

from collections.abc import Callable
from typing import Any, Final

from geomprobe import edit_tables, tables
from geomprobe.labels import BALANCED, RAW
from geomprobe.pages.finding import Finding, known
from geomprobe.pages.wording import change, coded, percent
from geomprobe.run.reading import Run
from geomprobe.tables import count

TOPIC: Final = "What edits cost"
SHAM: Final = "sham"
Row = dict[Any, Any]


def _tried(run: Run) -> list[Row]:
    """The costs of all edits but the shams, in all their layers at once; nothing for a run without edits."""
    if not tables.has(run, "interventions"):
        return []
    return [row for row in edit_tables.joint_costs(run).to_dict("records") if row["edit"] != SHAM]


def _cost(row: Row, values: dict[str, float], name: str) -> str:
    """The change of the loss with its interval, kept among the values by name."""
    values[name] = float(row["delta_ce"])
    low, high = float(row["low"]), float(row["high"])
    if not known(low, high):
        return change(values[name])
    values |= {f"{name}_low": low, f"{name}_high": high}
    return f"{change(values[name])} (95% interval {change(low)} to {change(high)})"


def tell_trial(run: Run) -> Finding | None:
    """What was tried, and on how much of the text."""
    if not tables.has(run, "interventions"):
        return None
    joint = edit_tables.joint_costs(run)
    edits, n_windows = len(_tried(run)), int(run.manifest["corpus"]["n_windows"])
    tokens, documents = int(joint["n_tokens"].max()), int(joint["n_documents"].max())
    first = n_windows // 2
    text = (
        f"The first {first} of the windows told what lengths are usual; the other {n_windows - first} were read with "
        f"queries or keys changed on their way to the attention kernel, in {edit_tables.edited(run)} at once, by "
        f"{count(edits, 'edit')} and a sham ({count(tokens, 'predicted token')}, {count(documents, 'document')}). No "
        "weight was changed."
    )
    if documents < 5:
        text += " Fewer than five documents give no interval."
    values = {"n_calibrated": first, "n_tried": n_windows - first, "n_tokens": tokens, "n_documents": documents}
    return Finding(TOPIC, text, "interventions", values)


def tell_costs(run: Run) -> Finding | None:
    """The edits that cost most and least."""
    rows = sorted(_tried(run), key=lambda row: float(row["delta_ce"]))
    if not rows:
        return None
    values: dict[str, float] = {}
    most = f"{coded(rows[-1]['setting'])} changes the loss by {_cost(rows[-1], values, 'most')} nats a token"
    if len(rows) == 1:
        return Finding(TOPIC, f"{most}.", "interventions", values)
    least = f"{coded(rows[0]['setting'])} by {_cost(rows[0], values, 'least')}"
    text = f"{most}, the most of all edits, and {least}, the least."
    return Finding(TOPIC, text, "interventions", values)


def tell_turned(run: Run) -> Finding | None:
    """What lengths cost against directions that are moved as far."""
    rows = _tried(run)
    own = {(row["edit"], row["gauge"]): row for row in rows}
    parts: list[str] = []
    values: dict[str, float] = {}
    for row in rows:
        length = own.get((row["against"], row["gauge"])) if row["against"] else None
        if length is None:
            continue
        name = str(length["setting"])
        values |= {f"{name}_moved": float(length["displacement"]), f"{name}_turned": float(row["displacement"])}
        cost, turned = (_cost(given, values, f"{name}_{of}") for given, of in ((length, "length"), (row, "angle")))
        parts.append(
            f"{coded(name)} moves them by {percent(length['displacement'])} and costs {cost}, turning them by "
            f"{percent(row['displacement'])} costs {turned}"
        )
    if not parts:
        return None
    text = (
        "Keys moved by their lengths alone against keys turned as far (mean ‖k′ − k‖/‖k‖; costs in nats a token): "
        f"{'; '.join(parts)}."
    )
    return Finding(TOPIC, text, "interventions", values)


def tell_edit_gauges(run: Run) -> Finding | None:
    """Whether the same edit costs the same in both gauges; or what it means that all were made in one."""
    rows = _tried(run)
    if not rows:
        return None
    raw = {row["setting"]: row for row in rows if row["gauge"] == RAW}
    pairs = [
        (raw[name], row) for row in rows if row["gauge"] == BALANCED and (name := row["setting"].split("@")[0]) in raw
    ]
    if not any(row["gauge"] == BALANCED for row in rows):
        text = (
            "Lengths are raw here: keys can be rescaled against queries without any change to the attention, so that "
            "the same edit of lengths is another one in another gauge; @balanced behind an edit makes it in the "
            "balanced one."
        )
        return Finding(TOPIC, text, "interventions")
    if not pairs:
        return None
    values: dict[str, float] = {}
    one, other = max(pairs, key=lambda pair: abs(pair[0]["delta_ce"] - pair[1]["delta_ce"]))
    which = "The edit made in both gauges"
    if len(pairs) > 1:
        which = f"Of {len(pairs)} edits made in both gauges the one whose costs differ most"
    text = (
        f"{which}, {coded(one['setting'])}, costs {_cost(one, values, 'raw')} nats a token in the raw gauge and "
        f"{_cost(other, values, 'balanced')} in the balanced one."
    )
    if len(pairs) > 1:
        values["n_pairs"] = len(pairs)
    return Finding(TOPIC, text, "interventions", values)


def tell_sham(run: Run) -> Finding | None:
    """That handing over the same vectors costs nothing."""
    if not tables.has(run, "interventions"):
        return None
    joint = edit_tables.joint_costs(run)
    shams = {row["gauge"]: float(row["delta_ce"]) for row in joint[joint["edit"] == SHAM].to_dict("records")}
    if RAW not in shams:
        return None
    text = f"Keys rewritten with themselves change the loss by {change(shams[RAW])} nats a token"
    if BALANCED in shams:
        text += f", and by {change(shams[BALANCED])} where they are taken to the balanced gauge and back"
    return Finding(TOPIC, f"{text}: what the edits cost is their own.", "interventions", shams)


TELLERS: Final[tuple[Callable[[Run], Finding | None], ...]] = (
    tell_trial,
    tell_costs,
    tell_turned,
    tell_edit_gauges,
    tell_sham,
)
