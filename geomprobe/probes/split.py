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
from geomprobe.labels import FROM_ROW, GAUGES
from geomprobe.probes import split_types as by_type
from geomprobe.probes.base import PROBES, HalvedProbe, State, VectorProbe, add_at, counts, zeros
from geomprobe.stats import gauge as gauges
from geomprobe.stats import moments
from geomprobe.stats.histogram import Bins
from geomprobe.stats.shares import Rows, bucket_rho, explained, fidelity, leverage, norm_share

RAW, BALANCED = range(len(GAUGES))
OUT, IN = 0, 1  # position 0
FIRSTS = ("out", "in")
ALL_DOCUMENTS = -1
BUCKET = 64
GAUGE_ERROR = 1e-5
LENGTHS = Bins(low=-3, high=3, per_unit=10)  # of the log of a key's length over its head's usual one
LIFTS = Bins(low=-8, high=8, per_unit=4)  # of the log of the attention that a key receives over its uniform share
_BY_DOCUMENT = ("empty", "angle", "length", "tv")
_SUMS = ("empty", "angle", "length", "tv", "xy", "xx", "yy", "leverage")
_PLAIN, _CALIBRATING, _SETTLED = range(3)


@PROBES.register("split")
@dataclass(frozen=True)
class Split(HalvedProbe, VectorProbe):
    """The tables `split`, `class_split`, `norm_lift`, `type_split`, `type_places` and `length_attention`.

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
        state |= {f"document_{name}": zeros(*cell, len(spec.corpus.documents)) for name in _BY_DOCUMENT}
        state |= {"n_rows": counts(layers, len(FIRSTS)), "n_windows": counts(layers)}
        state["document_rows"] = counts(layers, len(FIRSTS), len(spec.corpus.documents))
        state |= by_type.init(spec)
        documents = len(spec.corpus.documents)
        lengths = moments.empty(layers, kv, len(GAUGES), len(FIRSTS), documents)
        state |= {f"log_{name}": value for name, value in lengths.items()}
        state["cloud"] = counts(layers, len(FIRSTS), LENGTHS.count * LIFTS.count)
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
        logs = [{name: state[f"log_{name}"] for name in ("n", "mean", "m2")} for state in (a, b)]
        merged |= {f"log_{name}": value for name, value in moments.merge(*logs).items()}
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
            by_type.add(state, batch, gauge, (query, key), reach=self.reach, least=self.min_queries)
            self._add_rho(state, batch, gauge, key)
            _add_lengths(state, batch, gauge, key)
        self._add_cloud(state, batch)
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
        for name in _BY_DOCUMENT:
            value = found[name]
            add_at(state[f"document_{name}"][index, :heads, gauge, first], batch.tokens.document, value.sum(2).T)
        beta = rest.log() + rows.query.log().mean(-1)
        state["beta"][index, :heads, gauge, first] += beta.double().sum(0).cpu()
        if gauge == RAW:
            n = rows.products.shape[2]
            state["n_rows"][index, first] += n * batch.n_sequences
            add_at(
                state["document_rows"][index, first], batch.tokens.document, torch.full_like(batch.tokens.document, n)
            )

    def _add_rho(self, state: State, batch: QKBatch, gauge: int, key: Tensor) -> None:
        """Key length against the attention received from the sampled queries behind, by buckets of positions."""
        received = _received(batch, self.every)  # (batch, q_head, pos), NaN where no query looks
        lengths = key.norm(dim=-1).repeat_interleave(batch.q_heads // batch.kv_heads, dim=1)
        seen = torch.isfinite(received).all(0).all(0)
        received = received.nan_to_num()
        # Position 0 lies in the first bucket: the others are the same with it and without.
        others = bucket_rho(lengths[..., BUCKET:], received[..., BUCKET:], seen[BUCKET:], BUCKET)
        for first in (OUT, IN):
            valid = seen[:BUCKET].clone()
            valid[0] &= first == IN
            own = bucket_rho(lengths[..., :BUCKET], received[..., :BUCKET], valid, BUCKET)
            where = (batch.index, slice(0, batch.q_heads), gauge, first)
            for name, a, b in zip(("rho_z", "rho_weight"), own, others, strict=True):
                state[name][where] += a + b

    def _add_cloud(self, state: State, batch: QKBatch) -> None:
        """Where each key stands by its length and by the attention that it receives, raw gauge."""
        received = _received(batch, self.every)
        at = torch.arange(FROM_ROW, batch.length, self.every, device=received.device)
        visible = _visible(batch, at, IN)[:, 0]  # (batch or 1, row, key)
        behind = visible & (at[:, None] > torch.arange(batch.length, device=at.device))
        uniform = torch.where(behind, 1 / visible.sum(-1, keepdim=True), 0).sum(1) / behind.sum(1)  # (batch or 1, key)
        lift = (received / uniform[:, None]).log()
        length = batch.k["scored"].to(lift.dtype).norm(dim=-1).log()
        usual = torch.where(length.isfinite(), length, torch.nan)[..., 1:].nanmean(-1, keepdim=True)
        away = (length - usual).repeat_interleave(batch.q_heads // batch.kv_heads, dim=1)  # (batch, q_head, pos)
        seen = received.isfinite() & away.isfinite()  # what receives nothing at all lies in the lowest bin
        slot = _binned(away.nan_to_num(), LENGTHS) * LIFTS.count + _binned(lift.nan_to_num(), LIFTS)
        for first, keys in ((OUT, slice(1, None)), (IN, slice(0, 1))):  # IN: position 0 alone
            chosen = slot[..., keys][seen[..., keys]]
            add_at(state["cloud"][batch.index, first], chosen, torch.ones_like(chosen))

    # ------------------------------------------------------------------ tables
    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """The tables named above."""
        rows = [
            row
            for index, layer in enumerate(spec.model.layers)
            for gauge in self._told(state, index)
            for first in (OUT, IN)
            for row in _split_rows(state, (index, gauge, first), layer)
        ]
        told = by_type.tables(state, spec, lambda index: self._told(state, index), self.min_tokens)
        return {"split": pd.DataFrame(rows, columns=_SPLIT), **told, "length_attention": _cloud_rows(state, spec)}

    def _told(self, state: State, index: int) -> tuple[int, ...]:
        settled = int(state["phase"]) == _SETTLED and int(state["n_kept"][index]) >= 0
        return (RAW, BALANCED) if settled else (RAW,)


_SPLIT = (
    *("layer", "q_head", "gauge", "first", "document", "n_rows", "phi_norm", "phi_angle", "norm_attention_rho", "r2"),
    *("tv", "beta", "leverage", "k_log_mean", "k_log_sd", "n_keys", "gauge_error", "n_kept"),
)


def _binned(x: Tensor, bins: Bins) -> Tensor:
    return ((x - bins.low) * bins.per_unit).floor().clamp(0, bins.count - 1).long()


def _add_lengths(state: State, batch: QKBatch, gauge: int, key: Tensor) -> None:
    """Moments of log key lengths by document, keys of length 0 left out."""
    log = key.double().norm(dim=-1).log()  # (batch, kv_head, pos)
    documents, own = batch.tokens.document.unique(return_inverse=True)  # of the batch: a text may have thousands
    document = torch.nn.functional.one_hot(own, len(documents)).double()  # (batch, document)
    at = documents.to(state["log_n"].device)
    for first in (OUT, IN):
        part = log[..., 1:] if first == OUT else log
        length = part.shape[-1]
        x = part.transpose(0, 1).flatten(1)  # (kv_head, token)
        alive = x.isfinite()
        member = document.repeat_interleave(length, dim=0) * alive[..., None]  # (kv_head, token, document)
        new = moments.of_groups(torch.where(alive, x, 0), member)
        where = (batch.index, slice(0, batch.kv_heads), gauge, first)
        old = {name: state[f"log_{name}"][where][:, at] for name in new}
        merged = moments.merge(old, {name: value.to(old["n"].device) for name, value in new.items()})
        for name, value in merged.items():
            state[f"log_{name}"][where][:, at] = value


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
    lengths = _lengths(state, where, layer, slice(None))
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
            **lengths[head],
            "gauge_error": error,
            "n_kept": max(0, int(state["n_kept"][index])) if gauge == BALANCED else 0,
        }
        for head in range(layer.q_heads)
    ]
    return rows + _document_rows(state, where, common, layer)


def _lengths(state: State, where: tuple[int, int, int], layer: LayerSpec, documents: slice) -> list[dict[str, Any]]:
    """Mean and spread of log key lengths over some documents, by q_head (that of its kv_head)."""
    index, gauge, first = where
    part = {n: state[f"log_{n}"][index, : layer.kv_heads, gauge, first, documents] for n in ("n", "mean", "m2")}
    whole = {n: x[:, 0].numpy() for n, x in moments.pool(part, range(part["n"].shape[-1])).items()}
    some = np.where(whole["n"] > 0, whole["n"], np.nan)
    mean, spread = whole["mean"] + 0 * some, np.sqrt(whole["m2"] / some)
    group = layer.q_heads // layer.kv_heads
    return [
        {"k_log_mean": mean[kv], "k_log_sd": spread[kv], "n_keys": int(whole["n"][kv])}
        for kv in (head // group for head in range(layer.q_heads))
    ]


def _document_rows(
    state: State, where: tuple[int, int, int], common: dict[str, Any], layer: LayerSpec
) -> list[dict[str, Any]]:
    """φ's, tv and key lengths by document, as intervals need them."""
    index, gauge, first = where
    heads = layer.q_heads
    n = state["document_rows"][index, first].numpy()
    sums = {name: state[f"document_{name}"][index, :heads, gauge, first].numpy() for name in _BY_DOCUMENT}
    rows = []
    for document in np.flatnonzero(n):
        mean = {name: torch.from_numpy(x[:, document] / n[document]) for name, x in sums.items()}
        norm, angle = norm_share(mean["empty"], mean["angle"], mean["length"])
        lengths = _lengths(state, where, layer, slice(document, document + 1))
        rows += [
            {
                **common,
                "q_head": head,
                "document": int(document),
                "n_rows": int(n[document]),
                "phi_norm": float(norm[head]),
                "phi_angle": float(angle[head]),
                "tv": float(mean["tv"][head]),
                **lengths[head],
            }
            for head in range(heads)
        ]
    return rows


def _cloud_rows(state: State, spec: Spec) -> pd.DataFrame:
    """The table length_attention: only bins that hold something."""
    cloud = state["cloud"].numpy().reshape(-1, len(FIRSTS), LENGTHS.count, LIFTS.count)
    index, first, length, lift = np.nonzero(cloud)
    layers = np.array([layer.layer for layer in spec.model.layers])
    return pd.DataFrame(
        {
            "layer": layers[index],
            "first": first == IN,
            "length_low": LENGTHS.edges[length],
            "length_high": LENGTHS.edges[length + 1],
            "lift_low": LIFTS.edges[lift],
            "lift_high": LIFTS.edges[lift + 1],
            "count": cloud[index, first, length, lift],
        }
    )
