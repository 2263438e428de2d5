"""The part of `split` that goes by types: the parts of Λ and the lengths of keys, in both gauges."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import QKBatch
from geomprobe.attention.spec import LayerSpec, Spec
from geomprobe.labels import CLASS_INDEX, FIRST, FROM_ROW, GAUGES, TOKEN_CLASSES, UNIONS
from geomprobe.probes.base import State, add_at, counts, zeros
from geomprobe.stats.lift import norm_lift
from geomprobe.stats.suffix import contrast_parts, first_contrast, neighbours_of, queries_of

RAW = 0
BUCKETS, BUCKET = 8, 64  # at most so many buckets of positions, each of at least so many
CLASS_SPLIT = ("layer", "q_head", "token_class", "gauge", "class_sink", "norm_part", "angle_part", "n_types")
NORM_LIFT = ("layer", "head", "token_class", "gauge", "norm_lift", "n_types", "n_extrapolated", "zipf_slope")
TYPE_SPLIT = (
    *("layer", "gauge", "type", "token_class", "document", "zipf", "n", "k_log_mean", "n_sink", "lambda"),
    "norm_part",
)
Told = Callable[[int], tuple[int, ...]]  # from a layer's index to the gauges that it is told in


def init(spec: Spec) -> State:
    """Sums by type and by (type, document) cell, and of position 0."""
    layers, heads, kv = spec.model.n_layers, spec.model.q_heads, spec.model.kv_heads
    types, cells = len(spec.corpus.types), len(spec.corpus.cells)
    gauges = len(GAUGES)
    return {
        "type_n": counts(layers, types),
        "type_total": zeros(layers, heads, types),
        "type_norm": zeros(layers, heads, gauges, types),
        "key_n": counts(layers, kv, gauges, types),
        "key_log": zeros(layers, kv, gauges, types),
        "cell_sink_n": counts(layers, cells),
        "cell_total": zeros(layers, cells),
        "cell_norm": zeros(layers, gauges, cells),
        "cell_n": counts(layers, gauges, cells),
        "cell_log": zeros(layers, gauges, cells),
        "places": counts(cells * BUCKETS),
        "first_n": counts(layers),
        "first_total": zeros(layers, heads),
        "first_norm": zeros(layers, heads, gauges),
    }


def add(state: State, batch: QKBatch, gauge: int, vectors: tuple[Tensor, Tensor], *, reach: int, least: int) -> None:
    """Add one layer of one batch in one gauge, in place.

    Parameters
    ----------
    state : State
    batch : QKBatch
    gauge : int
        Place in GAUGES.
    vectors : (Tensor, Tensor)
        Queries and keys in that gauge.
    reach, least : int
        Half the width of a neighbourhood, and the fewest queries of a Λ.
    """
    _add_lambda(state, batch, gauge, vectors, reach=reach, least=least)
    _add_lengths(state, batch, gauge, vectors[1])


def _add_lambda(
    state: State, batch: QKBatch, gauge: int, vectors: tuple[Tensor, Tensor], *, reach: int, least: int
) -> None:
    query, key = vectors
    tokens, heads, index = batch.tokens, batch.q_heads, batch.index
    late = torch.arange(batch.length, device=key.device) >= FROM_ROW
    content = (tokens.token_class == CLASS_INDEX["content"]) & late
    near, queries = neighbours_of(content, reach), queries_of(batch.visibility, reach)
    total, norm = contrast_parts(query, key, neighbours=near, queries=queries, scale=batch.scale)
    has = ((near.count > 0) & (queries.count >= least) & late).flatten().nonzero().flatten()
    kinds, cells = tokens.type_index.flatten()[has], tokens.cell_index.flatten()[has]
    total, norm = (x.transpose(0, 1).flatten(1)[:, has] for x in (total, norm))  # (q_head, token)
    add_at(state["type_norm"][index, :heads, gauge], kinds, norm)
    add_at(state["cell_norm"][index, gauge], cells, norm.mean(0))
    whole, part, n = first_contrast(query, key, content, batch.visibility, reach=reach, scale=batch.scale)
    state["first_norm"][index, :heads, gauge] += part.cpu()
    if gauge == RAW:
        one = torch.ones_like(kinds)
        add_at(state["type_n"][index], kinds, one)
        add_at(state["type_total"][index, :heads], kinds, total)
        add_at(state["cell_sink_n"][index], cells, one)
        add_at(state["cell_total"][index], cells, total.mean(0))
        state["first_total"][index, :heads] += whole.cpu()
        state["first_n"][index] += n


def _add_lengths(state: State, batch: QKBatch, gauge: int, key: Tensor) -> None:
    """Mean log key lengths and the places of tokens, position 0 left out.

    A key of length 0, which a gauge that centres may make of one that is always the same, has no log: a head goes
    without it, and the mean over heads without its token.
    """
    tokens, index, heads = batch.tokens, batch.index, batch.kv_heads
    placed = (tokens.cell_index >= 0).flatten().nonzero().flatten()
    kinds, cells = tokens.type_index.flatten()[placed], tokens.cell_index.flatten()[placed]
    log = key.double().norm(dim=-1).log().transpose(0, 1).flatten(1)[:, placed]  # (kv_head, token)
    alive = log.isfinite()
    add_at(state["key_n"][index, :heads, gauge], kinds, alive.long())
    add_at(state["key_log"][index, :heads, gauge], kinds, torch.where(alive, log, 0))
    whole = alive.all(0).nonzero().flatten()
    add_at(state["cell_n"][index, gauge], cells[whole], torch.ones_like(whole))
    add_at(state["cell_log"][index, gauge], cells[whole], log[:, whole].mean(0))
    if gauge == RAW and index == 0:  # the same in all layers
        add_at(state["places"], cells * BUCKETS + _bucket(batch)[placed], torch.ones_like(cells))


def _bucket(batch: QKBatch) -> Tensor:
    """The bucket of positions of each token of the flattened batch: (token,) int64."""
    size = max(BUCKET, -(-batch.length // BUCKETS))
    position = torch.arange(batch.length, device=batch.tokens.type_index.device)
    return (position // size).expand(batch.n_sequences, -1).flatten()


def tables(state: State, spec: Spec, told: Told, min_tokens: int) -> dict[str, pd.DataFrame]:
    """class_split, norm_lift, type_split and type_places."""
    layers = list(enumerate(spec.model.layers))
    members = _members(spec)
    where = [(index, layer, gauge) for index, layer in layers for gauge in told(index)]
    classes = [row for at in where for row in _class_rows(state, at, members, min_tokens)]
    lifts = [row for at in where for row in _lift_rows(state, at, members, spec, min_tokens)]
    cells = [_cell_rows(state, at, spec) for at in where]
    return {
        "class_split": pd.DataFrame(classes, columns=CLASS_SPLIT),
        "norm_lift": pd.DataFrame(lifts, columns=NORM_LIFT),
        "type_split": pd.concat(cells, ignore_index=True) if cells else pd.DataFrame(columns=TYPE_SPLIT),
        "type_places": _place_rows(state, spec),
    }


def _members(spec: Spec) -> dict[str, np.ndarray]:
    """Which types are of a class or union of classes: (type,) bool."""
    kinds = np.array([CLASS_INDEX[name] for _, name in spec.corpus.types], dtype=np.int64)
    classes = {name: [CLASS_INDEX[name]] for name in TOKEN_CLASSES if name != FIRST}
    classes |= {name: [CLASS_INDEX[part] for part in parts] for name, parts in UNIONS.items()}
    return {name: np.isin(kinds, members) for name, members in classes.items()}


def _over(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Mean over some types: (head,); NaN over none."""
    return values[:, inside].mean(axis=1) if inside.any() else np.full(len(values), np.nan)


def _class_rows(
    state: State, where: tuple[int, LayerSpec, int], members: dict[str, np.ndarray], min_tokens: int
) -> list[dict[str, Any]]:
    index, layer, gauge = where
    heads = layer.q_heads
    n = state["type_n"][index].numpy()
    enough = n >= min_tokens
    total, norm = (
        x.numpy() / np.maximum(n, 1)
        for x in (state["type_total"][index, :heads], state["type_norm"][index, :heads, gauge])
    )
    count = int(state["first_n"][index])
    first = [state["first_total"][index, :heads].numpy(), state["first_norm"][index, :heads, gauge].numpy()]
    whole, part = (x / count if count else np.full(heads, np.nan) for x in first)
    rows = _class_table(layer, gauge, FIRST, (whole, part), int(count > 0))
    content = enough & members["content"]
    for name, of_class in members.items():
        inside = enough & of_class
        parts = (_over(total, inside) - _over(total, content), _over(norm, inside) - _over(norm, content))
        rows += _class_table(layer, gauge, name, parts, int(inside.sum()))
    return rows


def _class_table(
    layer: LayerSpec, gauge: int, name: str, parts: tuple[np.ndarray, np.ndarray], n_types: int
) -> list[dict[str, Any]]:
    total, norm = parts
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


def _places(state: State, spec: Spec) -> np.ndarray:
    """Tokens of each type by bucket of positions: (type, bucket) float64."""
    of_cell = state["places"].numpy().reshape(-1, BUCKETS)
    made = np.zeros((len(spec.corpus.types), BUCKETS))
    np.add.at(made, spec.corpus.cells[:, 0], of_cell)
    return made


def _lift_rows(
    state: State, where: tuple[int, LayerSpec, int], members: dict[str, np.ndarray], spec: Spec, min_tokens: int
) -> list[dict[str, Any]]:
    index, layer, gauge = where
    total, n = (state[name][index, : layer.kv_heads, gauge].numpy() for name in ("key_log", "key_n"))
    log = total / np.where(n >= min_tokens, n, np.nan)  # (kv_head, type)
    places = _places(state, spec)
    rows = []
    for head in range(layer.kv_heads):  # one by one, as a head without keys takes none from the others
        found = norm_lift(log[head : head + 1], spec.corpus.zipf, places, members["content"])
        for name, of_class in members.items():
            inside = of_class & np.isfinite(found.value[0])
            rows.append(
                {
                    "layer": layer.layer,
                    "head": head,
                    "token_class": name,
                    "gauge": GAUGES[gauge],
                    "norm_lift": _over(found.value, inside)[0],
                    "n_types": int(inside.sum()),
                    "n_extrapolated": int((inside & found.extrapolated).sum()),
                    "zipf_slope": found.slope[0],
                }
            )
    return rows


def _named(spec: Spec, cells: np.ndarray) -> dict[str, Any]:
    """The columns that say which (type, document) cell a row is of."""
    kind, document = spec.corpus.cells[cells].T
    names = np.array([name for name, _ in spec.corpus.types], dtype=object)
    classes = np.array([token_class for _, token_class in spec.corpus.types], dtype=object)
    return {"type": names[kind], "token_class": classes[kind], "document": document}


def _cell_rows(state: State, where: tuple[int, LayerSpec, int], spec: Spec) -> pd.DataFrame:
    index, layer, gauge = where
    n, n_sink = state["cell_n"][index, gauge].numpy(), state["cell_sink_n"][index].numpy()
    seen = np.flatnonzero((n > 0) | (n_sink > 0))
    some, judged = (np.where(x[seen] > 0, x[seen], np.nan) for x in (n, n_sink))
    columns = {
        "layer": layer.layer,
        "gauge": GAUGES[gauge],
        **_named(spec, seen),
        "zipf": spec.corpus.zipf[spec.corpus.cells[seen, 0]],
        "n": n[seen],
        "k_log_mean": state["cell_log"][index, gauge].numpy()[seen] / some,
        "n_sink": n_sink[seen],
        "lambda": state["cell_total"][index].numpy()[seen] / judged,
        "norm_part": state["cell_norm"][index, gauge].numpy()[seen] / judged,
    }
    return pd.DataFrame(columns, columns=TYPE_SPLIT)


def _place_rows(state: State, spec: Spec) -> pd.DataFrame:
    of_cell = state["places"].numpy().reshape(-1, BUCKETS)
    cell, bucket = np.nonzero(of_cell)
    return pd.DataFrame({**_named(spec, cell), "bucket": bucket, "n": of_cell[cell, bucket]})
