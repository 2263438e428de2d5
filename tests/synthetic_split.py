"""Made-up tables of length against angle, for the tests of everything that only reads runs."""

from typing import Any

import numpy as np
import pandas as pd

from geomprobe.labels import CLASS_ROWS, FIRST, GAUGES, UNIONS
from geomprobe.stats.lift import norm_lift

N_DOCUMENTS = 8
N_BUCKETS = 4
TYPE_SPLIT = ("layer", "gauge", "type", "token_class", "document", "zipf", "n", "k_log_mean", "n_sink", "lambda")
TYPE_SPLIT += ("norm_part",)
# Types of a class, the Zipf frequencies that they lie between, how much longer their keys are, and their Λ.
TYPES = {
    "article": (10, (5.0, 7.7), 0.08, 0.6),
    "preposition": (12, (4.5, 7.4), 0.03, 0.0),
    "pronoun": (12, (4.5, 7.0), 0.05, 0.1),
    "content": (40, (2.5, 6.5), 0.0, 0.0),
    "punctuation": (10, (np.nan, np.nan), 0.1, 0.9),
}


def split(shape: Any, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for layer in range(shape.n_layers):
        for head in range(shape.q_heads):
            for gauge in GAUGES:
                for first in ("out", "in"):
                    for document in (-1, *range(N_DOCUMENTS)):
                        whole = document < 0
                        row = {
                            "layer": layer,
                            "q_head": head,
                            "gauge": gauge,
                            "first": first,
                            "document": document,
                            "n_rows": 30 * N_DOCUMENTS if whole else 30,
                            "phi_norm": rng.normal(0.1, 0.05),
                            "phi_angle": rng.uniform(0.5, 1.5),
                        }
                        numbers = ("norm_attention_rho", "r2", "beta", "leverage", "gauge_error")
                        row |= {name: rng.uniform(0, 0.5) if whole else np.nan for name in numbers}
                        row |= {"tv": rng.uniform(0, 0.5), "n_kept": 0 if whole else np.nan}
                        lengths = {"k_log_mean": rng.normal(2.5, 0.1), "k_log_sd": rng.uniform(0.05, 0.3)}
                        n_keys = (120 + (first == "in")) * (N_DOCUMENTS if whole else 1)
                        rows.append(row | lengths | {"n_keys": n_keys})
    return pd.DataFrame(rows)


def class_split(shape: Any, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for layer in range(shape.n_layers):
        for head in range(shape.q_heads):
            for name in CLASS_ROWS:
                total = np.nan if name in ("special", "other") else rng.normal(0, 1)
                for gauge in GAUGES:
                    part = rng.normal(0, 0.3) + 0 * total
                    rows.append(
                        {
                            "layer": layer,
                            "q_head": head,
                            "token_class": name,
                            "gauge": gauge,
                            "class_sink": total,
                            "norm_part": part,
                            "angle_part": total - part,
                            "n_types": 0 if np.isnan(total) else 5,
                        }
                    )
    return pd.DataFrame(rows)


def kinds(rng: np.random.Generator) -> pd.DataFrame:
    """The types: type, token_class, zipf, how much longer their keys are, and Λ."""
    rows = []
    for token_class, (n, between, lift, sink) in TYPES.items():
        for index, zipf in enumerate(np.linspace(*between, n)):
            own = {"lift": lift + rng.normal(0, 0.02), "sink": sink + rng.normal(0, 0.2)}
            rows.append({"type": f"{token_class}{index}", "token_class": token_class, "zipf": zipf, **own})
    return pd.DataFrame(rows)


def places(types: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Table type_places: each type in most documents, in some of their buckets."""
    n = rng.poisson(1.5, size=(len(types), N_DOCUMENTS, N_BUCKETS))
    n[:, 0, 0] += 5  # each type often enough
    kind, document, bucket = np.nonzero(n)
    named = types.loc[kind, ["type", "token_class"]].reset_index(drop=True)
    return named.assign(document=document, bucket=bucket, n=n[kind, document, bucket])


def lengths_by_type(
    shape: Any, types: pd.DataFrame, where: pd.DataFrame, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables type_split and norm_lift, the second made of the first and of what heads add to it."""
    kind = types.set_index("type")
    cells = where.groupby(["type", "token_class", "document"], sort=False)["n"].sum().reset_index()
    bucket = where.pivot_table(index="type", columns="bucket", values="n", aggfunc="sum", fill_value=0)
    bucket = bucket.reindex(types["type"]).to_numpy(float)
    n_sink = (0.8 * cells["n"]).astype(int)
    told, lifts = [], []
    for layer in range(shape.n_layers):
        sink = kind["sink"].reindex(cells["type"]).to_numpy() + rng.normal(0, 0.1, len(cells))
        by_head = rng.normal(0, 0.03, size=(shape.kv_heads, len(types)))
        by_head -= by_head.mean(axis=0)
        for gauge in GAUGES:
            usual = 2.5 + 0.05 * layer + 0.02 * types["zipf"].fillna(4.0) + types["lift"]
            usual = pd.Series((usual + rng.normal(0, 0.02, len(types))).to_numpy(), index=types["type"])
            log = usual.reindex(cells["type"]).to_numpy() + rng.normal(0, 0.03, len(cells))
            some = n_sink.where(n_sink > 0) * 0.0
            rows = cells[["type", "token_class", "document"]].assign(
                layer=layer,
                gauge=gauge,
                zipf=kind["zipf"].reindex(cells["type"]).to_numpy(),
                n=cells["n"],
                k_log_mean=log,
                n_sink=n_sink,
                norm_part=0.3 * sink + some,
            )
            rows["lambda"] = sink + some
            told.append(rows[list(TYPE_SPLIT)])
            total = (rows["k_log_mean"] * rows["n"]).groupby(rows["type"]).sum() / rows.groupby("type")["n"].sum()
            logs = total.reindex(types["type"]).to_numpy() + by_head  # (kv_head, type)
            found = norm_lift(logs, types["zipf"].to_numpy(), bucket, (types["token_class"] == "content").to_numpy())
            for name in CLASS_ROWS:
                inside = types["token_class"].isin(UNIONS.get(name, (name,))).to_numpy()
                for head in range(shape.kv_heads if name != FIRST else 0):
                    lift = found.value[head, inside].mean() if inside.any() else np.nan
                    own = {"layer": layer, "head": head, "token_class": name, "gauge": gauge, "norm_lift": lift}
                    own |= {"n_types": int(inside.sum()), "n_extrapolated": int(found.extrapolated[inside].sum())}
                    lifts.append(own | {"zipf_slope": found.slope[head]})
    return pd.concat(told, ignore_index=True), pd.DataFrame(lifts)


def length_attention(shape: Any, rng: np.random.Generator) -> pd.DataFrame:
    """Longer keys receive a little more; position 0 is short and receives much."""
    rows = []
    for layer in range(shape.n_layers):
        for first, n, middle in ((False, 2000, (0.0, 0.0)), (True, 60, (-1.0, 3.0))):
            away = rng.normal(0, 0.15, n)
            lift = middle[1] + 0.8 * away + rng.normal(0, 1, n)
            bins = np.stack([np.floor((middle[0] + away) * 10), np.floor(lift * 4)])
            for (length, received), count in zip(*_counted(bins), strict=True):
                edges = {"length_low": length / 10, "length_high": (length + 1) / 10}
                edges |= {"lift_low": received / 4, "lift_high": (received + 1) / 4}
                rows.append({"layer": layer, "first": first, **edges, "count": int(count)})
    return pd.DataFrame(rows)


def _counted(bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found, count = np.unique(bins, axis=1, return_counts=True)
    return found.T, count


def values(shape: Any, rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "layer": layer,
                "q_head": head,
                "token_class": name,
                "n_tokens": 64,
                "share": rng.uniform(0, 0.5),
                "value_weighted": rng.uniform(0, 0.2),
                "v_norm_ratio": rng.uniform(0.2, 1.5),
            }
            for layer in range(shape.n_layers)
            for head in range(shape.q_heads)
            for name in CLASS_ROWS
        ]
    )


def split_tables(shape: Any, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """All tables of length against angle."""
    made = {"split": split(shape, rng), "class_split": class_split(shape, rng), "values": values(shape, rng)}
    types = kinds(rng)
    where = places(types, rng)
    type_split, lifts = lengths_by_type(shape, types, where, rng)
    return {
        **made,
        "norm_lift": lifts,
        "type_split": type_split,
        "type_places": where,
        "length_attention": length_attention(shape, rng),
    }
