"""The second pass: chosen words at the end of windows of their own, and the vectors that the model makes of them."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.seam import Seen, watching
from geomprobe.attention.spec import ModelSpec
from geomprobe.attention.stages import Notebook
from geomprobe.corpus.contexts import Contexts
from geomprobe.labels import ALL_HEADS, BALANCED, WHOLE_MODEL
from geomprobe.models.calling import run as call
from geomprobe.models.calling import text_inputs
from geomprobe.probes.typed import Cell

NOTE: Final = "collection.json"
STORE: Final = "collection.f32"
SAVE_EVERY: Final = 60.0


@dataclass(frozen=True)
class Column:
    """Where the vectors of one layer lie in a row of the store.

    Attributes
    ----------
    space : {"content", "residual", "embedding"}
    vector : str
        q or k; empty in the other spaces.
    layer : int
        −1 for the embedding.
    offset, heads, width : int
    """

    space: str
    vector: str
    layer: int
    offset: int
    heads: int
    width: int


class Collection:
    """A pass over contexts, with the vectors of each one's last token.

    They are kept in a file, a row a context, and not in memory: so the pass can go on where it was stopped.

    Parameters
    ----------
    spec : ModelSpec
    contexts : Contexts
    folder : Path
        Where the file lies.
    gauges : mapping from layer to ndarray (kv_head, d, d), optional
        The balanced gauges of the keys (`key_gauges`).
    """

    def __init__(
        self,
        spec: ModelSpec,
        contexts: Contexts,
        folder: Path,
        gauges: Mapping[int, NDArray[np.float64]] = MappingProxyType({}),
    ) -> None:
        self.spec, self.contexts, self.folder, self.gauges = spec, contexts, folder, gauges
        self.columns: tuple[Column, ...] = ()
        self.done = 0
        self._store: Any = None

    def resume(self) -> bool:
        """Take up what an earlier pass left in the folder; whether there was anything."""
        note = self.folder / NOTE
        if not note.exists():
            return False
        said = json.loads(note.read_text(encoding="utf-8"))
        self.columns = tuple(Column(**column) for column in said["columns"])
        self._open("r+")
        self.done = int(said["done"])
        return True

    def run(
        self,
        model: Module,
        *,
        batch_size: int,
        report: Callable[[int], None] = lambda _done: None,
        notebook: Notebook | None = None,
    ) -> None:
        """Let the contexts that are not yet in the file flow through the model.

        Parameters
        ----------
        model : Module
            Its head, which predicts tokens, does not run.
        batch_size : int
            Windows a forward pass.
        report : callable
            Told how many contexts are done, after each batch.
        notebook : Notebook, optional
            That of `examine`.
        """
        saved = time.monotonic()
        total = self.contexts.n_contexts
        # The body is called alone, but all of the model is watched: its layers are named from its root.
        body: Any = getattr(model, "base_model", model)
        embed: Any = body.get_input_embeddings()
        device = next(model.parameters()).device
        found: dict[tuple[str, str, int], Tensor] = {}
        layers = {layer.module: layer for layer in self.spec.layers}

        def see(seen: Seen) -> None:
            if seen.call.name in layers:
                for vector in ("k", "q"):
                    content = seen.stages(vector).get("content")
                    if content is not None:
                        found["content", vector, layers[seen.call.name].layer] = content[:, :, -1]

        with torch.no_grad(), watching(model, see, stages=notebook if notebook is not None else True):
            while self.done < total:
                batch = slice(self.done, min(self.done + batch_size, total))
                ids = torch.from_numpy(self.contexts.ids[batch]).to(device)
                found.clear()
                hidden = getattr(
                    call(body, {**text_inputs(model, ids), "output_hidden_states": True}), "hidden_states", None
                )
                if hidden is not None and not any(layer.part for layer in self.spec.layers):
                    found.update(
                        {
                            ("residual", "", layer.layer): hidden[layer.layer][:, -1:]
                            for layer in self.spec.layers
                            if layer.layer < len(hidden)
                        }
                    )
                found["embedding", "", WHOLE_MODEL] = embed(ids[:, -1:])
                self._keep(batch, found)
                self.done = batch.stop
                report(self.done)
                if time.monotonic() - saved > SAVE_EVERY or self.done == total:
                    self._save()
                    saved = time.monotonic()

    def _keep(self, batch: slice, found: dict[tuple[str, str, int], Tensor]) -> None:
        if not self.columns:
            self.columns = _columns(found)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._open("w+")
        for column in self.columns:
            block = found[column.space, column.vector, column.layer].float().cpu().flatten(1).numpy()
            self._store[batch, column.offset : column.offset + column.heads * column.width] = block

    def _open(self, mode: str) -> None:
        last = self.columns[-1]
        shape = (self.contexts.n_contexts, last.offset + last.heads * last.width)
        self._store = np.memmap(self.folder / STORE, dtype=np.float32, mode=mode, shape=shape)  # type: ignore[call-overload]

    def _save(self) -> None:
        self._store.flush()
        part = self.folder / f"{NOTE}.part"
        part.write_text(json.dumps({"done": self.done, "columns": [vars(c) for c in self.columns]}), encoding="utf-8")
        part.replace(self.folder / NOTE)

    @property
    def n_cells(self) -> int:
        """How many cells `cells` yields."""
        return sum(column.heads * (1 if self._gauge(column) is None else 2) for column in self.columns)

    def _gauge(self, column: Column) -> NDArray[np.float64] | None:
        """The balanced gauge of a column; None where it has none."""
        return self.gauges.get(column.layer) if (column.space, column.vector) == ("content", "k") else None

    def cells(self, chosen: Sequence[int], n: int) -> Iterator[Cell]:
        """The first n contexts of some types, head after head and layer after layer, the embedding first.

        Keys whose layer has a balanced gauge come in the raw gauge and then in that one, uncentred in either.

        Parameters
        ----------
        chosen : sequence of int
            Indices of types.
        n : int
        """
        rows = self.contexts.rows(chosen, n)
        for column in sorted(self.columns, key=lambda c: (c.layer, c.space, c.vector)):
            at = slice(column.offset, column.offset + column.heads * column.width)
            block = np.asarray(self._store[:, at])[rows.ravel()]
            shaped = block.reshape(*rows.shape, column.heads, column.width)  # (type, context, head, d)
            for head in range(column.heads):
                named = head if column.space == "content" else ALL_HEADS
                yield Cell(column.space, column.vector, column.layer, named, shaped[:, :, head])
            gauge = self._gauge(column)
            if gauge is not None:
                for head in range(column.heads):
                    x = (shaped[:, :, head] @ gauge[head]).astype(np.float32)
                    yield Cell(column.space, column.vector, column.layer, head, x, BALANCED)


def _columns(found: dict[tuple[str, str, int], Tensor]) -> tuple[Column, ...]:
    columns, offset = [], 0
    for (space, vector, layer), x in found.items():
        heads, width = x.shape[1], x.shape[2]
        columns.append(Column(space, vector, layer, offset, heads, width))
        offset += heads * width
    return tuple(columns)
