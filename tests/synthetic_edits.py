"""A run folder of `intervene` with made-up but plausible costs, for the tests of everything that only reads runs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from geomprobe.run.manifest import write_manifest
from geomprobe.run.reading import Run, open_run
from tests.synthetic_run import write_synthetic_run

TOKENS = 47  # predicted of a document
# (edit, strength, token class, edit of lengths that it is set against), its cost and how far it moves keys.
EDITS = {
    ("neutral_norm", 1.0, "", ""): (0.2, 0.11),
    ("permute_norm", 1.0, "", ""): (0.3, 0.14),
    ("swap_angle", 1.0, "", ""): (3.0, 0.7),
    ("swap_angle", np.nan, "", "neutral_norm"): (0.35, 0.11),
    ("swap_angle", np.nan, "", "permute_norm"): (0.4, 0.14),
    **{("scale_class", strength, "function", ""): (0.2 * strength**2, 0.2) for strength in (-1.0, -0.5, 0.5, 1.0)},
    **{("scale_class", strength, "punctuation", ""): (0.1 * strength**2, 0.05) for strength in (-0.5, 0.5)},
    ("scale_class", 0.5, "article", ""): (0.02, 0.03),
    **{("temperature", beta, "", ""): (0.5 * np.log(beta) ** 2, 0.0) for beta in (0.5, 0.7, 1.0, 1.5, 2.0)},
}


def setting_of(edit: str, strength: float, token_class: str, against: str, gauge: str = "raw") -> str:
    """What the table calls it."""
    parts = [part for part in (token_class, against) if part]
    if edit in ("swap_angle", "scale_class", "temperature") and not against:
        parts.append(f"{strength:g}")
    shown = f"{edit}({', '.join(parts)})" if parts else edit
    return shown if gauge == "raw" else f"{shown}@{gauge}"


def interventions(
    n_layers: int, documents: int, *, edits: Sequence[tuple] | None = None, gauges: Sequence[str] = ("raw", "balanced")
) -> pd.DataFrame:
    """The table: the shams, all edits in all layers, and all but the doses in each layer by itself."""
    rng = np.random.default_rng(0)
    chosen = list(EDITS if edits is None else edits)
    rows = []

    def add(key: tuple, gauge: str, layers: str, cost: float, moved: float) -> None:
        edit, strength, token_class, against = key
        common = {"edit": edit, "setting": setting_of(*key, gauge), "strength": strength, "token_class": token_class}
        common |= {"against": against, "gauge": gauge, "layers": layers}
        each = cost * rng.uniform(0.5, 1.5, documents)
        whole = {"delta_ce": each.mean(), "kl": abs(cost) * 1.1, "displacement": moved, "n_kept": 0}
        whole |= {"delta_class_sink": -cost * np.sign(strength) if token_class else cost / 10}
        rows.append({**common, "document": -1, "n_tokens": TOKENS * documents, **whole})
        rows.extend(
            {**common, "document": at, "n_tokens": TOKENS, "delta_ce": value, "kl": abs(cost)}
            for at, value in enumerate(each)
        )

    for gauge in gauges:
        add(("sham", 1.0, "", ""), gauge, "all", 0.0 if gauge == "raw" else 3e-9, 0.0)
    for gauge in gauges:
        for key in chosen:
            cost, moved = EDITS[key]
            add(key, gauge, "all", cost * (1 if gauge == "raw" else 0.8), moved)
    for gauge in gauges:
        for key in chosen:
            if n_layers > 1 and (key[0] in ("neutral_norm", "permute_norm") or key[3]):
                for layer in range(n_layers):
                    cost = EDITS[key][0] / (1 + layer) - 0.02
                    add(key, gauge, str(layer), cost, EDITS[key][1] * (1 + layer / n_layers))
    return pd.DataFrame(rows)


def write_synthetic_edits(
    folder: str | Path,
    *,
    qk_norm: bool = False,
    n_layers: int = 6,
    documents: int = 16,
    edits: Sequence[tuple] | None = None,
    gauges: Sequence[str] = ("raw", "balanced"),
) -> Run:
    """Write a whole run folder of `intervene` and open it."""
    run = write_synthetic_run(folder, qk_norm=qk_norm, n_layers=n_layers)
    for name in run.tables:
        if name != "parity":
            (run.path / "tables" / f"{name}.parquet").unlink()
    table = interventions(n_layers, documents, edits=edits, gauges=gauges)
    table.to_parquet(run.path / "tables" / "interventions.parquet", index=False)
    manifest = {name: value for name, value in run.manifest.items() if name != "words"}
    names = [name for name in dict.fromkeys(table["setting"]) if not name.startswith("sham")]
    manifest["probes"] = {"interventions": {"edits": names, "one_by_one": n_layers > 1}}
    write_manifest(run.path, manifest)
    return open_run(run.path)
