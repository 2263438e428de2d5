"""The contract of a probe of types in context: what it looks at, and what it says of it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe.corpus.contexts import Contexts
from geomprobe.labels import RAW
from geomprobe.registry import Registry

TYPE_PROBES: Registry[type["TypeProbe"]] = Registry("probe")
SPACES = ("content", "residual", "embedding", "context")


@dataclass(frozen=True, eq=False)
class Cell:
    """Vectors of types in context, in one head of one layer.

    Attributes
    ----------
    space : {"content", "residual", "embedding", "context"}
        Of a head, of the residual stream, of the input embedding, of the tokens before the word (Contexts.bags).
    vector : str
        q or k; empty in the other spaces.
    layer, head : int
        −1 where there is none.
    x : ndarray (type, context, d), float32
    gauge : {"raw", "balanced"}
        The description of the attention that the vectors are of (stats.gauge); balanced: keys of a head alone.
    """

    space: str
    vector: str
    layer: int
    head: int
    x: NDArray[np.float32]
    gauge: str = RAW

    @property
    def key(self) -> dict[str, object]:
        """The columns that say which cell this is."""
        named = {"layer": self.layer, "vector": self.vector, "head": self.head, "space": self.space}
        return {**named, "gauge": self.gauge}


class TypeProbe(ABC):
    """A statistic of types, each seen in equally many contexts.

    A frozen dataclass of parameters, like every probe. It needs all types at once (their centre, their neighbours), so
    it has no state that merges.
    """

    n_contexts: int

    @abstractmethod
    def choose(self, contexts: Contexts) -> list[int]:
        """The types that it looks at, by index.

        Raises
        ------
        CorpusError
            Where they are too few.
        """

    @abstractmethod
    def measure(self, cells: Iterable[Cell], contexts: Contexts, chosen: list[int]) -> dict[str, pd.DataFrame]:
        """Tidy tables by name.

        Parameters
        ----------
        cells : iterable of Cell
            Each with the chosen types in their order and `n_contexts` contexts.
        contexts : Contexts
        chosen : list of int
        """
