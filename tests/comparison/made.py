"""Runs made up for comparisons, in memory: what a document says hangs on its name and a seed, not on its number."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from safetensors.numpy import save_file

from geomprobe.labels import GAUGES, WHOLE_MODEL
from geomprobe.run.manifest import SCHEMA, write_manifest
from geomprobe.run.reading import Run, open_run

DOCUMENTS = tuple(f"text {letter}" for letter in "abcdefghijkl")
LAYERS, HEADS, WINDOW = 3, 2, 64
COLUMNS = (
    "first_mass",
    "sink_rate",
    "entropy",
    "one_hot_rate_no_first",
    "logit_sd",
    "logit_max",
    "lift_function",
    "lift_punctuation",
    "lift_content",
)
FAR = 9.0  # what rows that nobody should read would say
TYPES = {"preposition": 5, "article": 3, "punctuation": 6, "content": 14, "subword": 4}
CATEGORIES = {"metals": 6, "kinship": 5, "colours": 4, "time units": 4}


def of_document(seed: int, name: str, what: str) -> np.random.Generator:
    """What is drawn for a document."""
    return np.random.default_rng([seed, crc32(name.encode()), crc32(what.encode())])


def n_rows(name: str) -> int:
    """The same in every run: documents weigh differently, but all models read as much of each."""
    return WINDOW * (1 + crc32(name.encode()) % 4)


def document_stats(documents: Sequence[str], layers: int, seed: int) -> pd.DataFrame:
    """Table document_stats; the loss is of the whole model, and nothing else of that row is to be read."""
    rows = []
    for number, name in enumerate(documents):
        rng = of_document(seed, name, "document_stats")
        for layer in range(layers):
            own = {column: rng.uniform(0.2, 0.6) for column in COLUMNS}
            own |= {"one_hot_rate_weighted": rng.uniform(0, 0.4), "rest_mass": rng.uniform(0.2, 0.9)}
            rows.append({"layer": layer, "document": number, "n_rows": n_rows(name), **own, "loss": np.nan})
        far = dict.fromkeys([*COLUMNS, "one_hot_rate_weighted", "rest_mass"], FAR)
        rows.append(
            {"layer": WHOLE_MODEL, "document": number, "n_rows": n_rows(name), **far, "loss": rng.normal(3, 0.3)}
        )
    return pd.DataFrame(rows)


def split(documents: Sequence[str], layers: int, heads: int, seed: int) -> pd.DataFrame:
    """Table split; with position 0 in it says something else altogether."""
    rows = []
    for number, name in enumerate(documents):
        rng = of_document(seed, name, "split")
        for layer in range(layers):
            for head in range(heads):
                for gauge in GAUGES:
                    own = {
                        "phi_norm": rng.normal(0.3, 0.1),
                        "phi_angle": rng.uniform(0.5, 1),
                        "tv": rng.uniform(0, 0.5),
                    }
                    own |= {"k_log_mean": rng.normal(2.5, 0.3), "k_log_sd": rng.uniform(0.05, 0.3)}
                    own |= {"n_rows": int(rng.integers(5, 40)), "n_keys": int(rng.integers(50, 200))}
                    rows.append({"layer": layer, "q_head": head, "gauge": gauge, "document": number, **own})
    rng = np.random.default_rng([seed, 7])
    for layer in range(layers):
        for head in range(heads):
            for gauge in GAUGES:
                own = {"phi_norm": FAR, "phi_angle": 1.0, "tv": rng.uniform(0, 0.5), "k_log_mean": FAR, "k_log_sd": FAR}
                own |= {"n_rows": 10_000, "n_keys": 10_000, "r2": 0.9, "norm_attention_rho": 0.3}
                rows.append({"layer": layer, "q_head": head, "gauge": gauge, "document": -1, **own})
    out = pd.DataFrame(rows).assign(first="out")
    inside = out.assign(first="in", phi_norm=FAR, tv=FAR, k_log_sd=FAR, k_log_mean=-FAR)
    return pd.concat([out, inside], ignore_index=True)


def type_stats(documents: Sequence[str], layers: int, seed: int, types: Mapping[str, int]) -> pd.DataFrame:
    """Table type_stats: types of several tokens in most documents, some too rare, some without a Λ somewhere."""
    rows = []
    for number, name in enumerate(documents):
        shared = of_document(0, name, "types")  # which tokens stand where is of the text
        rng = of_document(seed, name, "type_stats")
        for token_class, n_types in types.items():
            for index in range(n_types):
                n = int(shared.poisson(2.0))
                for layer in range(layers):
                    value = 0.4 * (token_class == "article") + 0.1 * index + 0.2 * rng.standard_normal()
                    if n:
                        own = {"layer": layer, "type": f"{token_class} {index}", "token_class": token_class}
                        own |= {"document": number, "zipf": 4.0, "n": n + 1, "n_sink": n}
                        rows.append({**own, "lambda": value})
    return pd.DataFrame(rows)


def by_head(layers: int, heads: int, seed: int) -> dict[str, pd.DataFrame]:
    """Tables sinks and logits."""
    rng = np.random.default_rng([seed, 3])
    keys = [{"layer": layer, "q_head": head} for layer in range(layers) for head in range(heads)]
    sinks = pd.DataFrame([{**key, "n_rows": 100, "first_mass": rng.uniform(0, 1)} for key in keys])
    after = pd.DataFrame([{**key, "capped": "after", "entropy_no_first": rng.uniform(1, 3)} for key in keys])
    logits = pd.concat([after, after.assign(capped="before", entropy_no_first=FAR)], ignore_index=True)
    return {"sinks": sinks, "logits": logits}


def manifest(name: str, documents: Sequence[str], layers: int, heads: int, **model: Any) -> dict[str, Any]:
    """What run.json says, as far as a comparison reads it."""
    anatomy = {"q_heads": heads, "kv_heads": 1, "head_dim": 16, "window": None, "q_norm": None, "k_norm": None}
    anatomy |= {"scale": 0.25, "softcap": None, "learned_sinks": False}
    windows = [
        {
            "document": number,
            "token_start": WINDOW * at,
            "char_start": 300 * at,
            "char_end": 300 * at + _characters(name),
        }
        for number, name in enumerate(documents)
        for at in range(n_rows(name) // WINDOW)
    ]
    return {
        "schema": SCHEMA,
        "geomprobe": "0.1.0",
        "fingerprint": f"{crc32(name.encode()):x}",
        "command": f"geomprobe analyze --model {name}",
        "probes": {},
        "model": {
            **{"name": name, "id": f"example/{name}", "source": "folder", "revision": None},
            **{"sha256": f"{crc32(name.encode()):064x}", "family": "llama", "dtype": "float32", "device": "cpu"},
            **{"parameters": 1_000_000, "anatomy": [{"layer": layer, **anatomy} for layer in range(layers)], **model},
        },
        "corpus": {
            **{"name": "made up", "sha256": "1" * 64, "tokens_sha256": "2" * 64, "language": "en", "window": WINDOW},
            **{"n_windows": len(windows), "n_tokens": WINDOW * len(windows), "n_documents": len(documents)},
            **{"bos": False, "documents": list(documents), "windows": windows},
        },
    }


def _characters(name: str) -> int:
    return 200 + crc32(name.encode()) % 90


def made_run(
    name: str = "one",
    *,
    documents: Sequence[str] = DOCUMENTS,
    layers: int = LAYERS,
    heads: int = HEADS,
    types: Mapping[str, int] = TYPES,
    seed: int = 0,
    without: Sequence[str] = (),
    **model: Any,
) -> Run:
    """An analysis in memory; two of one seed say the same of the same documents."""
    tables = {
        "document_stats": document_stats(documents, layers, seed),
        "split": split(documents, layers, heads, seed),
        "type_stats": type_stats(documents, layers, seed, types),
        **by_head(layers, heads, seed),
    }
    kept = {key: table for key, table in tables.items() if key not in without}
    return Run(Path("made") / name, manifest(name, documents, layers, heads, **model), kept)


def changed(run: Run, *, corpus: Mapping[str, Any] | None = None, **tables: pd.DataFrame) -> Run:
    """The same run with other tables, or other entries about its corpus."""
    said = {**run.manifest, "corpus": {**run.manifest["corpus"], **(corpus or {})}}
    return replace(run, manifest=said, tables={**run.tables, **tables})


def trained(step: int, arm: str = "A0", pair: str = "p" * 64) -> dict[str, Any]:
    """What a manifest says of the training."""
    return {"training": {"arm": arm, "pair": pair, "fingerprint": f"{arm} of {pair}", "step": step}}


def nouns(categories: Mapping[str, int] = CATEGORIES) -> list[tuple[str, str]]:
    """Words with their categories."""
    return [(f"{name} {index}", name) for name, n in categories.items() for index in range(n)]


def with_words(
    run: Run, folder: Path, *, words: Sequence[tuple[str, str]] | None = None, seed: int = 0, pull: float = 1.0
) -> Run:
    """The same run with vectors of nouns, and its own folder for them; `pull` is how near a category's nouns are."""
    named = nouns() if words is None else list(words)
    (folder / "vectors").mkdir(parents=True, exist_ok=True)
    layers = len(run.manifest["model"]["anatomy"])
    heads = {"content.k": 2, "content_balanced.k": 2, "content.q": 3, "residual.x": 1, "embedding.x": 1}
    blocks = {}
    for space, n_heads in heads.items():
        for layer in (-1,) if space.startswith("embedding") else range(layers):
            vectors = [_vector(word, category, f"{space}.{layer}", n_heads, seed, pull) for word, category in named]
            blocks[f"{space}.{layer}"] = np.stack(vectors).astype(np.float16)  # (type, head, d)
    order = json.dumps([word for word, _ in named])
    save_file(blocks, folder / "vectors" / "clusters.safetensors", metadata={"types": order})
    contexts = [
        {"word": word, "document": name, "start": 10 * (crc32(f"{word}{name}".encode()) % 50)}
        for word, _ in named
        for name in run.manifest["corpus"]["documents"]
    ]
    tables = {
        "types": pd.DataFrame([{"word": word, "category": category} for word, category in named]),
        "contexts": pd.DataFrame(contexts),
        "clusters": pd.DataFrame([{"layer": 0, "vector": "k", "head": -1, "space": "content", "auc": 0.9}]),
    }
    return replace(changed(run, **tables), path=folder)


def _vector(word: str, category: str, where: str, n_heads: int, seed: int, pull: float) -> np.ndarray:
    middle = of_document(seed, category, where).normal(size=(n_heads, 8))
    return pull * middle + of_document(seed, word, where).normal(size=(n_heads, 8))


def written(run: Run, folder: Path) -> Run:
    """The same run in a folder."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in run.tables.items():
        table.to_parquet(folder / "tables" / f"{name}.parquet", index=False)
    write_manifest(folder, run.manifest)
    return open_run(folder)
