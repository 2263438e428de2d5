"""From states to the tables of a run: parts that several probes contribute are joined."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from geomprobe.attention.spec import Spec
from geomprobe.labels import CLASS_ROWS, WHOLE_MODEL
from geomprobe.probes.base import Probe, State

# Tables to which several probes add columns, and the columns that say which rows belong together.
JOINED = {"document_stats": ["layer", "document"], "type_stats": ["layer", "cell"]}
# What these tables have when every probe has run; of a probe that was left out the columns hold nothing.
COLUMNS = {
    "document_stats": [
        *("n_tokens", "n_rows", "first_mass", "begin_mass", "entropy", "one_hot_rate", "one_hot_rate_no_first"),
        *("one_hot_rate_weighted", "rest_mass", "sink_rate"),
        *("k_log_mean", "k_log_sd", *(f"lift_{name}" for name in CLASS_ROWS), "logit_max", "logit_sd", "loss"),
    ],
    "type_stats": ["n", "n_sink", "lambda", "neighbour_offset", "k_log_mean"],
}
_COUNTS = ("n_tokens", "n_rows", "n", "n_sink")


def summarise(probes: Mapping[str, tuple[Probe, State]], spec: Spec) -> dict[str, pd.DataFrame]:
    """All tables of a run, by name.

    Parameters
    ----------
    probes : mapping from name to (Probe, State)
    spec : Spec
    """
    tables: dict[str, pd.DataFrame] = {}
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in JOINED}
    for name, (probe, state) in probes.items():
        for table, frame in probe.summarise(state, spec).items():
            if table in JOINED:
                parts[table].append(frame)
            elif table in tables:
                raise ValueError(f"Probe {name!r} writes table {table!r}, which another probe has written.")
            else:
                tables[table] = frame
    if parts["document_stats"]:
        tables["document_stats"] = _documents(_join(parts, "document_stats"))
    if parts["type_stats"]:
        tables["type_stats"] = _types(_join(parts, "type_stats"), spec)
    return tables


def _join(parts: Mapping[str, list[pd.DataFrame]], table: str) -> pd.DataFrame:
    keys, frames = JOINED[table], parts[table]
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.merge(frame, on=keys, how="outer", validate="one_to_one")
    return joined.sort_values(keys, ignore_index=True).reindex(columns=[*keys, *COLUMNS[table]])


def _documents(joined: pd.DataFrame) -> pd.DataFrame:
    """With the row of the whole model filled by means over layers; counts are those of a layer."""
    layers = joined[joined["layer"] != WHOLE_MODEL]
    if layers.empty:
        return _whole_counts(joined)
    means = layers.drop(columns="layer").groupby("document", as_index=False).mean()
    whole = joined[joined["layer"] == WHOLE_MODEL].dropna(axis="columns", how="all")
    means = means.drop(columns=[name for name in whole.columns if name in means.columns and name != "document"])
    means = means.merge(whole.drop(columns="layer"), on="document", how="left") if len(whole) else means
    means.insert(0, "layer", WHOLE_MODEL)
    out = pd.concat([means, layers.dropna(axis="columns", how="all")], ignore_index=True)
    return _whole_counts(out.reindex(columns=list(joined.columns)))


def _types(joined: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    cells = spec.corpus.cells[joined["cell"].to_numpy()]
    kind = cells[:, 0]
    names = np.array([name for name, _ in spec.corpus.types], dtype=object)
    classes = np.array([token_class for _, token_class in spec.corpus.types], dtype=object)
    joined.insert(1, "type", names[kind])
    joined.insert(2, "token_class", classes[kind])
    joined.insert(3, "document", cells[:, 1])
    joined.insert(4, "zipf", spec.corpus.zipf[kind])
    return _whole_counts(joined.drop(columns="cell"))


def _whole_counts(frame: pd.DataFrame) -> pd.DataFrame:
    for name in _COUNTS:
        if name in frame:
            frame[name] = frame[name].fillna(0).round().astype(np.int64)
    return frame
