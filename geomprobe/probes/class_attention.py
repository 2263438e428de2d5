"""Which classes of tokens attention goes to: as a share, and against content words seen by the same queries."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import Block, QKBatch, Tokens
from geomprobe.attention.spec import LayerSpec, Spec
from geomprobe.attention.visibility import Visibility
from geomprobe.errors import at_least
from geomprobe.labels import CLASS_INDEX, CLASS_ROWS, FROM_ROW, TOKEN_CLASSES, UNIONS
from geomprobe.probes.base import PROBES, AttentionProbe, Scratch, State, add_at, counts, zeros
from geomprobe.stats.suffix import Neighbours, Queries, contrast, neighbours_of, queries_of

_N = len(TOKEN_CLASSES)


@PROBES.register("class_attention")
@dataclass(frozen=True)
class ClassAttention(AttentionProbe):
    """Share, lift and Λ by token class (docs/schema.md: class_attention).

    Parameters
    ----------
    reach : int
        w: neighbours are content tokens at most this far away, and queries stand further away than this.
    min_queries : int
        A token with fewer queries has no Λ.
    min_tokens : int
        A type counts with at least this many tokens that have a Λ.
    """

    reach: int = 8
    min_queries: int = 16
    min_tokens: int = 5

    def __post_init__(self) -> None:
        at_least("reach", self.reach, 1)
        at_least("min_queries", self.min_queries, 1)
        at_least("min_tokens", self.min_tokens, 1)

    def init(self, spec: Spec) -> State:
        """Sums by class, by type, by document and by (type, document) cell."""
        layers, heads = spec.model.n_layers, spec.model.q_heads
        types, cells, documents = len(spec.corpus.types), len(spec.corpus.cells), len(spec.corpus.documents)
        return {
            "n_rows": counts(layers),
            "n_tokens": counts(layers, _N),
            "mass": zeros(layers, heads, _N),
            "pair_mass": zeros(layers, heads, _N),
            "uniform": zeros(layers, _N),
            "type_n": counts(layers, types),
            "type_lambda": zeros(layers, heads, types),
            "type_offset": zeros(layers, types),
            "cell_n": counts(layers, cells),
            "cell_lambda": zeros(layers, cells),
            "cell_offset": zeros(layers, cells),
            "document_mass": zeros(layers, documents * _N),
            "document_uniform": zeros(layers, documents * _N),
        }

    def open(self, batch: QKBatch) -> Scratch:
        """The mass on each key, of all rows and of the rows that Λ looks at: (batch, q_head, pos)."""
        shape = (batch.n_sequences, batch.q_heads, batch.length)
        device = batch.q["scored"].device
        return {name: zeros(*shape).to(device) for name in ("mass", "pair_mass")}

    def add(self, scratch: Scratch, block: Block) -> None:
        """Add one block."""
        scratch["mass"][..., block.keys] += block.key_mass
        self._add_pairs(scratch["pair_mass"], block)

    def _add_pairs(self, total: Tensor, block: Block) -> None:
        """Mass on each key by the queries that Λ looks at; only the columns at the edge need a pass of their own."""
        whole, edges = _pair_columns(block, self._queries(block.visibility))
        first = block.keys.start
        for columns in whole:
            total[..., first + columns.start : first + columns.stop] += block.key_mass[..., columns]
        for columns, wanted in edges:
            mass = (block.probability_columns(columns) * wanted).sum(-2)
            total[..., first + columns.start : first + columns.stop] += mass

    def _queries(self, visibility: Visibility) -> Queries:
        return queries_of(visibility, self.reach)

    def _neighbours(self, tokens: Tokens) -> Neighbours:
        def find() -> Neighbours:
            late = torch.arange(tokens.token_class.shape[1], device=tokens.token_class.device) >= FROM_ROW
            return neighbours_of((tokens.token_class == CLASS_INDEX["content"]) & late, self.reach)

        return tokens.once(("neighbours", self.reach), find)

    def _judged(self, batch: QKBatch, near: Neighbours, queries: Queries) -> Tensor:
        """Places of the tokens that have a Λ, in the flattened batch: (token,) int64."""

        def find() -> Tensor:
            late = torch.arange(batch.length, device=near.count.device) >= FROM_ROW
            return ((near.count > 0) & (queries.count >= self.min_queries) & late).flatten().nonzero().flatten()

        return batch.tokens.once(("judged", self.reach, self.min_queries, id(queries)), find)

    def close(self, state: State, batch: QKBatch, scratch: Scratch) -> None:
        """Add a layer of a batch."""
        index, heads, tokens = batch.index, batch.q_heads, batch.tokens
        token_class = tokens.token_class  # (batch, pos)
        flat = token_class.flatten()
        mass = scratch["mass"].transpose(0, 1).flatten(1)  # (q_head, token)
        uniform = batch.visibility.uniform_mass().expand_as(token_class).flatten()  # (token,)
        state["n_rows"][index] += flat.numel()
        add_at(state["n_tokens"][index], flat, torch.ones_like(flat))
        add_at(state["mass"][index, :heads], flat, mass)
        add_at(state["uniform"][index], flat, uniform)
        slot = (tokens.document[:, None] * _N + token_class).flatten()
        add_at(state["document_mass"][index], slot, mass.mean(0))
        add_at(state["document_uniform"][index], slot, uniform)
        self._add_lambda(state, batch, scratch["pair_mass"])

    def _add_lambda(self, state: State, batch: QKBatch, pair_mass: Tensor) -> None:
        index, heads, tokens = batch.index, batch.q_heads, batch.tokens
        queries, near = self._queries(batch.visibility), self._neighbours(tokens)
        value = contrast(batch.q["scored"], batch.k["scored"], neighbours=near, queries=queries, scale=batch.scale)
        has = self._judged(batch, near, queries)
        value = value.transpose(0, 1).flatten(1).index_select(1, has)  # (q_head, token)
        one, offset = torch.ones_like(has), near.offset.flatten()[has]
        kinds, cells, classes = (x.flatten()[has] for x in (tokens.type_index, tokens.cell_index, tokens.token_class))
        for what, at in (("type", kinds), ("cell", cells)):
            add_at(state[f"{what}_n"][index], at, one)
            add_at(state[f"{what}_offset"][index], at, offset)
        add_at(state["type_lambda"][index, :heads], kinds, value)
        add_at(state["cell_lambda"][index], cells, value.mean(0))
        mass = pair_mass.transpose(0, 1).flatten(1).index_select(1, has)
        add_at(state["pair_mass"][index, :heads], classes, mass)

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """class_attention and parts of document_stats and type_stats."""
        layers = list(enumerate(spec.model.layers))
        members = _type_members(spec)
        parts = [self._class_rows(state, index, layer, members) for index, layer in layers]
        documents = [_document_rows(state, index, layer) for index, layer in layers]
        cells = [_cell_rows(state, index, layer) for index, layer in layers]
        return {
            "class_attention": pd.concat(parts, ignore_index=True),
            "document_stats": pd.concat(documents, ignore_index=True),
            "type_stats": pd.concat(cells, ignore_index=True),
        }

    def _class_rows(self, state: State, index: int, layer: LayerSpec, members: np.ndarray) -> pd.DataFrame:
        heads = layer.q_heads
        n_tokens = _with_unions(state["n_tokens"][index].numpy())
        mass = _with_unions(state["mass"][index, :heads].numpy())  # (q_head, class row)
        uniform = _with_unions(state["uniform"][index].numpy())
        pairs = _with_unions(state["pair_mass"][index, :heads].numpy())
        n_rows = int(state["n_rows"][index])
        rows = n_rows if n_rows else np.nan
        there = np.where(n_tokens > 0, 1.0, np.nan)

        type_n = state["type_n"][index].numpy()
        usable = type_n >= self.min_tokens
        usable_members = members * usable  # (class row, type)
        n_types = usable_members.sum(1)
        of_type = np.where(usable, state["type_lambda"][index, :heads].numpy() / np.maximum(type_n, 1), 0)
        value = (of_type @ usable_members.T) / np.where(n_types > 0, n_types, np.nan)  # (q_head, class row)
        n_used = usable_members @ type_n
        offset = usable_members @ state["type_offset"][index].numpy() / np.where(n_used > 0, n_used, np.nan)
        content = value[:, [CLASS_ROWS.index("content")]]
        columns = {
            "n_tokens": np.tile(n_tokens, heads),
            "n_types": np.tile(n_types.astype(np.int64), heads),
            "share": (mass / rows * there).ravel(),
            "uniform_share": np.tile(uniform / rows * there, heads),
            "lift": (mass / np.where(uniform > 0, uniform, np.nan)).ravel(),
            "lambda": value.ravel(),
            "class_sink": (value - content).ravel(),
            "coverage": (pairs / np.where(mass > 0, mass, np.nan)).ravel(),
            "neighbour_offset": np.tile(offset, heads),
        }
        keys = {
            "layer": layer.layer,
            "q_head": np.repeat(np.arange(heads), len(CLASS_ROWS)),
            "token_class": np.tile(np.array(CLASS_ROWS, dtype=object), heads),
        }
        return pd.DataFrame({**keys, **columns})


def _with_unions(by_class: np.ndarray) -> np.ndarray:
    """(…, class) sums to (…, class row): the unions are sums of their members."""
    unions = [by_class[..., [CLASS_INDEX[name] for name in members]].sum(-1) for members in UNIONS.values()]
    return np.concatenate([by_class, np.stack(unions, axis=-1)], axis=-1)


def _type_members(spec: Spec) -> np.ndarray:
    """(class row, type) float64: 1 where a type belongs to a class row."""
    of_class = np.zeros((_N, len(spec.corpus.types)))
    for column, (_, token_class) in enumerate(spec.corpus.types):
        of_class[CLASS_INDEX[token_class], column] = 1
    return _with_unions(of_class.T).T


def _runs(chosen: Tensor) -> list[slice]:
    """The runs of True in a vector."""
    padded = torch.zeros(len(chosen) + 2, dtype=torch.int8)
    padded[1:-1] = chosen.cpu()
    change = padded.diff().tolist()
    starts = [i for i, step in enumerate(change) if step == 1]
    stops = [i for i, step in enumerate(change) if step == -1]
    return [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]


def _pair_columns(block: Block, queries: Queries) -> tuple[list[slice], list[tuple[slice, Tensor]]]:
    """How the queries of Λ fall into a block; the same for all layers that share a mask, so kept with it.

    Returns
    -------
    whole : list of slice
        Columns of which every row counts.
    edges : list of (slice, Tensor (batch or 1, 1, row, column))
        Columns of which some rows count: 1 where one does.
    """
    cache = block.visibility.cache
    key = ("pairs", queries.reach, block.start, block.n_rows, block.logits.dtype)
    if key not in cache:
        rows = torch.arange(block.start, block.start + block.n_rows, device=block.logits.device)
        counted = queries.contain(rows, block.keys)  # (batch or 1, row, key)
        every = counted.all(1).all(0)
        wanted = counted[:, None].to(block.logits.dtype)
        edges = _runs(counted.any(1).any(0) & ~every)
        cache[key] = (_runs(every), [(columns, wanted[..., columns]) for columns in edges])
    return cache[key]


def _document_rows(state: State, index: int, layer: LayerSpec) -> pd.DataFrame:
    mass = _with_unions(state["document_mass"][index].numpy().reshape(-1, _N))  # (document, class row)
    uniform = _with_unions(state["document_uniform"][index].numpy().reshape(-1, _N))
    lift = mass / np.where(uniform > 0, uniform, np.nan)
    columns = {f"lift_{name}": lift[:, i] for i, name in enumerate(CLASS_ROWS)}
    return pd.DataFrame({"layer": layer.layer, "document": np.arange(len(lift)), **columns})


def _cell_rows(state: State, index: int, layer: LayerSpec) -> pd.DataFrame:
    n = state["cell_n"][index].numpy()
    some = np.where(n > 0, n, np.nan)
    return pd.DataFrame(
        {
            "layer": layer.layer,
            "cell": np.arange(len(n)),
            "n_sink": n,
            "lambda": state["cell_lambda"][index].numpy() / some,
            "neighbour_offset": state["cell_offset"][index].numpy() / some,
        }
    )
