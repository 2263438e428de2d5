"""The pictures of the evidence: what draws each, what it shows, and why there may be nothing to draw."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geomprobe.evidence.final_figures import (
    SPACES,
    draw_backcopy,
    draw_clusters,
    draw_loss_gaps,
    draw_parents,
    draw_spread,
    path,
)
from geomprobe.evidence.forest import draw_forest, rows_of, size_of
from geomprobe.evidence.records import SHORT_SINK, Records, at_equal_loss
from geomprobe.evidence.tables import BACKCOPY, Evidence, arms_of
from geomprobe.evidence.training_figures import (
    draw_first_mass,
    draw_growth,
    draw_losses,
    draw_radial,
    draw_stability,
    main_arms,
    sink_group,
    sink_number,
)
from geomprobe.evidence.twins import NORMED, PLAIN, SHORT, STABILITY
from geomprobe.figures.saving import DPI
from geomprobe.figures.style import style
from geomprobe.pages.wording import listing

WIDTH: Final = 10.0  # inches; at 150 dpi 1500 pixels, read at about 1000


@dataclass(frozen=True)
class Picture:
    """A picture of the evidence.

    Attributes
    ----------
    draw : callable
        ``(evidence, ax) -> ax``; draws into the axes, neither creates a figure nor saves one.
    title : str
    alt : str
        What is to be seen, for a reader who cannot see it.
    caption : callable
        ``(evidence) -> str``: the quantity, the rows used, n.
    missing : callable
        ``(evidence) -> str``: why there is nothing to draw, in a sentence; empty where there is.
    size : callable
        ``(evidence) -> (width, height)`` in inches.
    """

    draw: Callable[[Evidence, Axes], Axes]
    title: str
    alt: str
    caption: Callable[[Evidence], str]
    missing: Callable[[Evidence], str]
    size: Callable[[Evidence], tuple[float, float]]


def _of_records(draw: Callable[[Records, Axes], Axes]) -> Callable[[Evidence, Axes], Axes]:
    return lambda evidence, ax: draw(evidence.records, ax)


def _tall(inches: float) -> Callable[[Evidence], tuple[float, float]]:
    return lambda _: (WIDTH, inches)


def seeds_of(records: Records, group: str, arms: list[str]) -> str:
    """How many seeds of each arm of a group there are: "n = 6 seeds of A0 and A1, 3 of A2"."""
    by_n: dict[int, list[str]] = {}
    for arm in arms:
        by_n.setdefault(len(set(records.seeds(group, arm))), []).append(arm)
    parts = [f"{n} of {listing(own)}" for n, own in sorted(by_n.items(), reverse=True)]
    return f"Seeds (group {group}): {', '.join(parts)}."


def _needs(number: str, group: str = SHORT) -> Callable[[Evidence], str]:
    """A `missing` for a picture of one number at the end of a group's runs."""

    def missing(evidence: Evidence) -> str:
        table = evidence.records.table
        own = table[table["group"] == group]
        if not len(own):
            return f"There are no runs of the group {group} yet."
        known = number in own and own[number].notna().any()
        return "" if known else f"The runs of the group {group} have no {number}."

    return missing


def _needs_curves(column: str) -> Callable[[Evidence], str]:
    """The same for a picture of what the two main arms' trainings measured on the way."""

    def missing(evidence: Evidence) -> str:
        records = evidence.records
        names = [name for arm in (PLAIN, NORMED) for name in records.rows(SHORT, arm)["name"]]
        if not names:
            return f"There are no runs of {PLAIN} or {NORMED} in the group {SHORT} yet."
        measured = any(row.get(column) is not None for name in names for row in records.whole[name]["curves"])
        return "" if measured else f"No run of {PLAIN} or {NORMED} measured {column}."

    return missing


def _no_rows(evidence: Evidence) -> str:
    return "" if rows_of(evidence) else "No deciding contrast has a seed yet."


def _no_clusters(evidence: Evidence) -> str:
    records = evidence.records
    for arm in (PLAIN, NORMED):
        for name in records.rows(SHORT, arm)["name"]:
            if any(path(records, str(name), f"auc_{space}")["value"].notna().any() for space in SPACES):
                return ""
    return f"No run of {PLAIN} or {NORMED} in the group {SHORT} has measured clusters yet."


def _no_gaps(evidence: Evidence) -> str:
    records = evidence.records
    others = [arm for arm in arms_of(records, SHORT) if arm != NORMED]
    if any(len(records.paired(SHORT, arm, NORMED, "loss_1x")) for arm in others):
        return ""
    return f"No arm of the group {SHORT} shares a seed with {NORMED} yet."


def _no_first_mass(evidence: Evidence) -> str:
    return _needs("first_mass", sink_group(evidence.records))(evidence)


def _no_rates(evidence: Evidence) -> str:
    return "" if evidence.records.rates(STABILITY) else f"There are no runs of the group {STABILITY} yet."


def _of_short(evidence: Evidence) -> str:
    return seeds_of(evidence.records, SHORT, arms_of(evidence.records, SHORT))


def _of_main(evidence: Evidence) -> str:
    return seeds_of(evidence.records, SHORT, main_arms(evidence.records, SHORT))


def _about_clusters(evidence: Evidence) -> str:
    n = {
        space: len(at_equal_loss(evidence.records, SHORT, (PLAIN, NORMED), f"auc_{space}")[NORMED]) for space in SPACES
    }
    return (
        "AUC of word categories (.5: chance) at the last saved steps of each run against the held-out loss there, mean "
        "over heads and layers past the first; keys in the raw gauge (the balanced one is in the table). Rings: where "
        "both arms of a seed have had the same loss, read off the line between measured steps; "
        f"{n['keys']} seeds in keys, {n['residual']} in the residual stream. "
        f"{_of_main(evidence)}"
    )


def _about_first_mass(evidence: Evidence) -> str:
    records, group = evidence.records, sink_group(evidence.records)
    windows = "in windows of 64 tokens" if sink_number(records, group) == SHORT_SINK else "on 32 windows"
    return (
        "Mean attention to position 0 over heads and layers. Left: of the queries from position 16 on, on two held-out "
        f"sequences of the training length; right: of all queries but the first, {windows} of held-out text, so "
        f"that uniform attention (dotted) is another number there. {seeds_of(records, group, arms_of(records, group))}"
    )


def _about_stability(evidence: Evidence) -> str:
    records = evidence.records
    seeds = {
        f"{arm} at {rate:g}": len(records.rows(STABILITY, arm, rate))
        for arm in main_arms(records, STABILITY)
        for rate in records.rates(STABILITY)
    }
    gone = records.table[(records.table["group"] == STABILITY) & records.table["loss_1x"].isna()]
    lost = f" {len(gone)} runs have no final loss." if len(gone) else ""
    few, many = min(seeds.values()), max(seeds.values())
    n = str(many) if few == many else f"{few} to {many}"
    return f"Lines join means over seeds. n = {n} seeds a rate and arm.{lost}"


def _about_backcopy(evidence: Evidence) -> str:
    return (
        "One layer, one head, on the Bigram–Backcopy task. Idle rows: queries from position 16 on whose next token "
        "needs no attention. The logit gap is the first key's logit less the mean of the others', parted into what "
        "comes by the cosine and what by length, which add up to it. "
        f"{seeds_of(evidence.records, BACKCOPY, arms_of(evidence.records, BACKCOPY))}"
    )


PICTURES: Final = MappingProxyType(
    {
        "forest": Picture(
            draw_forest,
            "What decides each claim",
            "A row a deciding contrast: its seeds as dots, their mean and interval on a strip whose shaded parts speak "
            "for or against the claim, the numbers, and the verdict.",
            lambda evidence: (
                "Each strip has a scale of its own, in the contrast's unit, with the rule's bounds as dotted lines. "
                "Shaded: where an interval would have to lie to speak for the claim (plain) or against it (hatched). "
                f"Bars: intervals at the part of the claim's level by Holm (m = {evidence.n_tested}) at which the "
                "contrast is asked; none with one seed. Diamonds: means over seeds."
            ),
            _no_rows,
            size_of,
        ),
        "losses": Picture(
            _of_records(draw_losses),
            "Held-out loss over training",
            "Two panels by step on a log axis: held-out loss of each arm, and its difference to A0 of the same seed.",
            lambda evidence: (
                "Held-out loss at the training length on the short held-out text, at saved steps. Right: from a "
                "twelfth of them on; the axis is linear to ±.05 and logarithmic beyond. Thick: mean over seeds. "
                f"{_of_short(evidence)}"
            ),
            _needs("loss_1x"),
            _tall(5.4),
        ),
        "loss_gaps": Picture(
            _of_records(draw_loss_gaps),
            f"Final loss of each arm less that of {NORMED}",
            "Three panels, at one, two and four times the training length: a dot a seed by arm, zero line, margin.",
            lambda evidence: (
                f"Held-out loss of an arm less that of {NORMED} of the same seed, in nats a token; bars: means. The "
                "axis is linear to ±.05 and logarithmic beyond; the grey band is the margin of C6q. Hollow: the second "
                f"of two arms of one colour. {_of_short(evidence)}"
            ),
            _no_gaps,
            _tall(3.9),
        ),
        "growth": Picture(
            _of_records(draw_growth),
            "Lengths of keys and queries over training",
            "Four panels by step: mean log length of keys and queries, as projected and as scored, of A0 and A1.",
            lambda evidence: (
                "Mean log length over heads, layers and positions but the first, on two held-out sequences. Without a "
                f"norm both stages are the same. {_of_main(evidence)}"
            ),
            _needs_curves("log_length_k"),
            _tall(6.0),
        ),
        "radial": Picture(
            _of_records(draw_radial),
            "How radial updates of query and key weights are",
            "Two panels by step: the radial share of updates over that of a random step, of A0 and A1, on a log axis.",
            lambda evidence: (
                "Squared cosine between an update and the weights it changes, head by head, with weight decay given "
                f"back; over 1/d, which a random step has. Mean over layers. {_of_main(evidence)}"
            ),
            _needs_curves("radial_share_k"),
            _tall(4.0),
        ),
        "clusters": Picture(
            _of_records(draw_clusters),
            "Clusters by loss",
            "Two panels, keys and residual stream: AUC of word categories against held-out loss, a line a run.",
            _about_clusters,
            _no_clusters,
            _tall(4.2),
        ),
        "parents": Picture(
            _of_records(draw_parents),
            "Where the parents of renamed words stand",
            "Three panels, keys, residual stream, embedding: the place of the parent word by arm, a dot a seed.",
            lambda evidence: (
                "In training some of a frequent word's occurrences were renamed: so few that it is rare, or half of "
                "them. Place: share of the other parents that lie nearer by cosine than its own (0: none). Mean over "
                f"words, heads and layers past the first; bars: means over seeds. {_of_short(evidence)}"
            ),
            _needs("parent_place_keys_rare"),
            _tall(4.2),
        ),
        "spread": Picture(
            _of_records(draw_spread),
            "Spread of key lengths and distance from cosines",
            "Two panels by arm on log axes, a dot a seed, with the thresholds of C3 as dotted lines.",
            lambda evidence: (
                "Median head, position 0 out, raw gauge; bars: means over seeds. Total variation (TV) is between the "
                f"attention and a softmax of cosines at the head's own mean temperature. {_of_short(evidence)}"
            ),
            _needs("k_log_sd"),
            _tall(4.2),
        ),
        "first_mass": Picture(
            _of_records(draw_first_mass),
            "Attention on the first position",
            "Two panels: attention on position 0 by step, and at the end by arm, with that of uniform attention.",
            _about_first_mass,
            _no_first_mass,
            _tall(4.2),
        ),
        "stability": Picture(
            _of_records(draw_stability),
            "Loss and largest logit by learning rate",
            "Two panels by learning rate on a log axis: final held-out loss and largest logit of A0 and A1.",
            _about_stability,
            _no_rates,
            _tall(4.0),
        ),
        "backcopy": Picture(
            _of_records(draw_backcopy),
            "Sinks of idle rows in Backcopy",
            "Four panels by arm, a dot a seed: attention on the first position, length of its key, cosines, logit gap.",
            _about_backcopy,
            _needs("idle_first_layer0", BACKCOPY),
            _tall(6.6),
        ),
    }
)


def save(picture: Picture, evidence: Evidence, file: Path) -> Path:
    """Write a picture as PNG, the same bytes from the same records, by rename."""
    with style():
        figure = Figure(figsize=picture.size(evidence), layout="constrained")
        picture.draw(evidence, figure.add_subplot())
        part = file.with_name(f"{file.name}.part")
        figure.savefig(part, dpi=DPI, format="png", metadata={"Software": None})
    return part.replace(file)
