"""Length against angle: how much of the attention each of them tells, in the raw and in the balanced gauge."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import QKBatch
from geomprobe.attention.spec import LayerSpec, Spec
from geomprobe.errors import ParityError, at_least
from geomprobe.labels import CLASS_INDEX, FIRST, FROM_ROW, GAUGES, TOKEN_CLASSES, UNIONS
from geomprobe.probes.base import PROBES, HalvedProbe, State, VectorProbe, add_at, counts, zeros
from geomprobe.stats import gauge as gauges
from geomprobe.stats.shares import Rows, bucket_rho, explained, fidelity, leverage, norm_share
from geomprobe.stats.suffix import contrast_parts, first_contrast, neighbours_of, queries_of

RAW, BALANCED = range(len(GAUGES))
OUT, IN = 0, 1  # position 0
FIRSTS = ("out", "in")
ALL_DOCUMENTS = -1
BUCKET = 64
GAUGE_ERROR = 1e-5
_SUMS = ("empty", "angle", "length", "tv", "xy", "xx", "yy", "leverage")
_PLAIN, _CALIBRATING, _SETTLED = range(3)


@PROBES.register("split")
@dataclass(frozen=True)
class Split(HalvedProbe, VectorProbe):
    """The tables `split` and `class_split` (docs/schema.md).

    The first half of the windows fixes the balanced gauge, the second is measured, in both gauges.

    Parameters
    ----------
    every : int
        Of the rows t ≥ 16 every so many; all of them for the parts of Λ.
    reach, min_queries, min_tokens : int
        As in class_attention.
    """

    every: int = 32
    reach: int = 8
    min_queries: int = 16
    min_tokens: int = 5

    def __post_init__(self) -> None:
        for name in ("every", "reach", "min_queries", "min_tokens"):
            at_least(name, getattr(self, name), 1)

    # ------------------------------------------------------------------ state
    def init(self, spec: Spec) -> State:
        """Sums by (layer, q_head, gauge, position 0 out or in), moments of the first half, and the gauge."""
        layers, heads, kv = spec.model.n_layers, spec.model.q_heads, spec.model.kv_heads
        width = max(layer.head_dim for layer in spec.model.layers)
        cell = (layers, heads, len(GAUGES), len(FIRSTS))
        state = {name: zeros(*cell) for name in _SUMS}
        state |= {name: zeros(*cell) for name in ("rho_z", "rho_weight", "beta")}
        state |= {f"document_{name}": zeros(*cell, len(spec.corpus.documents)) for name in ("empty", "angle", "length")}
        state |= {"n_rows": counts(layers, len(FIRSTS)), "n_windows": counts(layers)}
        state["document_rows"] = counts(layers, len(FIRSTS), len(spec.corpus.documents))
        types = len(spec.corpus.types)
        state |= {"type_n": counts(layers, types), "type_total": zeros(layers, heads, types)}
        state["type_norm"] = zeros(layers, heads, len(GAUGES), types)
        state |= {"first_n": counts(layers), "first_total": zeros(layers, heads)}
        state["first_norm"] = zeros(layers, heads, len(GAUGES))
        square = (layers, kv, width, width)
        state |= {"n": counts(layers), "n_q": counts(layers), "qq": zeros(*square), "kk": zeros(*square)}
        state |= {"k": zeros(layers, kv, width), "gauge_key": zeros(*square), "gauge_query": zeros(*square)}
        state |= {"gauge_centre": zeros(layers, kv, width), "n_kept": counts(layers), "gauge_error": zeros(layers)}
        state["phase"] = counts(1)
        return state

    def begin(self, state: State) -> None:
        """From here on batches fix the gauge."""
        state["phase"][0] = _CALIBRATING

    def settle(self, state: State, spec: Spec) -> None:
        """Fix the gauge; from here on batches are measured."""
        for index, layer in enumerate(spec.model.layers):
            if layer.pairs is None:
                state["n_kept"][index] = -1  # in what pairs its channels turn is not known
                continue
            width, kv = layer.head_dim, layer.kv_heads
            moments = {name: state[name][index, :kv, :width, :width] for name in ("qq", "kk")}
            moments |= {"k": state["k"][index, :kv, :width], "n": state["n"][index], "n_q": state["n_q"][index]}
            pairing = gauges.Pairing.of(width, layer.pairs[1], layer.pairs[0])
            centred = layer.softcap is None and not layer.learned_sinks
            made = gauges.balanced(moments, pairing, centred=centred)
            state["gauge_key"][index, :kv, :width, :width] = made.key
            state["gauge_query"][index, :kv, :width, :width] = made.query
            state["gauge_centre"][index, :kv, :width] = made.centre
            state["n_kept"][index] = made.n_kept
        state["phase"][0] = _SETTLED

    def merge(self, a: State, b: State) -> State:
        """Sums; the gauge is that of whichever has one, as parts of one run share it."""
        merged = super().merge(a, b)
        settled = b if int(b["phase"]) == _SETTLED else a
        for name in ("gauge_key", "gauge_query", "gauge_centre", "n_kept"):
            merged[name] = settled[name].clone()
        for name in ("phase", "gauge_error"):
            merged[name] = torch.maximum(a[name], b[name])
        return merged

    # ------------------------------------------------------------------ pass
    def update(self, state: State, batch: QKBatch) -> None:
        """Add one layer of one batch, in place."""
        if int(state["phase"]) == _CALIBRATING:
            self._calibrate(state, batch)
            return
        wide = torch.promote_types(batch.q["scored"].dtype, torch.float32)  # a gauge rounded to bfloat16 would be none
        q, k = batch.q["scored"].to(wide), batch.k["scored"].to(wide)
        measured = [(RAW, q, k)]
        if int(state["phase"]) == _SETTLED and int(state["n_kept"][batch.index]) >= 0:
            measured.append((BALANCED, *self._gauge(state, batch).apply(q, k)))
        own = None
        for gauge, query, key in measured:
            own = self._add_rows(state, batch, gauge, (query, key), own)
            self._add_classes(state, batch, gauge, (query, key))
            self._add_rho(state, batch, gauge, key)
        state["n_windows"][batch.index] += batch.n_sequences

    def _calibrate(self, state: State, batch: QKBatch) -> None:
        index, kv = batch.index, batch.kv_heads
        width = batch.k["scored"].shape[-1]
        moments = gauges.empty(kv, width)
        gauges.add(moments, batch.q["scored"], batch.k["scored"])
        for name in ("n", "n_q"):
            state[name][index] += moments[name]
        for name in ("qq", "kk"):
            state[name][index, :kv, :width, :width] += moments[name]
        state["k"][index, :kv, :width] += moments["k"]

    def _gauge(self, state: State, batch: QKBatch) -> gauges.Gauge:
        kv, width = batch.kv_heads, batch.k["scored"].shape[-1]
        key, query = (state[f"gauge_{name}"][batch.index, :kv, :width, :width] for name in ("key", "query"))
        centre = state["gauge_centre"][batch.index, :kv, :width]
        return gauges.Gauge(key, query, centre, int(state["n_kept"][batch.index]))

    def _add_rows(
        self, state: State, batch: QKBatch, gauge: int, vectors: tuple[Tensor, Tensor], own: Tensor | None
    ) -> Tensor:
        """The descriptions of some rows; returns their attention in the raw gauge, to hold the other against."""
        query, key = vectors
        at = torch.arange(FROM_ROW, batch.length, self.every, device=query.device)
        group = batch.q_heads // batch.kv_heads
        keys = key.repeat_interleave(group, dim=1)
        products = batch.scale * query[:, :, at] @ keys.transpose(-1, -2)
        for first in (OUT, IN):
            rows = Rows(
                products=products,
                query=batch.scale * query[:, :, at].norm(dim=-1),
                key=keys.norm(dim=-1),
                visible=_visible(batch, at, first),
                finish=_finish(batch, at),
            )
            if first == IN:
                made = rows.probability
                if own is None:
                    own = made
                else:
                    self._check(state, batch, made, own)
            self._add(state, batch, (gauge, first), rows)
        assert own is not None
        return own

    def _check(self, state: State, batch: QKBatch, made: Tensor, own: Tensor) -> None:
        """Raise where the gauge changes the attention: then it is none."""
        error = float((made - own).abs().max())
        state["gauge_error"][batch.index] = max(float(state["gauge_error"][batch.index]), error)
        # Logits as large as some models have them round by more; the raw ones do, too.
        longest = batch.scale * float(batch.q["scored"].norm(dim=-1).max() * batch.k["scored"].norm(dim=-1).max())
        if error > max(GAUGE_ERROR, longest * torch.finfo(own.dtype).eps * 4):
            raise ParityError(
                f"The balanced gauge of layer {batch.index} changes its attention by {error:.2g}; leave split out with "
                "--probes, and please report the model."
            )

    def _add(self, state: State, batch: QKBatch, where: tuple[int, int], rows: Rows) -> None:
        gauge, first = where
        heads, index = batch.q_heads, batch.index
        slope = torch.ones_like(rows.products)
        if batch.softcap is not None:
            slope = 1 - torch.tanh(rows.products / batch.softcap).square()
        rest = rows.key[..., 1:].log().mean(-1).exp()  # (batch, q_head): position 0 is one token of many
        left = explained(rows)
        found = {**left, **fidelity(rows, rest), "leverage": leverage(rows, slope)}
        for name, value in found.items():
            state[name][index, :heads, gauge, first] += value.double().sum((0, 2)).cpu()
        for name, value in left.items():
            add_at(state[f"document_{name}"][index, :heads, gauge, first], batch.tokens.document, value.sum(2).T)
        beta = rest.log() + rows.query.log().mean(-1)
        state["beta"][index, :heads, gauge, first] += beta.double().sum(0).cpu()
        if gauge == RAW:
            n = rows.products.shape[2]
            state["n_rows"][index, first] += n * batch.n_sequences
            add_at(
                state["document_rows"][index, first], batch.tokens.document, torch.full_like(batch.tokens.document, n)
            )

    def _add_classes(self, state: State, batch: QKBatch, gauge: int, vectors: tuple[Tensor, Tensor]) -> None:
        """The parts of Λ by type, and those of position 0."""
        query, key = vectors
        tokens, heads, index = batch.tokens, batch.q_heads, batch.index
        late = torch.arange(batch.length, device=key.device) >= FROM_ROW
        content = (tokens.token_class == CLASS_INDEX["content"]) & late
        near, queries = neighbours_of(content, self.reach), queries_of(batch.visibility, self.reach)
        total, norm = contrast_parts(query, key, neighbours=near, queries=queries, scale=batch.scale)
        has = ((near.count > 0) & (queries.count >= self.min_queries) & late).flatten().nonzero().flatten()
        kinds = tokens.type_index.flatten()[has]
        add_at(state["type_norm"][index, :heads, gauge], kinds, norm.transpose(0, 1).flatten(1)[:, has])
        whole, part, n = first_contrast(query, key, content, batch.visibility, reach=self.reach, scale=batch.scale)
        state["first_norm"][index, :heads, gauge] += part.cpu()
        if gauge == RAW:
            add_at(state["type_n"][index], kinds, torch.ones_like(kinds))
            add_at(state["type_total"][index, :heads], kinds, total.transpose(0, 1).flatten(1)[:, has])
            state["first_total"][index, :heads] += whole.cpu()
            state["first_n"][index] += n

    def _add_rho(self, state: State, batch: QKBatch, gauge: int, key: Tensor) -> None:
        """Key length against the attention received from the sampled queries behind, by buckets of positions."""
        received = _received(batch, self.every)  # (batch, q_head, pos), NaN where no query looks
        lengths = key.norm(dim=-1).repeat_interleave(batch.q_heads // batch.kv_heads, dim=1)
        seen = torch.isfinite(received).all(0).all(0)
        for first in (OUT, IN):
            valid = seen.clone()
            valid[0] &= first == IN
            z, weight = bucket_rho(lengths, received.nan_to_num(), valid, BUCKET)
            state["rho_z"][batch.index, : batch.q_heads, gauge, first] += z
            state["rho_weight"][batch.index, : batch.q_heads, gauge, first] += weight

    # ------------------------------------------------------------------ tables
    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """Split and class_split."""
        rows = [
            row
            for index, layer in enumerate(spec.model.layers)
            for gauge in self._told(state, index)
            for first in (OUT, IN)
            for row in _split_rows(state, (index, gauge, first), layer)
        ]
        classes = [
            row
            for index, layer in enumerate(spec.model.layers)
            for gauge in self._told(state, index)
            for row in self._class_rows(state, (index, gauge), layer, spec)
        ]
        return {"split": pd.DataFrame(rows, columns=_SPLIT), "class_split": pd.DataFrame(classes, columns=_CLASSES)}

    def _told(self, state: State, index: int) -> tuple[int, ...]:
        settled = int(state["phase"]) == _SETTLED and int(state["n_kept"][index]) >= 0
        return (RAW, BALANCED) if settled else (RAW,)

    def _class_rows(self, state: State, where: tuple[int, int], layer: LayerSpec, spec: Spec) -> list[dict[str, Any]]:
        index, gauge = where
        heads = layer.q_heads
        n = state["type_n"][index].numpy()
        kinds = np.array([CLASS_INDEX[name] for _, name in spec.corpus.types], dtype=np.int64)
        enough = n >= self.min_tokens
        total, norm = (
            x.numpy() / np.maximum(n, 1)
            for x in (state["type_total"][index, :heads], state["type_norm"][index, :heads, gauge])
        )
        members = {name: [CLASS_INDEX[name]] for name in TOKEN_CLASSES if name != FIRST}
        members |= {name: [CLASS_INDEX[part] for part in parts] for name, parts in UNIONS.items()}
        content = enough & np.isin(kinds, members["content"])
        rows = []
        for name, classes in members.items():
            inside = enough & np.isin(kinds, classes)
            parts = [_over(x, inside) - _over(x, content) for x in (total, norm)]  # each (q_head,)
            rows += _class_table(layer, gauge, name, parts[0], parts[1], int(inside.sum()))
        count = int(state["first_n"][index])
        first = [state["first_total"][index, :heads].numpy(), state["first_norm"][index, :heads, gauge].numpy()]
        whole, part = (x / count if count else np.full(heads, np.nan) for x in first)
        return [*_class_table(layer, gauge, FIRST, whole, part, int(count > 0)), *rows]


_SPLIT = (
    *("layer", "q_head", "gauge", "first", "document", "n_rows", "phi_norm", "phi_angle", "norm_attention_rho", "r2"),
    *("tv", "beta", "leverage", "gauge_error", "n_kept"),
)
_CLASSES = ("layer", "q_head", "token_class", "gauge", "class_sink", "norm_part", "angle_part", "n_types")


def _visible(batch: QKBatch, at: Tensor, first: int) -> Tensor:
    """What rows `at` see: (batch or 1, 1, row, key); without position 0 where that is out."""
    key = ("split", len(at), first)
    cache = batch.visibility.cache
    if key not in cache:
        visible = batch.visibility.sees(at)
        if first == OUT:
            visible[..., 0] = False
        cache[key] = visible
    return cache[key]


def _finish(batch: QKBatch, at: Tensor) -> Any:
    """From scale·q·k to what enters the softmax: soft-cap and bias.

    A gauge that centres the keys takes one number from each row, which no softmax sees.
    """

    def finish(x: Tensor) -> Tensor:
        made = x
        if batch.softcap is not None:
            made = batch.softcap * torch.tanh(made / batch.softcap)
        return made if batch.bias is None else made + batch.bias[:, :, at].to(made.dtype)

    return finish


def _received(batch: QKBatch, every: int) -> Tensor:
    """Mean attention that each key gets from the sampled queries behind it, in any gauge: (batch, q_head, pos)."""
    key = ("received", batch.index)
    if key not in batch.tokens.cache:
        batch.tokens.cache[key] = _receive(batch, every)
    return batch.tokens.cache[key]


def _receive(batch: QKBatch, every: int) -> Tensor:
    wide = torch.promote_types(batch.q["scored"].dtype, torch.float32)
    query, keys = batch.q["scored"].to(wide), batch.k["scored"].to(wide)
    at = torch.arange(FROM_ROW, batch.length, every, device=query.device)
    keys = keys.repeat_interleave(batch.q_heads // batch.kv_heads, dim=1)
    products = batch.scale * query[:, :, at] @ keys.transpose(-1, -2)
    visible = _visible(batch, at, IN)
    rows = Rows(products, products[..., 0], keys[..., 0], visible, _finish(batch, at))
    own = rows.log_softmax(products).exp()
    if batch.sinks is not None:  # a learned sink takes its part of the row
        sink = batch.sinks if batch.sinks.shape[2] == 1 else batch.sinks[:, :, at]
        logits = torch.where(visible, rows.finish(products), -1e30)
        total = logits.logsumexp(-1)
        own = own * (total - torch.logaddexp(total, sink.to(total.dtype).expand_as(total))).exp()[..., None]
    position = torch.arange(batch.length, device=query.device)
    behind = visible & (at[:, None] > position)
    n = behind.sum(-2)
    return torch.where(behind, own, 0).sum(-2) / torch.where(n > 0, n, torch.nan)


def _split_rows(state: State, where: tuple[int, int, int], layer: LayerSpec) -> list[dict[str, Any]]:
    index, gauge, first = where
    heads = slice(0, layer.q_heads)
    at = (index, heads, gauge, first)
    n = int(state["n_rows"][index, first])
    some = n or math.nan
    mean = {name: state[name][at].numpy() / some for name in _SUMS}
    norm, angle = norm_share(*(torch.from_numpy(mean[name]) for name in ("empty", "angle", "length")))
    weight = state["rho_weight"][at].numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.tanh(state["rho_z"][at].numpy() / np.where(weight > 0, weight, np.nan))
        r2 = mean["xy"] ** 2 / np.where(mean["xx"] * mean["yy"] > 0, mean["xx"] * mean["yy"], np.nan)
    windows = int(state["n_windows"][index])
    beta = np.exp(state["beta"][at].numpy() / windows) if windows else np.full(layer.q_heads, np.nan)
    common = {"layer": layer.layer, "gauge": GAUGES[gauge], "first": FIRSTS[first]}
    error = float(state["gauge_error"][index]) if gauge == BALANCED else math.nan
    rows: list[dict[str, Any]] = [
        {
            **common,
            "q_head": head,
            "document": ALL_DOCUMENTS,
            "n_rows": n,
            "phi_norm": float(norm[head]),
            "phi_angle": float(angle[head]),
            "norm_attention_rho": rho[head],
            "r2": r2[head],
            "tv": mean["tv"][head],
            "beta": beta[head],
            "leverage": mean["leverage"][head],
            "gauge_error": error,
            "n_kept": max(0, int(state["n_kept"][index])) if gauge == BALANCED else 0,
        }
        for head in range(layer.q_heads)
    ]
    return rows + _document_rows(state, where, common, layer.q_heads)


def _document_rows(
    state: State, where: tuple[int, int, int], common: dict[str, Any], heads: int
) -> list[dict[str, Any]]:
    """φ's by document, as intervals need them."""
    index, gauge, first = where
    n = state["document_rows"][index, first].numpy()
    sums = [state[f"document_{name}"][index, :heads, gauge, first].numpy() for name in ("empty", "angle", "length")]
    rows = []
    for document in np.flatnonzero(n):
        means = (torch.from_numpy(x[:, document] / n[document]) for x in sums)
        norm, angle = norm_share(*means)
        rows += [
            {
                **common,
                "q_head": head,
                "document": int(document),
                "n_rows": int(n[document]),
                "phi_norm": float(norm[head]),
                "phi_angle": float(angle[head]),
            }
            for head in range(heads)
        ]
    return rows


def _over(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Mean over some types: (q_head,); NaN over none."""
    return values[:, inside].mean(axis=1) if inside.any() else np.full(len(values), np.nan)


def _class_table(
    layer: LayerSpec, gauge: int, name: str, total: np.ndarray, norm: np.ndarray, n_types: int
) -> list[dict[str, Any]]:
    return [
        {
            "layer": layer.layer,
            "q_head": head,
            "token_class": name,
            "gauge": GAUGES[gauge],
            "class_sink": total[head],
            "norm_part": norm[head],
            "angle_part": total[head] - norm[head],
            "n_types": n_types,
        }
        for head in range(layer.q_heads)
    ]
