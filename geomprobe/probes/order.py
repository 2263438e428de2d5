"""Does it matter on which side of the rotation a norm stands? On the model's own gains and activations."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import QKBatch
from geomprobe.attention.spec import LayerSpec, Spec
from geomprobe.errors import at_least
from geomprobe.labels import FROM_ROW
from geomprobe.probes.base import PROBES, State, VectorProbe, counts, zeros
from geomprobe.stats.gauge import Pairing
from geomprobe.stats.turning import later, pairs_of, turned, turns

SHIFT = 777
# How near gain · x/rms(x) must come to what the norm puts out, for the algebra to be that of the model; a dtype of few
# digits rounds more coarsely than that.
FIT = 1e-3
_SIDES = ("before_rope", "after_rope")


@PROBES.register("order")
@dataclass(frozen=True)
class Order(VectorProbe):
    """The table `order` (docs/schema.md): layers whose queries and keys are RMS-normed head by head, and rotated.

    An RMS norm without a gain commutes with the rotation exactly; a gain does where it is equal within each pair.

    Parameters
    ----------
    every : int
        Of the rows t ≥ 16 every so many.
    """

    every: int = 16

    def __post_init__(self) -> None:
        at_least("every", self.every, 1)

    def init(self, spec: Spec) -> State:
        """Sums of squares by (layer, q_head); the gains and pairs, so that an update needs nothing else."""
        layers, heads = spec.model.n_layers, spec.model.q_heads
        width = max(layer.head_dim for layer in spec.model.layers)
        state = {name: zeros(layers, heads) for name in ("own", "apart", "shifted", "other", "scaled", "folded")}
        state |= {"n": counts(layers), "unfit": counts(layers)}
        state |= {f"gain_{vector}": zeros(layers, width) for vector in ("q", "k")}
        state |= {"side": counts(layers), "pair": counts(layers, 2, width // 2), "n_pairs": counts(layers)}
        for index, layer in enumerate(spec.model.layers):
            side = _side(layer)
            if side is None or layer.pairs is None:
                continue
            pairing = Pairing.of(layer.head_dim, layer.pairs[1], layer.pairs[0])
            n = len(pairing.first)
            state["side"][index], state["n_pairs"][index] = 1 + _SIDES.index(side), n
            state["pair"][index, 0, :n], state["pair"][index, 1, :n] = pairing.first, pairing.second
            for vector in ("q", "k"):
                gain = torch.from_numpy(layer.norms[vector].gain)
                state[f"gain_{vector}"][index, : len(gain)] = gain
        return state

    def merge(self, a: State, b: State) -> State:
        """Sums; gains and pairs are those of both."""
        fixed = ("gain_q", "gain_k", "side", "pair", "n_pairs")
        return {name: a[name].clone() if name in fixed else a[name] + b[name] for name in a}

    def update(self, state: State, batch: QKBatch) -> None:
        """Add one layer of one batch, in place."""
        index = batch.index
        side = int(state["side"][index])
        if not side or batch.length < FROM_ROW + 1:
            return
        n = int(state["n_pairs"][index])
        pair = (state["pair"][index, 0, :n], state["pair"][index, 1, :n])
        made = {}
        for vector, stages in (("q", batch.q), ("k", batch.k)):
            found = _orders(stages, state[f"gain_{vector}"][index], _SIDES[side - 1], pair)
            if found is None:
                state["unfit"][index] += 1
                return
            made[vector] = found
        at = torch.arange(FROM_ROW, batch.length, self.every)
        visible = batch.visibility.sees(at.to(batch.visibility.low.device)).cpu()
        logits = [_logits(batch, made, name, at) for name in ("before", "after", "later")]
        before, after, moved = (torch.where(visible, x, 0) for x in logits)
        heads = batch.q_heads
        own = before if side == 1 else after
        plain, folded = (torch.where(visible, x, 0) for x in _folded(batch, at))
        for name, x in (("scaled", plain), ("folded", folded - plain)):
            state[name][index, :heads] += x.square().sum((0, 2, 3))
        for name, x in (("own", own), ("apart", before - after), ("other", after), ("shifted", moved - after)):
            state[name][index, :heads] += x.square().sum((0, 2, 3))
        state["n"][index] += batch.n_sequences

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """One row a query head of each layer to which it applies."""
        rows: list[dict[str, Any]] = []
        for index, layer in enumerate(spec.model.layers):
            side = int(state["side"][index])
            if not side:
                continue
            seen = int(state["n"][index]) > 0
            for head in range(layer.q_heads):
                own, apart, other, shifted, scaled, folded = (
                    float(state[x][index, head]) for x in ("own", "apart", "other", "shifted", "scaled", "folded")
                )
                rows.append(
                    {
                        "layer": layer.layer,
                        "vector": "q",
                        "head": head,
                        "order": _SIDES[side - 1],
                        "n_windows": int(state["n"][index]),
                        "commutation_error": float(np.sqrt(apart / own)) if seen and own > 0 else np.nan,
                        "shift_error": float(np.sqrt(shifted / other)) if seen and other > 0 else np.nan,
                        "folding_error": float(np.sqrt(folded / scaled)) if seen and scaled > 0 else np.nan,
                    }
                )
        return {"order": pd.DataFrame(rows, columns=_COLUMNS)}


_COLUMNS = ("layer", "vector", "head", "order", "n_windows", "commutation_error", "shift_error", "folding_error")


def _side(layer: LayerSpec) -> str | None:
    """On which side of the rotation both norms stand; None where the question does not arise."""
    norms = [layer.norms.get(vector) for vector in ("q", "k")]
    if layer.pairs is None or not layer.pairs[1] or any(norm is None for norm in norms):
        return None
    orders = {norm.order for norm in norms if norm is not None}
    fits = all(norm is not None and norm.axis == "head" and len(norm.gain) == layer.head_dim for norm in norms)
    return orders.pop() if fits and len(orders) == 1 and orders <= set(_SIDES) else None


def _orders(
    stages: dict[str, Tensor], gain: Tensor, side: str, pair: tuple[Tensor, Tensor]
) -> dict[str, Tensor] | None:
    """The vectors with the norm before the rotation, after it, and after it 777 positions further on.

    None where what is between the stages is no RMS norm with that gain.
    """
    if not {"projected", "content", "scored"} <= set(stages):
        return None
    projected, content, scored = (stages[name].double().cpu() for name in ("projected", "content", "scored"))
    gain = gain[: scored.shape[-1]]
    plain = projected / projected.square().mean(-1, keepdim=True).sqrt()  # what the norm makes of it, but for the gain
    if side == "before_rope":
        fit, turn = (plain * gain - content), turns(pairs_of(content, *pair), pairs_of(scored, *pair))
    else:
        # The gain stands on the turned pairs: take it off where it can be, to see how far they were turned.
        bare = scored / torch.where(gain != 0, gain, torch.nan)
        turn = turns(pairs_of(plain, *pair), pairs_of(bare, *pair))
        fit = turned(plain, turn, *pair) * gain - scored
    miss, scale = (float(x.square().mean().sqrt()) for x in (fit, scored))
    tolerance = max(FIT, torch.finfo(stages["scored"].dtype).eps)
    if not bool(torch.isfinite(turn).all()) or not miss <= tolerance * scale:  # NaN is no fit
        return None
    return {
        "before": turned(plain * gain, turn, *pair),
        "after": turned(plain, turn, *pair) * gain,
        "later": turned(plain, later(turn, SHIFT), *pair) * gain,
    }


def _folded(batch: QKBatch, at: Tensor) -> tuple[Tensor, Tensor]:
    """The model's own logits, and those of a query norm whose gain holds the scale; in the model's dtype, as floats."""
    query, key = batch.q["scored"][:, :, at.to(batch.q["scored"].device)], batch.k["scored"]
    key = key.repeat_interleave(batch.q_heads // batch.kv_heads, dim=1).transpose(-1, -2)
    return (batch.scale * (query @ key)).double().cpu(), ((batch.scale * query) @ key).double().cpu()


def _logits(batch: QKBatch, made: dict[str, dict[str, Tensor]], name: str, at: Tensor) -> Tensor:
    key = made["k"][name].repeat_interleave(batch.q_heads // batch.kv_heads, dim=1)
    return batch.scale * made["q"][name][:, :, at] @ key.transpose(-1, -2)
