"""Where attention is parked: the first positions, and single keys that take most of every row."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import Block, QKBatch
from geomprobe.attention.spec import LayerSpec, Spec
from geomprobe.errors import InvalidParameter, between
from geomprobe.labels import WHOLE_MODEL
from geomprobe.probes.base import PROBES, AttentionProbe, Scratch, State, add_at, counts, zeros

BEGIN = 10  # begin_mass: mass on positions 0 … 9, of rows that can see more than those
RATE_ROWS = 64  # sink_rates look at the first 64 positions of a window, as the literature's numbers do
LATER_QUERIES = 16  # a key counts for sink_tokens where at least as many later queries see it


@PROBES.register("sinks")
@dataclass(frozen=True)
class Sinks(AttentionProbe):
    """first_mass, begin_mass, sink rates and sink tokens (docs/schema.md).

    Rates and sink tokens assume causal attention; in other layers the rate is NaN and there are no sink tokens.

    Parameters
    ----------
    epsilons : tuple of float
        Thresholds of sink_rates; .3 is that of Gu et al. 2024 (arXiv 2410.10781).
    token_epsilon : float
        A key is a sink token where its α is above this.
    """

    epsilons: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5, 0.8)
    token_epsilon: float = 0.3

    def __post_init__(self) -> None:
        if not self.epsilons:
            raise InvalidParameter("epsilons must hold at least one threshold; got none.")
        for epsilon in (*self.epsilons, self.token_epsilon):
            between("epsilon", epsilon, 0, 1)

    def init(self, spec: Spec) -> State:
        """Sums over rows and windows."""
        layers, heads = spec.model.n_layers, spec.model.q_heads
        documents, tokens = len(spec.corpus.documents), len(spec.corpus.tokens)
        return {
            "n_rows": counts(layers),
            "n_after_first": counts(layers),
            "n_after_begin": counts(layers),
            "first": zeros(layers, heads),
            "begin": zeros(layers, heads),
            "learned": zeros(layers, heads),
            "has_learned": counts(layers),
            "n_rates": counts(layers),
            "above": counts(layers, len(self.epsilons)),
            "n_seen": counts(layers, tokens),
            "n_sink": counts(layers, heads, tokens),
            "alpha": zeros(layers, heads, tokens),
            "document_n_rows": counts(layers, documents),
            "document_n_after_first": counts(layers, documents),
            "document_n_after_begin": counts(layers, documents),
            "document_n_rates": counts(layers, documents),
            "document_above": counts(layers, documents),
            "document_first": zeros(layers, documents),
            "document_begin": zeros(layers, documents),
        }

    def open(self, batch: QKBatch) -> Scratch:
        """A_t0, the mass on the first positions and the learned sink's of each row; the mass on each key."""
        names = ("first", "begin", "learned", "mass")
        device = batch.q["scored"].device
        return {name: zeros(batch.n_sequences, batch.q_heads, batch.length).to(device) for name in names}

    def add(self, scratch: Scratch, block: Block) -> None:
        """Add one block."""
        rows = slice(block.start, block.start + block.n_rows)
        scratch["first"][..., rows] = block.first_probability
        if block.first_key < BEGIN:
            rest = block.rest_weight[..., : BEGIN - block.first_key].sum(-1) * block.rest_factor
            scratch["begin"][..., rows] = rest + block.first_probability
        if block.sinks is not None:
            scratch["learned"][..., rows] = block.sinks - block.log_normaliser
        scratch["mass"][..., block.keys] += block.key_mass

    def close(self, state: State, batch: QKBatch, scratch: Scratch) -> None:
        """Add a layer of a batch."""
        index, heads, n, length = batch.index, batch.q_heads, batch.n_sequences, batch.length
        rows = {"n_rows": length, "n_after_first": max(length - 1, 0), "n_after_begin": max(length - BEGIN, 0)}
        document = batch.tokens.document
        for name, count in rows.items():
            state[name][index] += n * count
            add_at(state[f"document_{name}"][index], document, torch.full_like(document, count))
        sums = {"first": scratch["first"][..., 1:].sum(-1), "begin": scratch["begin"][..., BEGIN:].sum(-1)}
        for name, value in sums.items():  # (batch, q_head)
            state[name][index, :heads] += value.sum(0).to(state[name].device)
            add_at(state[f"document_{name}"][index], document, value.mean(1))
        if batch.sinks is not None:
            state["learned"][index, :heads] += scratch["learned"].exp().sum((0, 2)).to(state["learned"].device)
            state["has_learned"][index] += n
        if batch.visibility.causal:  # both look at the queries behind a key, and take it that there are no others
            self._add_rates(state, batch, scratch["first"][..., :RATE_ROWS].sum(-1))
            self._add_tokens(state, batch, scratch["mass"])

    def _add_rates(self, state: State, batch: QKBatch, early: Tensor) -> None:
        sees = (batch.visibility.low[:, :RATE_ROWS] == 0).sum(1)  # (batch or 1,), at least 1: position 0 sees itself
        alpha = early / sees[:, None]  # (batch, q_head)
        above = torch.stack([(alpha > epsilon).sum() for epsilon in self.epsilons])
        state["above"][batch.index] += above.to(state["above"].device)
        state["n_rates"][batch.index] += alpha.numel()
        document = batch.tokens.document
        add_at(state["document_above"][batch.index], document, (alpha > self.token_epsilon).sum(1))
        add_at(state["document_n_rates"][batch.index], document, torch.full_like(document, alpha.shape[1]))

    def _add_tokens(self, state: State, batch: QKBatch, mass: Tensor) -> None:
        index, heads = batch.index, batch.q_heads
        position = torch.arange(batch.length, device=mass.device)
        first, last = batch.visibility.seen_by()
        n_seeing = last - torch.maximum(first, position) + 1  # (batch or 1, pos): queries t >= k that see k
        alpha = mass / n_seeing.clamp(min=1)[:, None]  # (batch, q_head, pos)
        counted = ((n_seeing - 1 >= LATER_QUERIES) & (position >= 1)).expand(batch.n_sequences, -1)
        counted = counted.flatten().nonzero().flatten()
        token = batch.tokens.token_index.flatten()[counted]
        alpha = alpha.transpose(0, 1).flatten(1).index_select(1, counted)  # (q_head, token)
        add_at(state["n_seen"][index], token, torch.ones_like(token))
        add_at(state["n_sink"][index, :heads], token, alpha > self.token_epsilon)
        add_at(state["alpha"][index, :heads], token, alpha)

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """Sinks, sink_rates, sink_tokens and a part of document_stats."""
        layers = list(enumerate(spec.model.layers))
        rates = [self._rate_rows(layer.layer, state["above"][i], state["n_rates"][i]) for i, layer in layers]
        rates.insert(0, self._rate_rows(WHOLE_MODEL, state["above"].sum(0), state["n_rates"].sum()))
        return {
            "sinks": pd.concat([_sink_rows(state, i, layer) for i, layer in layers], ignore_index=True),
            "sink_rates": pd.concat(rates, ignore_index=True),
            "sink_tokens": pd.concat([_token_rows(state, i, layer, spec) for i, layer in layers], ignore_index=True),
            "document_stats": pd.concat([_document_rows(state, i, layer) for i, layer in layers], ignore_index=True),
        }

    def _rate_rows(self, layer: int, above: Tensor, n: Tensor) -> pd.DataFrame:
        rate = above.numpy() / int(n) if int(n) else np.full(len(self.epsilons), np.nan)
        return pd.DataFrame({"layer": layer, "epsilon": list(self.epsilons), "rate": rate, "n": int(n)})


def _ratio(total: Tensor, n: Tensor) -> np.ndarray:
    counted = n.numpy().astype(np.float64)
    return total.numpy() / np.where(counted > 0, counted, np.nan)


def _sink_rows(state: State, index: int, layer: LayerSpec) -> pd.DataFrame:
    heads = layer.q_heads
    learned = _ratio(state["learned"][index, :heads], state["n_rows"][index])
    return pd.DataFrame(
        {
            "layer": layer.layer,
            "q_head": np.arange(heads),
            "n_rows": int(state["n_rows"][index]),
            "first_mass": _ratio(state["first"][index, :heads], state["n_after_first"][index]),
            "begin_mass": _ratio(state["begin"][index, :heads], state["n_after_begin"][index]),
            "sink_logit_mass": learned if int(state["has_learned"][index]) else np.nan,
        }
    )


def _token_rows(state: State, index: int, layer: LayerSpec, spec: Spec) -> pd.DataFrame:
    n_sink = state["n_sink"][index, : layer.q_heads].numpy()
    head, token = np.nonzero(n_sink)
    n_seen = state["n_seen"][index].numpy()[token]
    names = [spec.corpus.tokens[i] for i in token]
    return pd.DataFrame(
        {
            "layer": np.full(len(token), layer.layer, dtype=np.int64),
            "q_head": head,
            "token_id": np.array([name[0] for name in names], dtype=np.int64),
            "token_class": pd.Series([name[1] for name in names], dtype="object"),
            "token": pd.Series([name[2] for name in names], dtype="object"),
            "n_seen": n_seen,
            "n_sink": n_sink[head, token],
            "mean_alpha": state["alpha"][index].numpy()[head, token] / n_seen,
        }
    )


def _document_rows(state: State, index: int, layer: LayerSpec) -> pd.DataFrame:
    n_rows = state["document_n_rows"][index].numpy()
    return pd.DataFrame(
        {
            "layer": layer.layer,
            "document": np.arange(len(n_rows)),
            "n_tokens": n_rows,
            "n_rows": n_rows,
            "first_mass": _ratio(state["document_first"][index], state["document_n_after_first"][index]),
            "begin_mass": _ratio(state["document_begin"][index], state["document_n_after_begin"][index]),
            "sink_rate": _ratio(state["document_above"][index], state["document_n_rates"][index]),
        }
    )
