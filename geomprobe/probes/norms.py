"""Lengths of queries, keys and values, by layer, head, stage and token class."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from geomprobe.attention.batch import QKBatch
from geomprobe.attention.spec import LayerSpec, Spec
from geomprobe.labels import CLASS_ROWS, STAGES, TOKEN_CLASSES, UNIONS
from geomprobe.probes.base import PROBES, State, VectorProbe, add_at, counts, zeros
from geomprobe.stats import moments
from geomprobe.stats.histogram import Bins, quantile_bins

# What is measured: every stage of q and k, the values as they are mixed.
SERIES = (*(("q", stage) for stage in STAGES), *(("k", stage) for stage in STAGES), ("v", "scored"))
LENGTH_BINS = Bins(low=-10, high=14, per_unit=32)  # on log2 of the length
QUANTILES = {"p01": 0.01, "p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}
_MOMENTS = ("length", "log")
_N_CLASSES = len(TOKEN_CLASSES)


def _offsets(spec: Spec) -> dict[tuple[str, str], int]:
    """Where each (vector, stage) begins among the series of a layer."""
    starts, at = {}, 0
    for vector, stage in SERIES:
        starts[vector, stage] = at
        at += spec.model.q_heads if vector == "q" else spec.model.kv_heads
    starts["", ""] = at
    return starts


@PROBES.register("norms")
@dataclass(frozen=True)
class Norms(VectorProbe):
    """Moments, quantiles and histograms of ‖q‖, ‖k‖ and ‖v‖ (docs/schema.md: norms)."""

    def init(self, spec: Spec) -> State:
        """States are (layer, series, class); a series is one head of one stage of one vector."""
        layers, series = spec.model.n_layers, _offsets(spec)["", ""]
        shape = (layers, series, _N_CLASSES)
        state = {f"{what}_{name}": value for what in _MOMENTS for name, value in moments.empty(*shape).items()}
        state["min"] = torch.full(shape, torch.inf, dtype=torch.float64)
        state["max"] = torch.full(shape, -torch.inf, dtype=torch.float64)
        state["histogram"] = counts(layers, series, _N_CLASSES * LENGTH_BINS.count)
        per_document = moments.empty(layers, spec.model.kv_heads, len(spec.corpus.documents))
        state |= {f"document_{name}": value for name, value in per_document.items()}
        state["cell_n"] = counts(layers, len(spec.corpus.cells))
        state["cell_log"] = zeros(layers, len(spec.corpus.cells))
        # Where each stage's heads begin, so that an update needs nothing but the state.
        state["offsets"] = torch.tensor(list(_offsets(spec).values()))
        return state

    def update(self, state: State, batch: QKBatch) -> None:
        """Add one layer of one batch, in place."""
        token_class = batch.tokens.token_class.flatten()  # (token,)
        member = batch.tokens.once(  # (token, class)
            "member", lambda: torch.nn.functional.one_hot(token_class, _N_CLASSES).double()
        )
        lengths, series = [], []
        for offset, (vector, stage) in zip(state["offsets"].tolist(), SERIES, strict=False):
            tensor = getattr(batch, vector).get(stage)
            if tensor is not None:
                length = torch.linalg.vector_norm(tensor, dim=-1, dtype=_wide(tensor)).double()
                lengths.append(length.transpose(0, 1).flatten(1))  # (head, token)
                series.append(torch.arange(offset, offset + len(lengths[-1])))
        # All series at once: a few large operations instead of many small ones.
        _add_lengths(state, (batch.index, torch.cat(series)), torch.cat(lengths), token_class, member)
        self._by_document(state, batch)

    def _by_document(self, state: State, batch: QKBatch) -> None:
        key = batch.k["scored"]
        log = torch.linalg.vector_norm(key, dim=-1, dtype=_wide(key)).double().log()  # (batch, kv_head, pos)
        cell = batch.tokens.cell_index
        alive = (
            (log.isfinite().all(1) & (cell >= 0)).flatten().nonzero().flatten()
        )  # position 0 apart, and lengths of 0
        x = log.transpose(0, 1).flatten(1).index_select(1, alive)  # (kv_head, token)
        cells = cell.flatten()[alive]
        add_at(state["cell_n"][batch.index], cells, torch.ones_like(cells))
        add_at(state["cell_log"][batch.index], cells, x.mean(0))
        document = batch.tokens.document[:, None].expand_as(cell).flatten()[alive]
        n_documents = state["document_n"].shape[-1]
        member = torch.nn.functional.one_hot(document, n_documents).double()  # (token, document)
        _merge_into(state, "document", (batch.index, slice(0, batch.kv_heads)), moments.of_groups(x, member))

    def merge(self, a: State, b: State) -> State:
        """The state of both streams together."""
        merged = {name: a[name] + b[name] for name in ("histogram", "cell_n", "cell_log")}
        merged["offsets"] = a["offsets"].clone()
        merged["min"] = torch.minimum(a["min"], b["min"])
        merged["max"] = torch.maximum(a["max"], b["max"])
        for what in (*_MOMENTS, "document"):
            both = moments.merge(*({n: s[f"{what}_{n}"] for n in ("n", "mean", "m2")} for s in (a, b)))
            merged |= {f"{what}_{name}": value for name, value in both.items()}
        return merged

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """norms, norm_histograms and parts of document_stats and type_stats."""
        blocks = [
            (layer, vector, stage, _rows(state, index, offset, heads))
            for index, layer in enumerate(spec.model.layers)
            for (vector, stage), offset in zip(SERIES, state["offsets"].tolist(), strict=False)
            if (heads := _heads(layer, vector, stage))
        ]
        return {
            "norms": pd.concat([_norm_rows(*block) for block in blocks], ignore_index=True),
            "norm_histograms": pd.concat([_histogram_rows(*block) for block in blocks], ignore_index=True),
            "document_stats": _document_rows(state, spec),
            "type_stats": _type_rows(state, spec),
        }


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _add_lengths(state: State, where: tuple[int, Tensor], length: Tensor, token_class: Tensor, member: Tensor) -> None:
    """Add lengths (series, token) to the series `where` = (layer, series) of the state, in place."""
    layer, series = where
    _merge_into(state, "length", (layer, series), moments.of_groups(length, member))
    alive = length > 0
    log = torch.where(alive, length, 1).log()
    some_dead = not bool(alive.all())
    logged = member * alive[..., None] if some_dead else member  # (head or 1, token, class)
    _merge_into(state, "log", (layer, series), moments.of_groups(log, logged))

    at = token_class.expand_as(length).to(state["min"].device)
    for name, keep in (("min", "amin"), ("max", "amax")):
        seen = state[name][layer, series].scatter_reduce_(1, at, length.to(at.device), keep)
        state[name][layer, series] = seen

    bins = LENGTH_BINS
    bin_index = ((length.clamp(min=2.0**bins.low).log2() - bins.low) * bins.per_unit).floor().clamp(0, bins.count - 1)
    slot = bin_index.long() + token_class * bins.count  # (head, token)
    histogram = state["histogram"][layer]  # (series, class · bin)
    flat = slot.to(histogram.device) + series.to(histogram.device)[:, None] * histogram.shape[1]
    histogram.view(-1).index_add_(0, flat.flatten(), torch.ones_like(flat.flatten()))


def _merge_into(state: State, what: str, where: tuple[int, slice | Tensor], new: moments.Moments) -> None:
    old = {name: state[f"{what}_{name}"][where] for name in new}
    device = old["n"].device
    for name, value in moments.merge(old, {n: x.to(device) for n, x in new.items()}).items():
        state[f"{what}_{name}"][where] = value


def _heads(layer: LayerSpec, vector: str, stage: str) -> int:
    if stage not in layer.stages.get(vector, ("scored",)):
        return 0
    return layer.q_heads if vector == "q" else layer.kv_heads


def _rows(state: State, index: int, offset: int, heads: int) -> dict[str, NDArray]:
    """The state of one stage of one layer, as arrays (head, class row); unions are pooled from their classes."""
    part = {name: state[name][index, offset : offset + heads] for name in _PER_SERIES}
    unions = [[TOKEN_CLASSES.index(name) for name in members] for members in UNIONS.values()]
    rows: dict[str, NDArray] = {}
    for what in _MOMENTS:
        groups = {name: part[f"{what}_{name}"] for name in ("n", "mean", "m2")}
        pooled = [groups, *(moments.pool(groups, members) for members in unions)]
        rows |= {f"{what}_{name}": torch.cat([p[name] for p in pooled], -1).numpy() for name in groups}
    for name, combine in (("min", torch.amin), ("max", torch.amax)):
        ends = [combine(part[name][:, members], -1, keepdim=True) for members in unions]
        rows[name] = torch.cat([part[name], *ends], -1).numpy()
    histogram = part["histogram"].view(heads, _N_CLASSES, LENGTH_BINS.count)
    sums = [histogram[:, members].sum(1, keepdim=True) for members in unions]
    rows["histogram"] = torch.cat([histogram, *sums], 1).numpy()
    return rows


_PER_SERIES = (*(f"{what}_{name}" for what in _MOMENTS for name in ("n", "mean", "m2")), "min", "max", "histogram")


def _key_columns(layer: LayerSpec, vector: str, stage: str, heads: int) -> dict[str, object]:
    return {
        "layer": layer.layer,
        "vector": vector,
        "head": np.repeat(np.arange(heads), len(CLASS_ROWS)),
        "stage": stage,
        "token_class": np.tile(np.array(CLASS_ROWS, dtype=object), heads),
        "gauge": "raw",
    }


def _norm_rows(layer: LayerSpec, vector: str, stage: str, rows: dict[str, NDArray]) -> pd.DataFrame:
    n, log_n = rows["length_n"], rows["log_n"]
    some, logged = np.where(n > 0, n, np.nan), np.where(log_n > 0, log_n, np.nan)
    mean = rows["length_mean"] + 0 * some
    low, high = np.where(n > 0, rows["min"], np.nan), np.where(n > 0, rows["max"], np.nan)
    values = {
        "n": n.astype(np.int64),
        "mean": mean,
        "geo_mean": np.exp(rows["log_mean"] + 0 * logged),
        "log_sd": np.sqrt(rows["log_m2"] / logged),
        "cv": np.sqrt(rows["length_m2"] / some) / np.where(mean > 0, mean, np.nan),
        "min": low,
    }
    for name, probability in QUANTILES.items():
        found = quantile_bins(rows["histogram"], probability)
        centre = 2.0 ** LENGTH_BINS.centres[np.maximum(found, 0)]
        values[name] = np.where(found >= 0, np.clip(centre, low, high), np.nan)
    values["max"] = high
    flat = {name: value.reshape(-1) for name, value in values.items()}
    return pd.DataFrame({**_key_columns(layer, vector, stage, len(n)), **flat})


def _histogram_rows(layer: LayerSpec, vector: str, stage: str, rows: dict[str, NDArray]) -> pd.DataFrame:
    histogram = rows["histogram"].reshape(-1, LENGTH_BINS.count)
    row, slot = np.nonzero(histogram)
    keys = pd.DataFrame(_key_columns(layer, vector, stage, len(rows["histogram"]))).iloc[row].reset_index(drop=True)
    edges = 2.0**LENGTH_BINS.edges
    keys["edge_low"], keys["edge_high"] = edges[slot], edges[slot + 1]
    keys["count"] = histogram[row, slot]
    return keys


def _document_rows(state: State, spec: Spec) -> pd.DataFrame:
    parts = []
    for index, layer in enumerate(spec.model.layers):
        n, mean, m2 = (state[f"document_{name}"][index, : layer.kv_heads].numpy() for name in ("n", "mean", "m2"))
        some = np.where(n > 0, n, np.nan)
        parts.append(
            pd.DataFrame(
                {
                    "layer": layer.layer,
                    "document": np.arange(n.shape[1]),
                    "k_log_mean": (mean + 0 * some).mean(0),
                    "k_log_sd": np.sqrt(m2 / some).mean(0),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _type_rows(state: State, spec: Spec) -> pd.DataFrame:
    n, total = state["cell_n"].numpy(), state["cell_log"].numpy()
    layers = [layer.layer for layer in spec.model.layers]
    cells = np.arange(n.shape[1])
    return pd.DataFrame(
        {
            "layer": np.repeat(layers, len(cells)),
            "cell": np.tile(cells, len(layers)),
            "n": n.reshape(-1),
            "k_log_mean": (total / np.where(n > 0, n, np.nan)).reshape(-1),
        }
    )
