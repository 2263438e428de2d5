"""Checkpoints made up so that each claim can be decided each way: a few tables, in which every number is planted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from geomprobe.labels import GAUGES
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.run.manifest import SCHEMA, write_manifest
from geomprobe.run.reading import Run, open_run

LAYERS, HEADS, DOCUMENTS, BUCKETS = 3, 2, 12, 3
FUNCTION, CONTENT = 14, 24  # types
FAR = 9.0  # what rows that nobody should read would say


def both(value: Any) -> dict[str, Any]:
    """The same in both gauges, or what is given for each."""
    return dict(value) if isinstance(value, Mapping) else dict.fromkeys(GAUGES, value)


def manifest(name: str, *, norm: bool, **model: Any) -> dict[str, Any]:
    """What run.json says, as far as a ledger reads it."""
    norms = {"axis": "head", "order": "before_rope"} if norm else None
    layer = {"q_heads": HEADS, "kv_heads": 1, "head_dim": 16, "window": None, "q_norm": norms, "k_norm": norms}
    return {
        "schema": SCHEMA,
        "command": f"geomprobe analyze --model {name} --out runs/{name}",
        "model": {
            "name": name,
            "id": f"example/{name}",
            "revision": None,
            "sha256": "0" * 64,
            "family": "llama",
            "dtype": "float32",
            "parameters": 1_000_000,
            "anatomy": [{"layer": index, **layer} for index in range(LAYERS)],
            **model,
        },
        "corpus": {"name": "made up", "window": 64, "n_documents": DOCUMENTS},
    }


def split(
    rng: np.random.Generator, *, share: Any, rho: Any, log_sd: Any, tv: Any, noise: float, documents: int
) -> pd.DataFrame:
    """Table split; with position 0 in, and in the rows over all documents, it says something else altogether."""
    share, rho, log_sd, tv = (both(value) for value in (share, rho, log_sd, tv))
    rows = []
    for layer in range(LAYERS):
        for head in range(HEADS):
            for gauge in GAUGES:
                for document in range(documents):
                    phi = max(1e-3, share[gauge] + noise * rng.standard_normal())
                    rows.append(
                        {
                            **{"layer": layer, "q_head": head, "gauge": gauge, "first": "out", "document": document},
                            **{"n_rows": 20 + 5 * (document % 3), "n_keys": 60 + document},
                            **{"phi_norm": phi, "phi_angle": 1 - share[gauge]},
                            "tv": tv[gauge] * np.exp(noise * rng.standard_normal()),
                            "k_log_mean": 2.5,
                            "k_log_sd": log_sd[gauge] * np.exp(noise * rng.standard_normal()),
                        }
                    )
                rows.append(
                    {
                        **{"layer": layer, "q_head": head, "gauge": gauge, "first": "out", "document": -1},
                        **{"n_rows": 300, "n_keys": 800, "phi_norm": FAR, "phi_angle": -FAR, "tv": FAR},
                        **{"k_log_mean": FAR, "k_log_sd": FAR, "r2": 0.9, "norm_attention_rho": rho[gauge]},
                    }
                )
    out = pd.DataFrame(rows)
    inside = out.assign(first="in", phi_norm=FAR - out["phi_norm"], tv=0.5 - out["tv"], k_log_sd=FAR)
    return pd.concat([out, inside.assign(norm_attention_rho=-out["norm_attention_rho"])], ignore_index=True)


def kinds(function: int, content: int) -> pd.DataFrame:
    """The types; those of function words are no more frequent than the most frequent of the content words."""
    frames = [
        pd.DataFrame({"type": [f"{name}{i}" for i in range(n)], "token_class": name, "zipf": np.linspace(*between, n)})
        for name, n, between in (
            ("preposition", function - function // 4, (4.0, 6.2)),
            ("article", function // 4, (5.0, 6.4)),
            ("content", content, (3.0, 6.6)),
            ("punctuation", 3, (np.nan, np.nan)),
        )
    ]
    return pd.concat(frames, ignore_index=True)


def type_tables(
    rng: np.random.Generator,
    *,
    sink: Any,
    lift: Any,
    part: Any,
    spread: float,
    documents: int,
    function: int,
    content: int,
) -> dict[str, pd.DataFrame]:
    """Tables type_stats, type_split and type_places: Λ by layer, lengths and the part of Λ in them by gauge."""
    known = kinds(function, content)
    closed = known["token_class"].isin(["preposition", "article"]).to_numpy()
    sinks = np.broadcast_to(np.asarray(sink, dtype=float), (LAYERS,))
    lift, part = both(lift), both(part)
    own = rng.normal(0, spread, len(known))  # of the types' Λ, the same in all layers
    for group in (closed, (known["token_class"] == "content").to_numpy()):
        own[group] -= own[group].mean() if group.any() else 0
    long = rng.normal(0, 0.1 * spread, len(known))
    n = 1 + rng.poisson(2, size=(len(known), documents, BUCKETS))
    kind, document, bucket = np.nonzero(n)
    named = known.loc[kind, ["type", "token_class"]].reset_index(drop=True)
    places = named.assign(document=document, bucket=bucket, n=n[kind, document, bucket])
    kind, document = (x.ravel() for x in np.indices((len(known), documents)))
    tokens = n.sum(2).ravel()
    cell = known.iloc[kind].reset_index(drop=True).assign(document=document, n=tokens, n_sink=tokens - 1)
    seen, told = [], []
    for layer in range(LAYERS):
        value = sinks[layer] * closed[kind] + own[kind] + rng.normal(0, spread / 3, len(kind))
        seen.append(cell.assign(layer=layer, neighbour_offset=0.0, k_log_mean=FAR, **{"lambda": value}))
        for gauge in GAUGES:
            length = 2.5 + 0.02 * known["zipf"].fillna(0).to_numpy()[kind] + lift[gauge] * closed[kind] + long[kind]
            length = length + rng.normal(0, spread / 30, len(kind))
            noise = rng.normal(0, spread / 10, len(kind))
            mine = {"lambda": value, "norm_part": part[gauge] * value + noise, "k_log_mean": length}
            told.append(cell.assign(layer=layer, gauge=gauge, **mine))
    return {"type_stats": pd.concat(seen), "type_split": pd.concat(told), "type_places": places}


def document_stats(rng: np.random.Generator, *, one_hot: float, documents: int) -> pd.DataFrame:
    """Table document_stats; the row over all layers says something else."""
    rows = [
        {
            **{"layer": layer, "document": document, "n_rows": 100 + document, "rest_mass": 0.3 + 0.02 * layer},
            "one_hot_rate_weighted": FAR if layer < 0 else one_hot * np.exp(0.1 * rng.standard_normal()),
        }
        for layer in (-1, *range(LAYERS))
        for document in range(documents)
    ]
    return pd.DataFrame(rows)


def logits(*, row_sd: float, p999: float) -> pd.DataFrame:
    """Table logits; before a soft-cap they are larger."""
    rows = [
        {"layer": layer, "q_head": head, "capped": capped, "row_sd": scale * row_sd, "p999": scale * p999}
        for layer in range(LAYERS)
        for head in range(HEADS)
        for capped, scale in (("after", 1.0), ("before", FAR))
    ]
    return pd.DataFrame(rows)


def order(**errors: float) -> pd.DataFrame:
    """Table order."""
    return pd.DataFrame(
        [
            {"layer": layer, "vector": "q", "head": head, "order": "before_rope", "n_windows": 4, **errors}
            for layer in range(LAYERS)
            for head in range(HEADS)
        ]
    )


def made_run(
    name: str = "made",
    *,
    norm: bool = False,
    gain_cv: float | None = None,
    share: Any = 0.2,
    rho: Any = 0.3,
    log_sd: Any = 0.2,
    tv: Any = 0.3,
    sink: Any = 0.0,
    lift: Any = 0.0,
    part: Any = 0.1,
    one_hot: float = 0.03,
    row_sd: float = 2.0,
    p999: float = 6.0,
    errors: Mapping[str, float] | None = None,
    noise: float = 0.05,
    spread: float = 0.1,
    documents: int = DOCUMENTS,
    function: int = FUNCTION,
    content: int = CONTENT,
    seed: int = 0,
    without: tuple[str, ...] = (),
    **model: Any,
) -> Run:
    """An analysis, in memory.

    Parameters
    ----------
    share, rho, log_sd, tv, lift, part
        norm_share, norm_attention_rho, log_sd of keys, tv, log length of function words above what their frequency
        has, share of their Λ in lengths; a number, or one by gauge.
    sink
        Λ of function words above that of content words, or one by layer; each layer is a third of the depth.
    errors
        Columns of `order`.
    without
        Tables that are not there.
    model
        Of the manifest.
    """
    rng = np.random.default_rng(seed)
    tables = {
        "split": split(rng, share=share, rho=rho, log_sd=log_sd, tv=tv, noise=noise, documents=documents),
        **type_tables(
            rng,
            sink=sink,
            lift=lift,
            part=part,
            spread=spread,
            documents=documents,
            function=function,
            content=content,
        ),
        "document_stats": document_stats(rng, one_hot=one_hot, documents=documents),
        "logits": logits(row_sd=row_sd, p999=p999),
    }
    if gain_cv is not None:
        tables["gains"] = pd.DataFrame({"layer": range(LAYERS), "vector": "k", "cv": gain_cv})
    if errors is not None:
        tables["order"] = order(**errors)
    kept = {key: table for key, table in tables.items() if key not in without}
    return Run(Path("made") / name, manifest(name, norm=norm, **model), kept)


def made_trial(
    run: Run,
    costs: Mapping[str, float],
    *,
    noise: float = 0.001,
    documents: int = DOCUMENTS,
    seed: int = 0,
    **model: Any,
) -> Run:
    """Interventions on the same checkpoint: what each setting costs, in nats a token; other rows say something else."""
    rng = np.random.default_rng(seed)
    rows = []
    for setting, cost in {"sham": 0.0, **costs}.items():
        plain, _, gauge = setting.partition("@")
        edit, _, inner = plain.rstrip(")").partition("(")
        token_class, _, strength = inner.partition(", ")
        common = {
            "edit": edit,
            "setting": setting,
            "strength": float(strength) if strength else np.nan,
            "token_class": token_class if strength else "",
            "against": "" if strength else inner,
            "gauge": gauge or "raw",
        }
        for layers in ("all", "0"):
            for document in range(-1, documents):
                far = document < 0 or layers != "all"
                value = FAR if far else cost + noise * rng.standard_normal()
                numbers = {"n_tokens": 40 + document, "delta_ce": value, "kl": abs(value), "displacement": 0.1}
                doses = {"delta_class_sink": 0.25 if document < 0 else np.nan, "n_kept": 0}
                rows.append({**common, "layers": layers, "document": document, **numbers, **doses})
    given = {**run.manifest, "command": f"geomprobe intervene --model {run.name}"}
    given["model"] = {**run.manifest["model"], **model}
    return Run(Path("made") / f"{run.name}-edits", given, {"interventions": pd.DataFrame(rows)})


def edits(length: Any, angle: Any, **others: float) -> dict[str, float]:
    """Costs of shuffled lengths and of angles moved as far, in both gauges, and of other edits."""
    length, angle = both(length), both(angle)
    made = {}
    for gauge in GAUGES:
        at = "" if gauge == "raw" else f"@{gauge}"
        made |= {f"permute_norm{at}": length[gauge], f"swap_angle(permute_norm){at}": angle[gauge]}
    return {**made, **others}


def checkpoint(costs: Mapping[str, float] | None = None, **planted: Any) -> Checkpoint:
    """A checkpoint with its analysis, and its trial where there are costs."""
    run = made_run(**planted)
    return Checkpoint(run, (made_trial(run, costs),) if costs else ())


def written(run: Run, folder: Path) -> Run:
    """The same run in a folder."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in run.tables.items():
        table.to_parquet(folder / "tables" / f"{name}.parquet", index=False)
    write_manifest(folder, run.manifest)
    return open_run(folder)
