"""Made-up tables of words in context, for the tests of everything that only reads runs."""

from typing import Any

import numpy as np
import pandas as pd

from geomprobe.labels import ALL_HEADS

CATEGORIES = ("kinship", "metals", "time_units", "a category with a rather long name")
N_BANDS, IN_BAND, CONTEXTS = 10, 6, 16
ODD_WORDS = ("<b>bold</b>", "שלום", "\u202eمر", "$x_1$", "constitutionally-unconstitutionalisation", "漢字")
AUC = ("auc", "auc_low", "auc_high")


def nouns() -> list[tuple[str, str, float]]:
    """Word, category, Zipf."""
    named = [(f"{name.split('_')[0]}{i}", name, 3.0 + 0.2 * i) for name in CATEGORIES for i in range(8)]
    return [*named[:-1], (ODD_WORDS[0], CATEGORIES[-1], float("nan"))]


def contrasted() -> list[tuple[str, int, float]]:
    """Word, band, Zipf."""
    words = [(f"word{band}{i}", band, 2.0 + 0.4 * band + 0.05 * i) for band in range(N_BANDS) for i in range(IN_BAND)]
    return [(odd, band, zipf) for odd, (_, band, zipf) in zip(ODD_WORDS, words, strict=False)] + words[len(ODD_WORDS) :]


def cells(n_layers: int, q_heads: int, kv_heads: int) -> list[dict[str, Any]]:
    """Every head of every layer, the residual stream and the embedding."""
    found: list[dict[str, Any]] = [{"layer": -1, "vector": "", "head": ALL_HEADS, "space": "embedding"}]
    for layer in range(n_layers):
        for vector, heads in (("k", kv_heads), ("q", q_heads)):
            found += [{"layer": layer, "vector": vector, "head": h, "space": "content"} for h in range(heads)]
        found.append({"layer": layer, "vector": "", "head": ALL_HEADS, "space": "residual"})
    return found


def clusters(shape: Any, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    every = cells(shape.n_layers, shape.q_heads, shape.kv_heads)
    means = [
        {"layer": layer, "vector": vector, "head": ALL_HEADS, "space": "content"}
        for layer in range(shape.n_layers)
        for vector in ("k", "q")
    ]
    for cell in [*every, *means]:
        auc = rng.uniform(0.7, 0.95)
        numbers = {name: rng.uniform(0, 1) for name in ("cosine_gap", "silhouette", "knn_purity", "anisotropy")}
        rows.append(
            {
                **cell,
                "gauge": "raw",
                "auc": auc,
                "auc_low": auc - 0.03,
                "auc_high": auc + 0.02,
                "auc_shuffled": rng.normal(0.5, 0.002),
                "auc_p": 0.001,
                **numbers,
                "n_types": len(nouns()),
                "n_categories": len(CATEGORIES),
                "m": 8,
            }
        )
    return pd.DataFrame(rows)


def balanced_clusters(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of keys in the balanced gauge, clearly below those of the raw one: whoever mixes them is seen to."""
    keys = raw[(raw["space"] == "content") & (raw["vector"] == "k")]
    return keys.assign(gauge="balanced", **{name: keys[name] - 0.2 for name in AUC})


def balanced_neighbours(raw: pd.DataFrame) -> pd.DataFrame:
    """The same of neighbours."""
    keys = raw[(raw["space"] == "content") & (raw["vector"] == "k")]
    far = {name: keys[name] - 2 for name in ("self_retrieval_mrr", "stability", "rare_neighbour_share", "zipf_rho")}
    return keys.assign(gauge="balanced", raw_overlap=0.6, **far)


def neighbours(shape: Any, rng: np.random.Generator) -> pd.DataFrame:
    rows = [
        {
            **cell,
            "frequency_band": band,
            "gauge": "raw",
            "n_types": N_BANDS * IN_BAND if band < 0 else IN_BAND,
            "m": CONTEXTS,
            "self_retrieval_mrr": rng.uniform(0.8, 1),
            "stability": rng.uniform(0.3, 0.6),
            "purity_family": rng.uniform(0, 1),
            "rare_neighbour_share": rng.uniform(0.4, 0.6),
            "zipf_rho": rng.uniform(-0.2, 0.5),
            "hub_skew": rng.uniform(0, 2) if band < 0 else np.nan,
            "raw_overlap": np.nan,
        }
        for cell in cells(shape.n_layers, shape.q_heads, shape.kv_heads)
        for band in range(-1, N_BANDS)
    ]
    return pd.DataFrame(rows)


def word_tables(shape: Any, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """All tables of words in context that a page reads."""
    named, words = nouns(), contrasted()
    at = {"layer": shape.n_layers - 1, "vector": "k", "head": 0}
    spaces = (
        {**at, "space": "content"},
        {**at, "vector": "", "head": ALL_HEADS, "space": "residual"},
        {"layer": -1, "vector": "", "head": ALL_HEADS, "space": "embedding"},
    )
    place = rng.normal(size=(len(named), 2)) + 6 * np.array(
        [[CATEGORIES.index(c) % 2, CATEGORIES.index(c) // 2] for _, c, _ in named]
    )
    listed = [
        {
            **space,
            "word": word,
            "zipf": zipf,
            "rank": rank,
            "neighbour": words[(i + rank) % len(words)][0],
            "neighbour_zipf": 4.0,
            "cosine": 1 - rank / 20,
        }
        for space in spaces
        for i, (word, _, zipf) in enumerate(words[:5])
        for rank in range(1, 11)
    ]
    hubs = [
        {**space, "word": word, "zipf": zipf, "frequency_band": band, "count": int(rng.poisson(10))}
        for space in spaces
        for word, band, zipf in words
    ]
    separated, near = clusters(shape, rng), neighbours(shape, rng)
    return {
        "types": pd.DataFrame(
            [{"word": w, "category": c, "zipf": z, "count": 20, "band": -1, "n_contexts": 8} for w, c, z in named]
        ),
        "clusters": pd.concat([separated, balanced_clusters(separated)], ignore_index=True),
        "neighbours": pd.concat([near, balanced_neighbours(near)], ignore_index=True),
        "map": pd.DataFrame(
            [
                {**at, "word": w, "category": c, "zipf": z, "x": x, "y": y}
                for (w, c, z), (x, y) in zip(named, place, strict=True)
            ]
        ),
        "word_neighbours": pd.DataFrame(listed),
        "hubs": pd.DataFrame(hubs),
    }


def described() -> dict[str, Any]:
    """The manifest's entry `words`."""
    return {
        "n_types": len(nouns()) + N_BANDS * IN_BAND,
        "n_contexts": 8 * len(nouns()) + CONTEXTS * N_BANDS * IN_BAND,
        "context": 64,
        "n_categories": len(CATEGORIES),
        "n_bands": N_BANDS,
        "left_out": {"too_rare": 3, "no_single_token": 2, "unknown_word": 0, "capitalised": 5},
        "sha256": "3" * 64,
    }
