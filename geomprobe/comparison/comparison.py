"""A comparison of finished runs: everything that its tables, figures and page are made of. No drawing, no torch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pandas as pd

from geomprobe import tables
from geomprobe.comparison import differing, kinds, words
from geomprobe.comparison.depths import by_depth, by_rank
from geomprobe.comparison.measured import Measured, differences, of_documents, records, values
from geomprobe.comparison.quantities import QUANTITIES
from geomprobe.comparison.sides import WHOLE, Sides
from geomprobe.errors import InvalidParameter, RunError, one_of
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import Ledger, make_ledger
from geomprobe.run.reading import Run

OVER: Final = ("step", "params")


@dataclass(eq=False)
class Comparison:
    """Runs held against the first of them.

    Attributes
    ----------
    sides : Sides
        The runs, their labels, their common documents.
    measured : tuple of Measured
        Every quantity with its draws.
    over : str
        What the runs are strung along: step, params, or nothing.
    files : tuple of Path
        What was written of it, pages first.
    """

    sides: Sides
    measured: tuple[Measured, ...]
    over: str = ""
    files: tuple[Path, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """What the runs are called."""
        return self.sides.labels

    @cached_property
    def differences(self) -> pd.DataFrame:
        """Each other run less the first, with intervals and effect sizes; columns in `measured.differences`."""
        return differences(self.measured, self.sides)

    @cached_property
    def values(self) -> pd.DataFrame:
        """Each run by itself, with its own intervals and its rank."""
        made = values(self.measured, self.sides)
        return made.assign(x=made["run"].map(self.along)) if self.over else made

    @cached_property
    def by_depth(self) -> pd.DataFrame:
        """Differences along the relative depth."""
        return by_depth(self.sides)

    @cached_property
    def by_rank(self) -> pd.DataFrame:
        """Heads by rank within their layer."""
        return by_rank(self.sides)

    @cached_property
    def differing(self) -> pd.DataFrame:
        """What else differs between the checkpoints."""
        return differing.differing(self.sides)

    @property
    def caveat(self) -> str:
        """What a difference here can mean, in words."""
        return differing.caveat(self.sides)

    @cached_property
    def ledgers(self) -> tuple[Ledger, ...]:
        """The claims, decided on each run alone; empty where a run has not what most claims need."""
        if not all(tables.of_text(run) and tables.has(run, "split", "type_stats") for run in self.sides.runs):
            return ()
        return tuple(make_ledger(Checkpoint(run)) for run in self.sides.runs)

    @property
    def along(self) -> dict[str, float]:
        """Label → training step, or number of parameters."""
        return dict(zip(self.labels, (along(run, self.over) for run in self.sides.runs), strict=True))

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables by name."""
        made = {
            "differences": self.differences,
            "values": self.values,
            "by_depth": self.by_depth,
            "by_rank": self.by_rank,
            "differing": self.differing,
        }
        if self.ledgers:
            made["claims"] = verdicts(self.ledgers, self.labels)
        return made

    def _repr_html_(self) -> str:
        # Pages lie on a higher floor: they are looked up when a notebook asks.
        return str(import_module("geomprobe.pages.side_showing").small_comparison(self))

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.labels)}: {len(self.sides.documents)} documents)"

    def whole(self, name: str, gauge: str = "", token_class: str = "", other: int = 1) -> dict[str, Any] | None:
        """The row of `differences` of a quantity over all layers, of one of the other runs, or None."""
        rows = about(self.differences, name, gauge, token_class)
        found = records(rows[rows["b"] == self.labels[other]])
        return found[0] if found else None


def about(table: pd.DataFrame, name: str, gauge: str = "", token_class: str = "") -> pd.DataFrame:
    """The rows of `differences` or `values` of a quantity over all layers."""
    wanted = {"quantity": name, "gauge": gauge, "token_class": token_class, "where": WHOLE}
    return table[(table[list(wanted)] == pd.Series(wanted)).all(axis=1)]


def along(run: Run, over: str) -> float:
    """The place of a run on the axis that it is strung along."""
    model = run.manifest["model"]
    if over == "params":
        return float(model["parameters"])
    if not model.get("training"):
        raise RunError(
            f"{run.name} does not say its training step; --over step takes checkpoints of `geomprobe train`."
        )
    return float(model["training"]["step"])


def compare_runs(
    runs: Iterable[Run], *, over: str | None = None, report: Callable[[int, int], object] | None = None
) -> Comparison:
    """Compare finished runs; the first is what the others are held against.

    Parameters
    ----------
    runs : iterable of Run
        Two or more analyses of the same documents.
    over : {"step", "params"}, optional
        String the runs along their training step or size, in ascending order.
    report : callable, optional
        Is told how many layers of word vectors are done, of how many.

    Raises
    ------
    RunError
        Where the runs cannot be compared: another kind, no common document, no step.
    """
    given = list(runs)
    if over is not None:
        one_of("over", over, OVER)
        given = _sorted(given, over)
    sides = Sides.of(given)
    return Comparison(sides, tuple(_measured(sides, report or (lambda _done, _total: None))), over or "")


def _sorted(runs: Sequence[Run], over: str) -> list[Run]:
    ordered = sorted(runs, key=lambda run: along(run, over))
    if len({along(run, over) for run in ordered}) < len(ordered):
        raise InvalidParameter(f"--over {over} needs runs that differ in it; two of these have the same.")
    return ordered


def _measured(sides: Sides, report: Callable[[int, int], object]) -> list[Measured]:
    found: list[Measured] = []
    for quantity in QUANTITIES:
        for place in (WHOLE,) if quantity.whole else sides.places:
            one = of_documents(sides, quantity, place)
            if one is not None and (quantity.name != "loss" or sides.same_tokens):
                found.append(one)
    for place in sides.places:
        found += kinds.class_sinks(sides, place)
    nouns = words.Nouns.of(sides)
    if nouns is not None:
        found += words.separations(sides, nouns, report)
    return found


def verdicts(ledgers: Sequence[Ledger], labels: Sequence[str]) -> pd.DataFrame:
    """The verdicts side by side: claim, title, and a column a run."""
    first = ledgers[0].claims[["claim", "title"]].reset_index(drop=True)
    return first.assign(
        **{
            label: [ledger.verdict(claim) for claim in first["claim"]]
            for label, ledger in zip(labels, ledgers, strict=True)
        }
    )
