"""The second pass: chosen words at the end of windows of their own, and the vectors that the model makes of them."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.seam import Seen, watching
from geomprobe.attention.spec import LayerSpec, ModelSpec
from geomprobe.attention.stages import Notebook
from geomprobe.corpus.contexts import Contexts
from geomprobe.labels import ALL_HEADS, BALANCED, WHOLE_MODEL
from geomprobe.models.calling import run as call
from geomprobe.models.calling import text_inputs
from geomprobe.probes.typed import Cell
from geomprobe.stats import gauge as gauges

NOTE: Final = "collection.json"
STORE: Final = "collection.f32"
MOMENTS: Final = ".moments"
SAVE_EVERY: Final = 60.0
_TURNED: Final = 1e-2  # of a vector's length, that rounding to bfloat16 may be off


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

    They are kept in a file, a row a context, and not in memory: so the pass can go on where it was stopped. For the
    balanced gauge of a layer the moments of its queries and keys are summed over all tokens of the contexts but the
    first of each.

    Parameters
    ----------
    spec : ModelSpec
    contexts : Contexts
    folder : Path
        Where the file lies.
    """

    def __init__(self, spec: ModelSpec, contexts: Contexts, folder: Path) -> None:
        self.spec, self.contexts, self.folder = spec, contexts, folder
        self.columns: tuple[Column, ...] = ()
        self.done = 0
        self._store: Any = None
        self._moments: dict[int, gauges.Moments] = {}  # of the layers whose keys have a balanced gauge

    def resume(self) -> bool:
        """Take up what an earlier pass left in the folder; whether there was anything."""
        note = self.folder / NOTE
        if not note.exists():
            return False
        said = json.loads(note.read_text(encoding="utf-8"))
        moments = self._moments_file(said["done"])
        if not moments.exists():  # what another version left
            return False
        self._moments = torch.load(moments, weights_only=True)
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
                self._add_moments(layers[seen.call.name], seen)

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

    def _add_moments(self, layer: LayerSpec, seen: Seen) -> None:
        """Add a batch to the moments of a layer; the first batch tells which layers have any."""
        query, key = seen.call.query, seen.call.key
        if not self.columns and layer.pairs is not None:
            content = seen.stages("k").get("content")
            if content is not None and _turned(content, key, _pairing(layer)):
                self._moments[layer.layer] = gauges.empty(key.shape[1], key.shape[3])
        if layer.layer in self._moments:
            gauges.add(self._moments[layer.layer], query, key)

    def _gauge(self, column: Column) -> gauges.Gauge | None:
        """The balanced gauge of a column; None where it has none."""
        if (column.space, column.vector) != ("content", "k") or column.layer not in self._moments:
            return None
        layer = next(layer for layer in self.spec.layers if layer.layer == column.layer)
        centred = layer.softcap is None and not layer.learned_sinks
        return gauges.balanced(self._moments[column.layer], _pairing(layer), centred=centred)

    def _moments_file(self, done: int) -> Path:
        return self.folder / f"{done:08d}{MOMENTS}"

    def _open(self, mode: str) -> None:
        last = self.columns[-1]
        shape = (self.contexts.n_contexts, last.offset + last.heads * last.width)
        self._store = np.memmap(self.folder / STORE, dtype=np.float32, mode=mode, shape=shape)  # type: ignore[call-overload]

    def _save(self) -> None:
        self._store.flush()
        torch.save(self._moments, self._moments_file(self.done))
        part = self.folder / f"{NOTE}.part"
        part.write_text(json.dumps({"done": self.done, "columns": [vars(c) for c in self.columns]}), encoding="utf-8")
        part.replace(self.folder / NOTE)
        for older in self.folder.glob(f"*{MOMENTS}"):
            if older != self._moments_file(self.done):
                older.unlink()

    @property
    def n_cells(self) -> int:
        """How many cells `cells` yields."""
        return sum(column.heads * (1 if self._gauge(column) is None else 2) for column in self.columns)

    def cells(self, chosen: Sequence[int], n: int) -> Iterator[Cell]:
        """The first n contexts of some types, head after head and layer after layer, the embedding first.

        Keys whose layer has a balanced gauge come in the raw gauge and then in that one.

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
                    x = (shaped[:, :, head] - gauge.centre[head].numpy()) @ gauge.key[head].numpy()
                    yield Cell(column.space, column.vector, column.layer, head, x.astype(np.float32), BALANCED)


def _pairing(layer: LayerSpec) -> gauges.Pairing:
    assert layer.pairs is not None
    return gauges.Pairing.of(layer.head_dim, layer.pairs[1], layer.pairs[0])


def _turned(content: Tensor, scored: Tensor, pairing: gauges.Pairing) -> bool:
    """Whether vectors are turned in their pairs, and made longer or shorter as a whole, and nothing else.

    Only then is a gauge of what is scored one of the content too: a gain behind the rotation, say, stands between.

    Parameters
    ----------
    content, scored : Tensor (batch, head, pos, channel)
    pairing : Pairing
    """
    if content.shape != scored.shape:
        return False
    before, after = (_unturned(x.double().cpu(), pairing) for x in (content, scored))
    length = after.norm(dim=-1, keepdim=True)
    factor = length / before.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return bool(((after - factor * before).norm(dim=-1, keepdim=True) <= _TURNED * length).all())


def _unturned(x: Tensor, pairing: gauges.Pairing) -> Tensor:
    """What a rotation leaves as it is: the length of each pair, and the channels that do not turn."""
    pairs = torch.stack([x[..., pairing.first], x[..., pairing.second]], -1).norm(dim=-1)
    return torch.cat([pairs, x[..., pairing.free]], -1)


def _columns(found: dict[tuple[str, str, int], Tensor]) -> tuple[Column, ...]:
    columns, offset = [], 0
    for (space, vector, layer), x in found.items():
        heads, width = x.shape[1], x.shape[2]
        columns.append(Column(space, vector, layer, offset, heads, width))
        offset += heads * width
    return tuple(columns)
