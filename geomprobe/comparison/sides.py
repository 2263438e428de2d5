"""The runs that are compared, side by side: their names, the documents that all of them read, how layers meet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe import tables
from geomprobe.errors import RunError
from geomprobe.pooling import Pooled
from geomprobe.run.reading import Run

WHOLE: Final = "all layers"
STEPS: Final = "steps"  # the folder in which a training keeps its checkpoints
THIRDS: Final = ("early", "middle", "late")


@dataclass(frozen=True, eq=False)
class Sides:
    """Finished analyses that read the same documents; the first is what the others are held against.

    Attributes
    ----------
    runs : tuple of Run
        Two or more.
    labels : tuple of str
        What they are called here: the models' names, told apart where they are alike.
    """

    runs: tuple[Run, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, runs: Iterable[Run]) -> "Sides":
        """Runs in the order in which they were given.

        Raises
        ------
        RunError
            Where there are fewer than two, one is not of an analysis, or they share no document.
        """
        given = tuple(runs)
        if len(given) < 2:
            raise RunError(f"compare needs two runs or more; got {len(given)}.")
        for run in given:
            if tables.kind(run) != tables.ANALYSIS:
                raise RunError(f"{str(run.path)!r} holds interventions; compare takes runs of `geomprobe analyze`.")
        if len({tables.of_text(run) for run in given}) > 1:
            raise RunError("Some of these runs read texts and some looked at images; compare runs of one kind.")
        made = cls(given, labels_of(given))
        if not made.documents:
            texts = ", ".join(sorted({str(run.manifest["corpus"]["name"]) for run in given}))
            raise RunError(
                f"These runs share no document (they read {texts}); analyze the models on the same text, with the same "
                "--text or --dataset."
            )
        return made

    @property
    def n(self) -> int:
        """How many runs."""
        return len(self.runs)

    @cached_property
    def documents(self) -> tuple[str, ...]:
        """The documents that every run read, in the order of the first."""
        named = [set(document_names(run)) for run in self.runs]
        return tuple(name for name in document_names(self.runs[0]) if all(name in each for each in named))

    @cached_property
    def same_tokens(self) -> bool:
        """Whether all runs read the very same tokens."""
        return len({run.manifest["corpus"]["tokens_sha256"] for run in self.runs}) == 1

    @cached_property
    def same_thirds(self) -> bool:
        """Whether the parts of the depth mean the same in all runs: as many, and of the same stacks."""
        kinds = {(tuple(tables.parts(run)), len(tables.thirds(run))) for run in self.runs}
        return len(kinds) == 1

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Where quantities are compared: all layers, and the thirds of the depth or the parts of two stacks."""
        if not self.same_thirds or len(tables.thirds(self.runs[0])) < 2:
            return (WHOLE,)
        return (WHOLE, *(tuple(tables.parts(self.runs[0])) or THIRDS))

    def layers(self, index: int, place: str) -> list[int]:
        """The layers of a run that are meant by one of `places`."""
        run = self.runs[index]
        if place == WHOLE:
            return tables.layers(run)
        return tables.thirds(run)[self.places.index(place) - 1]

    def aligned(self, owned: Sequence[tuple[int, Pooled]]) -> tuple[list[Pooled], list[str]]:
        """Quantities of sides, (side, quantity), over the documents that all of them are known for, in one order."""
        named = [
            dict(zip(_named(self.runs[side], one.data.documents), range(one.data.n), strict=True))
            for side, one in owned
        ]
        common = [name for name in self.documents if all(name in each for each in named)]
        return [one.only([each[name] for name in common]) for (_, one), each in zip(owned, named, strict=True)], common

    def document_ids(self, index: int) -> dict[str, int]:
        """Name → number in the tables of a run, of the documents that all runs read."""
        found = {name: number for number, name in enumerate(document_names(self.runs[index]))}
        return {name: found[name] for name in self.documents}


def _named(run: Run, documents: NDArray[np.int64] | None) -> list[str]:
    assert documents is not None
    names = document_names(run)
    return [names[number] for number in documents]


def document_names(run: Run) -> list[str]:
    """The names of a run's documents; a name that comes again is told apart by its place among its like."""
    given: list[str] = run.manifest["corpus"]["documents"]
    taken, seen, names = set(given), dict[str, int](), list[str]()
    for name in given:
        seen[name] = seen.get(name, 0) + 1
        told = name
        while seen[name] > 1 and told in taken:  # another document may be called "name (2)"
            told = f"{name} ({seen[name]})"
            seen[name] += told in taken
        taken.add(told)
        names.append(told)
    return names


def labels_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """The names of models, told apart: by training step, by their folder, at last by a number."""
    names = [tables.plain(_called(run)) for run in runs]
    for tell in (_step, lambda run: tables.plain(run.path.name)):
        if len(set(names)) == len(names):
            break
        again = {name for name in names if names.count(name) > 1}
        names = [
            f"{name} ({tell(run)})" if name in again and tell(run) else name
            for name, run in zip(names, runs, strict=True)
        ]
    seen: dict[str, int] = {}
    made = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        made.append(f"{name} #{seen[name]}" if names.count(name) > 1 else name)
    return tuple(made)


def _called(run: Run) -> str:
    """The model's name; of a checkpoint in a folder the folder's, of one of many steps that of the training.

    A path says more of the machine than of the model, and one prefix makes all alike.
    """
    if run.manifest["model"].get("source") != "folder":
        return run.name
    path = PurePath(run.name)
    step = run.manifest["model"].get("training") and path.parent.name == STEPS
    return (path.parent.parent.name if step else path.name) or run.name


def _step(run: Run) -> str:
    training = run.manifest["model"].get("training")
    return f"step {training['step']:,}" if training else ""


def depth(run: Run) -> pd.Series:
    """Layer → relative depth: the i-th of L attention layers (from 0) is at (i + ½)/L."""
    every = tables.layers(run)
    return pd.Series((np.arange(len(every)) + 0.5) / len(every), index=pd.Index(every, name="layer"))


def common_depths(sides: Sides) -> NDArray[np.float64]:
    """The relative depths of the layers of the run that has fewest."""
    return min((depth(run).to_numpy() for run in sides.runs), key=len)


def windows_read(run: Run) -> dict[str, list[tuple[int, int]]]:
    """Document → the stretches of characters that were read of it, in order."""
    names = document_names(run)
    found: dict[str, list[tuple[int, int]]] = {}
    for window in run.manifest["corpus"].get("windows", []):
        if "char_start" in window:
            found.setdefault(names[window["document"]], []).append((window["char_start"], window["char_end"]))
    return {name: sorted(stretches) for name, stretches in found.items()}


def shared_characters(sides: Sides) -> float:
    """Characters that every run read, as a share of those that any run read; NaN for images."""
    read = [windows_read(run) for run in sides.runs]
    names = set().union(*read)
    every = some = 0
    for name in names:
        sets: list[Any] = [_covered(one.get(name, [])) for one in read]
        every += len(set.intersection(*sets))
        some += len(set.union(*sets))
    return every / some if some else float("nan")


def _covered(stretches: Iterable[tuple[int, int]]) -> set[int]:
    return {place for start, end in stretches for place in range(start, end)}
