"""A run folder with made-up but plausible values, for the tests of everything that only reads runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from geomprobe.labels import ALL_HEADS, CLASS_ROWS, CLOSED_CLASSES, UNIONS, WHOLE_MODEL
from geomprobe.run.manifest import SCHEMA, sha256_of, write_manifest
from geomprobe.run.reading import Run, open_run
from tests.synthetic_split import split_tables
from tests.synthetic_words import described, word_tables

WINDOW = 64
N_DOCUMENTS = 32
N_WINDOWS = 64
HEAD_DIM = 16
EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.8)
# Types and tokens of a class in the whole text; `special` and `other` were never seen.
CLASS_SIZES = {
    "first": (0, N_WINDOWS),
    "special": (0, 0),
    "newline": (2, 60),
    "punctuation": (6, 480),
    "number": (9, 120),
    "subword": (30, 500),
    "article": (3, 300),
    "preposition": (12, 420),
    "pronoun": (9, 200),
    "conjunction": (4, 180),
    "auxiliary": (8, 170),
    "determiner": (5, 90),
    "particle": (1, 40),
    "content": (90, 1472),
    "other": (0, 0),
}
TOKENS = (
    ("\n", "newline"),
    ("\n\n", "newline"),
    (" the", "article"),
    (".", "punctuation"),
    ("<script>alert('x')</script>", "subword"),
    ("\u05e9\u05dc\u05d5\u05dd", "content"),
    ("\u202e\u0645\u0631", "content"),
    ("\x07\x1b", "punctuation"),
    (" $x_1$", "content"),
    ("\u6f22\u5b57", "content"),
    ("\U0001f642", "subword"),
    ("\u0301a|b\\n", "subword"),
    (" constitutionally-unconstitutionalisation", "content"),
    ("\ufffd", "subword"),
    ("\ufffd", "subword"),
)


@dataclass(frozen=True)
class Shape:
    """What the synthetic model looks like."""

    qk_norm: bool
    n_layers: int
    q_heads: int
    kv_heads: int

    def heads(self, vector: str) -> int:
        return self.q_heads if vector == "q" else self.kv_heads

    def window(self, layer: int) -> int | None:
        """With QK norm, windows of 24 in all but every third layer."""
        return 24 if self.qk_norm and (layer + 1) % 3 else None


def sizes(token_class: str) -> tuple[int, int]:
    """Types and tokens of a row of classes, unions included."""
    members = UNIONS.get(token_class, (token_class,))
    return sum(CLASS_SIZES[name][0] for name in members), sum(CLASS_SIZES[name][1] for name in members)


def anatomy(shape: Shape) -> list[dict[str, Any]]:
    norm = {"axis": "head", "order": "before_rope"}
    return [
        {
            "layer": layer,
            "module": f"model.layers.{layer}.self_attn",
            "q_heads": shape.q_heads,
            "kv_heads": shape.kv_heads,
            "head_dim": HEAD_DIM,
            "window": shape.window(layer),
            "scale": HEAD_DIM**-0.5,
            "softcap": None,
            "learned_sinks": False,
            "stages": {
                "q": ["projected", "content", "scored"],
                "k": ["projected", "content", "scored"],
                "v": ["projected"],
            },
            "q_norm": {"module": f"model.layers.{layer}.self_attn.q_norm", **norm} if shape.qk_norm else None,
            "k_norm": {"module": f"model.layers.{layer}.self_attn.k_norm", **norm} if shape.qk_norm else None,
        }
        for layer in range(shape.n_layers)
    ]


def _quantiles(logs: np.ndarray) -> dict[str, float]:
    lengths = np.exp(logs)
    shares = (1, 5, 25, 50, 75, 95, 99)
    found = np.quantile(lengths, [share / 100 for share in shares])
    named = {f"p{share:02d}": float(value) for share, value in zip(shares, found, strict=True)}
    return {
        "mean": float(lengths.mean()),
        "geo_mean": float(np.exp(logs.mean())),
        "log_sd": float(logs.std()),
        "cv": float(lengths.std() / lengths.mean()),
        "min": float(lengths.min()),
        **named,
        "max": float(lengths.max()),
    }


def norms(shape: Shape, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables norms and norm_histograms: the first key is short without QK norm."""
    rows, bins = [], []
    for layer in range(shape.n_layers):
        for vector, stages in anatomy(shape)[layer]["stages"].items():
            for head in range(shape.heads(vector)):
                centre = np.log(12 + 3 * layer) + 0.2 * rng.standard_normal()
                for stage in stages:
                    normed = shape.qk_norm and stage != "projected"
                    for token_class in CLASS_ROWS:
                        key = {"layer": layer, "vector": vector, "head": head, "stage": stage}
                        key["token_class"] = token_class
                        n = sizes(token_class)[1]
                        if not n:
                            empty = dict.fromkeys(_quantiles(np.zeros(1)), np.nan)
                            rows.append({**key, "gauge": "raw", "n": 0, **empty})
                            continue
                        shift = -1.2 if token_class == "first" and not normed else 0.0
                        level = np.log(8.0) + 0.02 * layer if normed else centre
                        logs = level + shift + (0.06 if normed else 0.25) * rng.standard_normal(min(n, 50))
                        rows.append({**key, "gauge": "raw", "n": n, **_quantiles(logs)})
                        index = np.floor(32 * logs / np.log(2)).astype(int)
                        for bin_index, count in zip(*np.unique(index, return_counts=True), strict=True):
                            edges = {"edge_low": 2 ** (bin_index / 32), "edge_high": 2 ** ((bin_index + 1) / 32)}
                            bins.append({**key, "gauge": "raw", **edges, "count": int(count)})
    return pd.DataFrame(rows), pd.DataFrame(bins)


GAIN_COLUMNS = (
    "layer vector head axis order n mean cv max_over_median kurtosis pair_asymmetry n_zero n_negative n_pairs_dropped"
)


def gains(shape: Shape, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for layer in range(shape.n_layers if shape.qk_norm else 0):
        for vector in ("q", "k"):
            numbers = (1.2, *(rng.uniform(0.2, 0.6), rng.uniform(2, 9)), rng.uniform(0, 20), rng.uniform(0.1, 0.4))
            rows.append((layer, vector, ALL_HEADS, "head", "before_rope", HEAD_DIM, *numbers, 0, layer % 3, 0))
    return pd.DataFrame(rows, columns=GAIN_COLUMNS.split())


def logits(shape: Shape, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for layer in range(shape.n_layers):
        for head in range(shape.q_heads):
            entropy = rng.uniform(0.6, 2.6)
            body = {
                "n_rows": N_WINDOWS * WINDOW,
                "n_late": N_WINDOWS * (WINDOW - 16),
                "max": rng.uniform(4, 40) * (1 + layer / 3),
                "row_sd": rng.uniform(0.8, 3.5),
                "row_range": rng.uniform(5, 20),
                "p999": rng.uniform(3, 9),
                "max_minus_lse": -rng.uniform(0.1, 2),
            }
            for suffix, gain in (("", 1.0), ("_no_first", 1.2)):
                body |= {
                    f"entropy{suffix}": entropy * gain,
                    f"entropy_norm{suffix}": entropy * gain / 3.6,
                    f"support{suffix}": np.exp(entropy * gain),
                    f"one_hot_rate{suffix}": rng.uniform(0, 0.2),
                }
            body["one_hot_rate_weighted"] = rng.uniform(0, 0.2)
            rows.append({"layer": layer, "q_head": head, "capped": "after", **body})
    return pd.DataFrame(rows)


def sinks(shape: Shape, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables sinks and sink_rates."""
    rows, rates = [], []
    for layer in range(shape.n_layers):
        depth = layer / max(shape.n_layers - 1, 1)
        for head in range(shape.q_heads):
            first = float(np.clip(0.1 + 0.5 * depth + 0.15 * rng.standard_normal(), 0.01, 0.95))
            begin = min(1.0, first + 0.05)
            rows.append((layer, head, N_WINDOWS * WINDOW, first, begin, np.nan))
        for epsilon in EPSILONS:
            rate = float(np.clip(1.2 * depth - epsilon + 0.2, 0, 1))
            rates.append((layer, epsilon, rate, N_WINDOWS * shape.q_heads))
    whole = pd.DataFrame(rates, columns=["layer", "epsilon", "rate", "n"])
    for epsilon, group in whole.groupby("epsilon"):
        rates.append((WHOLE_MODEL, epsilon, group["rate"].mean(), group["n"].sum()))
    return (
        pd.DataFrame(rows, columns=["layer", "q_head", "n_rows", "first_mass", "begin_mass", "sink_logit_mass"]),
        pd.DataFrame(rates, columns=["layer", "epsilon", "rate", "n"]),
    )


def class_attention(shape: Shape, rng: np.random.Generator) -> pd.DataFrame:
    total = sum(tokens for _, tokens in CLASS_SIZES.values())
    bias = {"first": 2.0, "newline": 1.6, "punctuation": 0.9, "article": 0.6}
    rows = []
    for layer in range(shape.n_layers):
        for head in range(shape.q_heads):
            for token_class in CLASS_ROWS:
                n_types, n_tokens = sizes(token_class)
                key = {"layer": layer, "q_head": head, "token_class": token_class}
                key |= {"n_tokens": n_tokens, "n_types": n_types}
                if not n_tokens:
                    rows.append(key)
                    continue
                sign = 1 - 2 * layer / max(shape.n_layers - 1, 1)
                lift = float(np.exp(bias.get(token_class, 0) * 0.6 + 0.4 * rng.standard_normal()))
                uniform = n_tokens / total
                sink = bias.get(token_class, -0.1) * sign + 0.3 * rng.standard_normal() if n_types else np.nan
                if token_class == "content":
                    sink = 0.0
                rows.append(
                    key
                    | {
                        "share": min(1.0, uniform * lift),
                        "uniform_share": uniform,
                        "lift": lift,
                        "lambda": sink + 0.05,
                        "class_sink": sink,
                        "coverage": 0.4 if n_types else np.nan,
                        "neighbour_offset": rng.uniform(-0.2, 0.2) if n_types else np.nan,
                    }
                )
    return pd.DataFrame(rows)


def sink_tokens(shape: Shape, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for token_id, (token, token_class) in enumerate(TOKENS):
        n_seen = int(rng.integers(3, 200))
        for layer in range(shape.n_layers):
            for head in range(shape.q_heads):
                if rng.random() < 0.15 + 0.4 * (token_id < 4):
                    n_sink = int(rng.integers(1, n_seen + 1))
                    rows.append((layer, head, 1000 + token_id, token_class, token, n_seen, n_sink, rng.uniform(0, 0.5)))
    columns = ["layer", "q_head", "token_id", "token_class", "token", "n_seen", "n_sink", "mean_alpha"]
    return pd.DataFrame(rows, columns=columns)


def massive(shape: Shape) -> pd.DataFrame:
    """Position 0 from the second layer on, line breaks and others in the middle; none in a model of one layer."""
    rows = []
    for layer in range(1, shape.n_layers):
        places = [(-1, "first", "", 11, N_WINDOWS, N_WINDOWS)]
        if layer < shape.n_layers - 1:
            places += [(1000 + at, TOKENS[at][1], TOKENS[at][0], 7 + at % 2, 100 - 3 * at, 120) for at in range(4)]
        for token_id, token_class, token, channel, n, n_seen in places:
            size = 1000.0 * n + layer
            numbers = (n if token_class == "first" else 0, n_seen, min(n, N_WINDOWS), size, 0.9 * size, 2 * size)
            rows.append((layer, token_id, token_class, token, channel, n, *numbers, 5 * layer))
    columns = "layer token_id token_class token channel n n_first n_seen windows max_abs mean_abs ratio n_dropped"
    return pd.DataFrame(rows, columns=columns.split())


def document_stats(shape: Shape, masses: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    by_layer = masses.groupby("layer")["first_mass"].mean()
    by_layer[WHOLE_MODEL] = by_layer.mean()
    rows = []
    for layer in (WHOLE_MODEL, *range(shape.n_layers)):
        for document in range(N_DOCUMENTS):
            row: dict[str, Any] = {"layer": layer, "document": document, "n_tokens": 2 * WINDOW, "n_rows": 2 * WINDOW}
            names = ("first_mass", "begin_mass", "entropy", "one_hot_rate", "one_hot_rate_no_first")
            names = (*names, "one_hot_rate_weighted", "rest_mass")
            row |= {name: rng.uniform(0.3, 0.5) for name in (*names, "k_log_mean", "k_log_sd")}
            row["first_mass"] = by_layer[layer] * rng.uniform(0.8, 1.2)
            row |= {f"lift_{name}": rng.uniform(0.5, 2) if sizes(name)[1] else np.nan for name in CLASS_ROWS}
            row |= {"logit_max": rng.uniform(4, 9), "logit_sd": rng.uniform(1, 2)}
            row["loss"] = rng.uniform(2.5, 4) if layer == WHOLE_MODEL else np.nan
            rows.append(row)
    return pd.DataFrame(rows)


def type_stats(shape: Shape, rng: np.random.Generator) -> pd.DataFrame:
    classes = ("content", "punctuation", *CLOSED_CLASSES)
    rows = []
    for layer in range(shape.n_layers):
        for token_class in classes:
            for index in range(sizes(token_class)[0]):
                for document in (index % N_DOCUMENTS, (index + 7) % N_DOCUMENTS):
                    zipf = np.nan if token_class == "punctuation" else rng.uniform(3, 7)
                    numbers = (zipf, 6, 4, 0.3 * rng.standard_normal(), 0.1, rng.uniform(2, 3))
                    rows.append((layer, f"{token_class}{index}", token_class, document, *numbers))
    columns = ["layer", "type", "token_class", "document", "zipf", "n", "n_sink", "lambda", "neighbour_offset"]
    return pd.DataFrame(rows, columns=[*columns, "k_log_mean"])


def parity(shape: Shape) -> pd.DataFrame:
    rows = [(layer, 1e-7 * (layer + 1), 2e-6, 1e-4, True) for layer in range(shape.n_layers)]
    rows.append((WHOLE_MODEL, np.nan, 0.0, 0.0, True))
    return pd.DataFrame(rows, columns=["layer", "max_abs_attention", "max_abs_output", "tolerance", "ok"])


def manifest(shape: Shape, folder: Path) -> dict[str, Any]:
    name = "synthetic-normed" if shape.qk_norm else "synthetic-plain"
    n_tokens = N_WINDOWS * WINDOW
    return {
        "schema": SCHEMA,
        "geomprobe": "0.1.0",
        "command": f"geomprobe analyze --model {name} --window {WINDOW} --windows {N_WINDOWS}",
        "created": "2026-01-01T00:00:00+00:00",
        "seed": 0,
        "versions": {"python": "3.11.2", "torch": "2.13.0", "transformers": "5.24.0"},
        "timings": {"load": 1.25, "parity": 0.5, "analyze": 12.0},
        "files": {f"tables/{file.name}": sha256_of(file) for file in sorted((folder / "tables").glob("*.parquet"))},
        "probes": {"norms": {}, "gains": {}, "logits": {"first_row": 16}, "sinks": {"epsilons": list(EPSILONS)}},
        "model": {
            "name": name,
            "id": f"example/{name}",
            "source": "folder",
            "revision": None,
            "sha256": "0" * 64,
            "family": "gemma3_text" if shape.qk_norm else "llama",
            "dtype": "float32",
            "kernel": "sdpa",
            "device": "cpu",
            "parameters": 1_234_567,
            "layers": shape.n_layers,
            "anatomy": anatomy(shape),
        },
        "corpus": {
            "name": "novels <&>",
            "sha256": "1" * 64,
            "tokens_sha256": "2" * 64,
            "language": "en",
            "window": WINDOW,
            "n_windows": N_WINDOWS,
            "n_tokens": n_tokens,
            "n_documents": N_DOCUMENTS,
            "bos": shape.qk_norm,
            "documents": [f"document {index}" for index in range(N_DOCUMENTS)],
            "windows": [
                {"document": i % N_DOCUMENTS, "token_start": 64 * (i // N_DOCUMENTS), "char_start": 0, "char_end": 300}
                for i in range(N_WINDOWS)
            ],
        },
        "words": described(),
        "parity": {
            "ok": True,
            "tolerance": 1e-4,
            "max_abs_attention": 6e-7,
            "max_abs_output": 0.0,
            "n_tokens": 48,
        },
    }


def write_synthetic_run(
    folder: str | Path,
    *,
    qk_norm: bool,
    n_layers: int = 6,
    q_heads: int = 4,
    kv_heads: int = 2,
    seed: int = 0,
) -> Run:
    """Write a whole run folder (run.json, all tables of docs/schema.md) and open it.

    With `qk_norm` the model has norms on q and k, gains, windows of 24 in two layers of three, and a BOS.
    """
    path = Path(folder)
    shape = Shape(qk_norm, n_layers, q_heads, kv_heads)
    rng = np.random.default_rng(seed)
    (path / "tables").mkdir(parents=True, exist_ok=True)
    lengths, histograms = norms(shape, rng)
    masses, rates = sinks(shape, rng)
    tables = {
        "norms": lengths,
        "norm_histograms": histograms,
        "gains": gains(shape, rng),
        "logits": logits(shape, rng),
        "sinks": masses,
        "sink_rates": rates,
        "class_attention": class_attention(shape, rng),
        "sink_tokens": sink_tokens(shape, rng),
        "massive": massive(shape),
        "document_stats": document_stats(shape, masses, rng),
        "type_stats": type_stats(shape, rng),
        "parity": parity(shape),
        **split_tables(shape, np.random.default_rng([seed, 2])),
        **word_tables(shape, np.random.default_rng([seed, 1])),
    }
    for name, table in tables.items():
        table.to_parquet(path / "tables" / f"{name}.parquet", index=False)
    write_manifest(path, manifest(shape, path))
    return open_run(path)


def rewrite(run: Run, *, anatomy: dict[str, Any] | None = None, **tables: pd.DataFrame | None) -> Run:
    """Change a run in place: some tables (None: take it away), some entries of every layer's anatomy."""
    for name, table in tables.items():
        file = run.path / "tables" / f"{name}.parquet"
        if table is None:
            file.unlink()
        else:
            table.to_parquet(file, index=False)
    for entry in run.manifest["model"]["anatomy"]:
        entry.update(anatomy or {})
    write_manifest(run.path, run.manifest)
    return open_run(run.path)
