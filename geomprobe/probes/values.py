"""Is a sink used, or parked? Attention weighted by the lengths of the values that it brings."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from geomprobe.attention.batch import Block, QKBatch
from geomprobe.attention.spec import Spec
from geomprobe.labels import FIRST, TOKEN_CLASSES, UNIONS
from geomprobe.probes.base import PROBES, AttentionProbe, Scratch, State, add_at, counts, zeros

_N = len(TOKEN_CLASSES)


@PROBES.register("values")
@dataclass(frozen=True)
class Values(AttentionProbe):
    """The table `values` (docs/schema.md): Σ A·‖v‖ by class of the key, and how long the values are.

    A sink that is parked has much attention and short values: a large `share`, a small `value_weighted`.
    """

    def init(self, spec: Spec) -> State:
        """Sums by class of the key."""
        layers, heads = spec.model.n_layers, spec.model.q_heads
        return {
            "mass": zeros(layers, heads, _N),
            "weighted": zeros(layers, heads, _N),
            "n": counts(layers, _N),
            "log": zeros(layers, heads, _N),
        }

    def open(self, batch: QKBatch) -> Scratch:
        """The mass on each key: (batch, q_head, pos)."""
        shape = (batch.n_sequences, batch.q_heads, batch.length)
        return {"mass": zeros(*shape).to(batch.q["scored"].device)}

    def add(self, scratch: Scratch, block: Block) -> None:
        """Add one block."""
        scratch["mass"][..., block.keys] += block.key_mass

    def close(self, state: State, batch: QKBatch, scratch: Scratch) -> None:
        """Add a layer of a batch."""
        value, heads, index = batch.v["scored"], batch.q_heads, batch.index
        wide = torch.promote_types(value.dtype, torch.float32)
        length = torch.linalg.vector_norm(value, dim=-1, dtype=wide).double()
        length = length.repeat_interleave(heads // value.shape[1], dim=1)  # (batch, q_head, pos)
        classes = batch.tokens.token_class.flatten()
        for name, x in (("mass", scratch["mass"]), ("weighted", scratch["mass"] * length)):
            add_at(state[name][index, :heads], classes, x.transpose(0, 1).flatten(1))
        alive = (length > 0).all(1).flatten().nonzero().flatten()  # a value of length 0 has no logarithm
        log = length.transpose(0, 1).flatten(1)[:, alive].log()
        add_at(state["log"][index, :heads], classes[alive], log)
        add_at(state["n"][index], classes[alive], torch.ones_like(classes[alive]))

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """One row a head and class that the text has."""
        members = {name: [TOKEN_CLASSES.index(name)] for name in TOKEN_CLASSES}
        members |= {name: [TOKEN_CLASSES.index(part) for part in parts] for name, parts in UNIONS.items()}
        rest = [place for place, name in enumerate(TOKEN_CLASSES) if name != FIRST]
        rows = []
        for index, layer in enumerate(spec.model.layers):
            heads = slice(0, layer.q_heads)
            mass, weighted, log = (state[name][index, heads].numpy() for name in ("mass", "weighted", "log"))
            n = state["n"][index].numpy()
            usual = log[:, rest].sum(1) / n[rest].sum() if n[rest].sum() else np.full(layer.q_heads, np.nan)
            for name, places in members.items():
                count = int(n[places].sum())
                own = log[:, places].sum(1) / count if count else np.full(layer.q_heads, np.nan)
                shares = [x[:, places].sum(1) / _some(x.sum(1)) for x in (mass, weighted)]
                rows += [
                    {
                        "layer": layer.layer,
                        "q_head": head,
                        "token_class": name,
                        "n_tokens": count,
                        "share": shares[0][head] if count else np.nan,
                        "value_weighted": shares[1][head] if count else np.nan,
                        "v_norm_ratio": float(np.exp(own[head] - usual[head])),
                    }
                    for head in range(layer.q_heads)
                ]
        return {"values": pd.DataFrame(rows, columns=_COLUMNS)}


_COLUMNS = ("layer", "q_head", "token_class", "n_tokens", "share", "value_weighted", "v_norm_ratio")


def _some(total: np.ndarray) -> np.ndarray:
    return np.where(total > 0, total, np.nan)
