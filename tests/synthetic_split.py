"""Made-up tables of length against angle, for the tests of everything that only reads runs."""

from typing import Any

import numpy as np
import pandas as pd

from geomprobe.labels import CLASS_ROWS, GAUGES

N_DOCUMENTS = 3


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
                            "n_rows": 90 if whole else 30,
                            "phi_norm": rng.normal(0.1, 0.05),
                            "phi_angle": rng.uniform(0.5, 1.5),
                        }
                        numbers = ("norm_attention_rho", "r2", "tv", "beta", "leverage", "gauge_error")
                        row |= {name: rng.uniform(0, 0.5) if whole else np.nan for name in numbers}
                        rows.append(row | {"n_kept": 0 if whole else np.nan})
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
    return {"split": split(shape, rng), "class_split": class_split(shape, rng), "values": values(shape, rng)}
