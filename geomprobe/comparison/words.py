"""Words in context, side by side: how well directions separate the categories of the nouns that every side has."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import safe_open

from geomprobe import tables
from geomprobe.comparison.measured import Measured
from geomprobe.comparison.quantities import AUC
from geomprobe.comparison.sides import WHOLE, Sides
from geomprobe.labels import BALANCED
from geomprobe.run.reading import Run
from geomprobe.stats.angles import cosines
from geomprobe.stats.pairs import Pairs, auc, draws_of_types, paired_auc

Floats = NDArray[np.float64]
AUC_DRAWS: Final = 400
FILE: Final = "vectors/clusters.safetensors"
# Queries cost as much as all others, and say as keys.
IN_BALANCED: Final = f"content_{BALANCED}"
SPACES: Final = {"content": "k", IN_BALANCED: "k", "residual": "", "embedding": ""}
TITLES: Final = {
    "content": "AUC of categories, keys",
    IN_BALANCED: "AUC of categories, keys",
    "residual": "AUC of categories, residual stream",
    "embedding": "AUC of categories, input embedding",
}
LEAST_CATEGORIES: Final = 3
LEAST_WORDS: Final = 4


@dataclass(frozen=True, eq=False)
class Nouns:
    """The nouns that every side has vectors of, by category.

    Attributes
    ----------
    words : tuple of str
    categories : tuple of str
        Of each word.
    """

    words: tuple[str, ...]
    categories: tuple[str, ...]

    @classmethod
    def of(cls, sides: Sides) -> "Nouns | None":
        """The common nouns of the categories that keep four of them; None where that is less than three categories."""
        if not all(tables.has(run, "clusters", "types") and (run.path / FILE).is_file() for run in sides.runs):
            return None
        known = [_categories(run) for run in sides.runs]
        common = {word: name for word, name in known[0].items() if all(one.get(word) == name for one in known)}
        sizes = pd.Series(common, dtype=object).value_counts()
        kept = {word: name for word, name in common.items() if sizes[name] >= LEAST_WORDS}
        if len(set(kept.values())) < LEAST_CATEGORIES:
            return None
        return cls(tuple(kept), tuple(kept.values()))

    @property
    def n(self) -> int:
        """How many."""
        return len(self.words)

    @cached_property
    def pairs(self) -> Pairs:
        """All pairs of them."""
        return Pairs.of(np.array(self.categories, dtype=object))


def _saved(run: Run) -> list[str]:
    """The words of the rows of a run's vectors."""
    with safe_open(run.path / FILE, framework="np") as file:
        return list(json.loads(file.metadata()["types"]))


def _categories(run: Run) -> dict[str, str]:
    """Word → category, of the nouns that a run has vectors of."""
    named = run.tables["types"].set_index("word")["category"]
    return {word: str(named[word]) for word in _saved(run) if word in named.index}


def shared_contexts(sides: Sides, nouns: Nouns) -> float:
    """Places in the text (document and first character) where every side looked at a noun, of those where any did."""
    places = []
    for run in sides.runs:
        rows = run.tables["contexts"]
        rows = rows[rows["word"].isin(nouns.words)]
        places.append(set(zip(rows["word"], rows["document"], rows["start"], strict=True)))
    every, some = set.intersection(*places), set.union(*places)
    return len(every) / len(some) if some else float("nan")


def separations(sides: Sides, nouns: Nouns, report: Callable[[int, int], object]) -> list[Measured]:
    """AUC of the common nouns' categories: in keys (means over heads), residual stream and embedding.

    Nouns are drawn with replacement, the same on every side, so that differences are paired. The vectors are those that
    the runs saved, seen from the centre of all nouns of their run.

    Parameters
    ----------
    sides : Sides
    nouns : Nouns
    report : callable
        Is told how many layers are done, of how many.
    """
    drawn = draws_of_types(nouns.n, AUC_DRAWS, np.random.default_rng(0))
    blocks = [_blocks(run) for run in sides.runs]
    shared = set.intersection(*({space for space, _ in own.values()} for own in blocks))
    if not all(_layers(own, IN_BALANCED) == _layers(own, "content") for own in blocks):
        shared.discard(IN_BALANCED)  # means over other layers would be held beside those in the raw gauge
    wanted = [{name: key for name, key in own.items() if key[0] in shared} for own in blocks]
    total = sum(len(own) for own in wanted)
    found: list[dict[tuple[str, int], tuple[float, Floats]]] = []
    done = 0
    for run, names in zip(sides.runs, wanted, strict=True):
        own = {}
        for key, matrices in _matrices(run, nouns, names):
            each = [(auc(value, nouns.pairs.within), paired_auc(value, nouns.pairs, drawn)) for value in matrices]
            own[key] = float(np.mean([one for one, _ in each])), np.mean([draws for _, draws in each], axis=0)
            done += 1
            report(done, total)
        found.append(own)
    same = shared_contexts(sides, nouns)
    note = f"{100 * same:.0f}% of the places in the text are the same" if same < 1 else ""
    made = []
    for space in SPACES:
        for place in (WHOLE,) if space == "embedding" else sides.places:
            picked = [_mean(own, space, sides, index, place) for index, own in enumerate(found)]
            if all(one is not None for one in picked):
                both = [one for one in picked if one is not None]
                made.append(
                    Measured(
                        "cluster_auc",
                        TITLES[space],
                        AUC,
                        place,
                        np.array([estimate for estimate, _ in both]),
                        np.stack([draws for _, draws in both]),
                        gauge=BALANCED if space == IN_BALANCED else "",
                        token_class="content" if space == IN_BALANCED else space,
                        n_types=nouns.n,
                        note=note,
                    )
                )
    return made


def _mean(
    own: dict[tuple[str, int], tuple[float, Floats]], space: str, sides: Sides, index: int, place: str
) -> tuple[float, Floats] | None:
    wanted = {-1} if space == "embedding" else set(sides.layers(index, place))
    chosen = [value for (kind, layer), value in own.items() if kind == space and layer in wanted]
    if not chosen:
        return None
    return float(np.mean([one for one, _ in chosen])), np.mean([draws for _, draws in chosen], axis=0)


def _blocks(run: Run) -> dict[str, tuple[str, int]]:
    """Saved vectors that are compared: name → space and layer."""
    found = {}
    with safe_open(run.path / FILE, framework="np") as file:
        for name in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
            space, vector, layer = name.split(".", 2)
            if SPACES.get(space) == vector.replace("x", ""):
                found[name] = space, int(layer)
    return found


def _layers(blocks: Mapping[str, tuple[str, int]], space: str) -> set[int]:
    return {layer for own, layer in blocks.values() if own == space}


def _matrices(
    run: Run, nouns: Nouns, names: Mapping[str, tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], list[Floats]]]:
    """For each space and layer, the cosines of all pairs of the nouns, head by head."""
    rows = {word: row for row, word in enumerate(_saved(run))}
    chosen = np.array([rows[word] for word in nouns.words])
    with safe_open(run.path / FILE, framework="np") as file:
        for name, key in names.items():
            block = file.get_tensor(name)[chosen].astype(np.float32)  # (type, head, d)
            heads = [nouns.pairs.values(cosines(block[:, head])) for head in range(block.shape[1])]
            yield key, heads
