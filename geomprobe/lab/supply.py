"""What a training reads, step by step: the same for every arm, decided by the seed alone."""

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor

from geomprobe.errors import CorpusError
from geomprobe.lab.recipe import Recipe
from geomprobe.lab.text import END_ID, TextData

ORDER: Final = 1  # beside the seed: the stream of random numbers for the order of the data


class Supply(Protocol):
    """Sequences to train on, and others to measure with."""

    @property
    def sha256(self) -> str:
        """Of the data, whatever the seed."""

    def batch(self, step: int) -> Tensor:
        """The sequences of an update, counted from 0: (batch, length + 1) int64, the last a target alone."""

    def held_out(self, length: int, n: int) -> Tensor:
        """Sequences that no update sees: (n, length + 1)."""


class TextSupply:
    """Pieces of a stream of tokens, in an order that the seed draws anew each time round.

    Parameters
    ----------
    data : TextData
    recipe : Recipe

    Raises
    ------
    CorpusError
        Where the text is too short for one batch, or to measure on four times the length.
    """

    def __init__(self, data: TextData, recipe: Recipe) -> None:
        self._data, self._recipe = data, recipe
        self._n = (len(data.train) - 1) // recipe.length  # pieces
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))
        if self._n < recipe.batch or len(data.held_out) < 4 * recipe.length + 1:
            raise CorpusError(
                f"The text has {len(data.train):,} tokens to train on and {len(data.held_out):,} held out; a batch "
                f"takes {recipe.batch * recipe.length:,}, the longest measurement {4 * recipe.length + 1:,}. Give more "
                "text."
            )

    @property
    def sha256(self) -> str:
        """Of the tokens."""
        return self._data.sha256

    def batch(self, step: int) -> Tensor:
        """The pieces of an update: (batch, length + 1)."""
        recipe = self._recipe
        pieces = [self._piece(number) for number in range(step * recipe.batch, (step + 1) * recipe.batch)]
        return self.begun(_cut(self._data.train, [piece * recipe.length for piece in pieces], recipe.length))

    def _piece(self, number: int) -> int:
        """Which piece is the number-th to be read."""
        lap, at = divmod(number, self._n)
        if self._order[0] != lap:
            rng = np.random.default_rng((self._recipe.seed, ORDER, lap))
            self._order = (lap, rng.permutation(self._n))
        return int(self._order[1][at])

    def held_out(self, length: int, n: int) -> Tensor:
        """Pieces spread evenly over the held-out stream: (n, length + 1); fewer where it is short."""
        stream = self._data.held_out
        n = min(n, (len(stream) - 1) // length)
        begins = np.linspace(0, len(stream) - length - 1, n).astype(int) if n > 1 else [0]
        return self.begun(_cut(stream, [int(begin) for begin in begins], length))

    def begun(self, ids: Tensor) -> Tensor:
        """Pieces as the model reads them: (n, length + 1), with a BOS in place of the first token where the recipe
        says so. No piece predicts its own first token, so that what is predicted is the same with and without.
        """  # noqa: D205
        if self._recipe.bos:
            ids = ids.clone()
            ids[:, 0] = END_ID
        return ids


def _cut(stream: np.ndarray, begins: list[int], length: int) -> Tensor:
    return torch.from_numpy(np.stack([stream[begin : begin + length + 1] for begin in begins]).astype(np.int64))


SupplyOf = Callable[[Recipe], Supply]
