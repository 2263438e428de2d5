"""Reading and shaping of a run's tables: what figures and pages share."""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from geomprobe.labels import ALL_HEADS, FIRST, FROM_ROW, PARTS, RAW, WHOLE_MODEL
from geomprobe.run.reading import Run

SINK_EPSILON: Final = 0.3  # a key is called a sink above this share of the attention
MASSIVE_SIZE: Final = 100  # an entry of the residual stream is called massive above this …
MASSIVE_RATIO: Final = 1000  # … and from so many times the median of its window and layer
TYPE_TOKENS: Final = 5  # a type with fewer tokens behind its Λ is left out
RESAMPLES: Final = 2000
ALL_DOCUMENTS: Final = -1  # the value of `document` in a row about all of them
ALL_BANDS: Final = -1  # the value of `frequency_band` in a row about all words
TOKEN_WIDTH: Final = 24
ANALYSIS, INTERVENTION = KINDS = ("analysis", "intervention")  # what a run is: what is there, or what edits cost


def count(n: float, noun: str, plural: str | None = None) -> str:
    """A number of things: "1 head", "1,200 heads"."""
    return f"{int(n):,} {noun if n == 1 else plural or noun + 's'}"


def has(run: Run, *names: str) -> bool:
    """Whether the run has all these tables, each with a row at least."""
    return all(name in run.tables and len(run.tables[name]) > 0 for name in names)


def kind(run: Run) -> str:
    """Whether the run describes attention (`analyze`) or tried edits of it (`intervene`): one of KINDS."""
    return INTERVENTION if "interventions" in run.tables else ANALYSIS


def anatomy(run: Run) -> pd.DataFrame:
    """The attention layers as the manifest describes them, one row a layer, by layer."""
    return pd.DataFrame(run.manifest["model"]["anatomy"]).set_index("layer", drop=False).sort_index()


def layers(run: Run) -> list[int]:
    """The attention layers, ascending."""
    return sorted(int(entry["layer"]) for entry in run.manifest["model"]["anatomy"])


def span(chosen: Sequence[int]) -> str:
    """Layers in words: "layer 3", "layers 0–9"."""
    low, high = min(chosen), max(chosen)
    return f"layer {low}" if low == high else f"layers {low}–{high}"


def thirds(run: Run) -> list[list[int]]:
    """The attention layers in three parts of the depth, or by the parts of a model of two stacks.

    In one part where there are fewer than three layers.
    """
    if parts(run):
        return list(parts(run).values())
    every = layers(run)
    split = np.array_split(np.array(every), 3) if len(every) >= 3 else [np.array(every)]
    return [[int(layer) for layer in part] for part in split]


def looks_back(run: Run) -> bool:
    """Whether any layer is causal: sink rates and sink tokens are of those alone."""
    return any(entry.get("causal", True) for entry in run.manifest["model"]["anatomy"])


def of_text(run: Run) -> bool:
    """Whether the run's tokens are those of a text, which have classes; else they are the places of images."""
    return run.manifest["corpus"].get("kind", "text") == "text"


def parts(run: Run) -> dict[str, list[int]]:
    """The layers of each part of a model of two stacks (encoder, decoder, cross-attention); empty for one stack."""
    found: dict[str, list[int]] = {}
    for entry in run.manifest["model"]["anatomy"]:
        if entry.get("part"):
            found.setdefault(entry["part"], []).append(int(entry["layer"]))
    return {part: sorted(found[part]) for part in PARTS if part in found}


def binding_windows(run: Run) -> dict[int, int]:
    """Layer → sliding window, for the layers whose window is shorter than the text windows of this run."""
    length = int(run.manifest["corpus"]["window"])
    found = {int(entry["layer"]): entry["window"] for entry in run.manifest["model"]["anatomy"]}
    return {layer: int(window) for layer, window in sorted(found.items()) if window is not None and window < length}


def full_layers(run: Run) -> list[int]:
    """The layers that see everything where others see a window; empty where all layers are alike."""
    windowed = binding_windows(run)
    return [layer for layer in layers(run) if layer not in windowed] if windowed else []


def normed_layers(run: Run, vector: str) -> list[int]:
    """The layers with a norm on their queries (q) or keys (k)."""
    return [int(entry["layer"]) for entry in run.manifest["model"]["anatomy"] if entry[f"{vector}_norm"] is not None]


def lengths(run: Run, vector: str, token_class: str = "all", stage: str = "scored") -> pd.DataFrame:
    """The rows of `norms` for one vector, class and stage, raw gauge; a row a layer and head."""
    table = run.tables["norms"]
    chosen = (table["vector"] == vector) & (table["token_class"] == token_class) & (table["stage"] == stage)
    return table[chosen & (table["gauge"] == "raw")].reset_index(drop=True)


def by_head(frame: pd.DataFrame, column: str, head: str = "head") -> pd.DataFrame:
    """One column as a matrix: a row a layer, a column a head."""
    return frame.set_index(["layer", head])[column].astype(float).unstack(head).sort_index()


def over_heads(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """By layer, what the heads say: n, min, q25, median, q75, max, mean; NaN where no head says anything."""
    groups = frame.groupby("layer")[column]
    shaped = pd.DataFrame({"n": groups.count(), "min": groups.min()})
    for name, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
        shaped[name] = groups.quantile(share)
    return shaped.assign(max=groups.max(), mean=groups.mean())


def first_ratio(run: Run, vector: str = "k") -> pd.DataFrame:
    """Position 0's length over the other tokens' (geometric means), a row a layer and head; n = windows."""
    keys = ["layer", "head"]
    first = lengths(run, vector, FIRST)[[*keys, "n", "geo_mean"]]
    rest = lengths(run, vector)[[*keys, "geo_mean"]]
    both = first.merge(rest, on=keys, suffixes=("_first", "_rest"))
    return both.assign(ratio=both["geo_mean_first"] / both["geo_mean_rest"])


def uniform_entropy(length: int, window: int | None = None, *, first: bool = True, ahead: bool = False) -> float:
    """Mean over the rows t ≥ 16 of log|V(t)| in nats: the entropy of a row that looks everywhere alike.

    Parameters
    ----------
    length : int
        Tokens of a text window.
    window : int, optional
        Keys that a query of the layer sees at most, itself among them.
    first : bool
        Whether position 0 counts among the keys.
    ahead : bool
        Whether a query sees what stands behind it, too: as far as before it.
    """
    if length <= FROM_ROW:
        return math.nan
    rows = np.arange(FROM_ROW, length)
    back = min(length, window or length) - 1  # how far a query looks
    if ahead and window is not None:
        if window % 2 == 0:  # it looks further to one side, and nothing here says to which
            return math.nan
        back = (window - 1) // 2
    seen = np.minimum(rows, back) + 1 - (0 if first else rows <= back)
    if ahead:
        seen = seen + np.minimum(length - 1 - rows, back if window is not None else length)
    return float(np.log(seen).mean()) if seen.min() > 0 else math.nan


def split_rows(run: Run, gauge: str, first: str) -> pd.DataFrame:
    """The rows of `split` over all documents, in a gauge, with position 0 "out" or "in"; a row a layer and head."""
    table = run.tables["split"]
    chosen = (table["gauge"] == gauge) & (table["first"] == first) & (table["document"] == ALL_DOCUMENTS)
    return table[chosen].reset_index(drop=True)


def norm_shares(run: Run, gauge: str, first: str) -> pd.DataFrame:
    """The same with `share` = φ_norm/(φ_norm + φ_angle), NaN where nothing is explained."""
    rows = split_rows(run, gauge, first)
    total = rows["phi_norm"] + rows["phi_angle"]
    return rows.assign(share=rows["phi_norm"] / total.where(total > 0))


def layer_share(run: Run, gauge: str, first: str) -> pd.Series:
    """By layer, Σφ_norm over Σ(φ_norm + φ_angle) of its heads."""
    rows = split_rows(run, gauge, first).dropna(subset=["phi_norm", "phi_angle"])
    sums = rows.groupby("layer")[["phi_norm", "phi_angle"]].sum()
    total = sums.sum(axis=1)
    return (sums["phi_norm"] / total.where(total > 0)).reindex(layers(run))


def whole_share(run: Run, gauge: str, first: str) -> float:
    """The same over all heads of all layers; NaN without rows."""
    rows = split_rows(run, gauge, first).dropna(subset=["phi_norm", "phi_angle"])
    total = float(rows["phi_norm"].sum() + rows["phi_angle"].sum())
    return float(rows["phi_norm"].sum()) / total if total > 0 else math.nan


def cluster_lines(run: Run) -> dict[str, pd.DataFrame]:
    """The rows of `clusters` by layer: k, q, k_balanced (means over heads), residual; a row each of embedding, context.

    k and q are in the raw gauge, k_balanced are keys in the balanced one.
    """
    table = run.tables["clusters"]
    means = table[(table["space"] == "content") & (table["head"] == ALL_HEADS)]
    raw = means["gauge"] == RAW
    lines = {vector: means[raw & (means["vector"] == vector)] for vector in ("k", "q")}
    lines["k_balanced"] = means[~raw]
    lines |= {space: table[table["space"] == space] for space in ("residual", "embedding", "context")}
    return {name: rows.sort_values("layer", ignore_index=True) for name, rows in lines.items() if len(rows)}


def word_heads(run: Run, name: str, vector: str = "k", gauge: str = RAW) -> pd.DataFrame:
    """The rows of `clusters` or `neighbours` that are of a head by itself."""
    table = run.tables[name]
    own = (table["space"] == "content") & (table["vector"] == vector) & (table["gauge"] == gauge)
    return table[own & (table["head"] >= 0)]


def best_cluster_head(run: Run, vector: str = "k") -> dict[str, Any]:
    """The row of `clusters` of the head that separates the categories best, in the raw gauge."""
    heads = word_heads(run, "clusters", vector)
    return {str(name): value for name, value in heads.nlargest(1, "auc").to_dict("records")[0].items()}


def neighbour_bands(run: Run, column: str, vector: str, gauge: str = RAW) -> pd.DataFrame:
    """By decile of frequency, what the heads past layer 0 say: n, min, q25, median, q75, max, mean."""
    heads = word_heads(run, "neighbours", vector, gauge)
    heads = heads[heads["frequency_band"] >= 0]
    past = heads[heads["layer"] > heads["layer"].min()]
    chosen = past if len(past) else heads
    return over_heads(chosen.assign(layer=chosen["frequency_band"]), column)


def final_logits(run: Run) -> pd.DataFrame:
    """The rows of `logits` about what enters the softmax."""
    table = run.tables["logits"]
    return table[table["capped"] == "after"].reset_index(drop=True)


def sink_rate(run: Run, layer: int = WHOLE_MODEL, epsilon: float = SINK_EPSILON) -> tuple[float, int]:
    """Sink rate and the n (windows × heads) behind it; NaN and 0 where the table has no such row."""
    table = run.tables["sink_rates"]
    row = table[(table["layer"] == layer) & np.isclose(table["epsilon"], epsilon)]
    return (float(row["rate"].iloc[0]), int(row["n"].iloc[0])) if len(row) else (math.nan, 0)


def sink_token_totals(run: Run) -> pd.DataFrame:
    """Tokens that sink past position 0, most often first.

    `n_sink` and `n_seen` are summed over the heads where the token sinks at least once (keys × heads); `n_heads`
    counts those heads over all layers, `n_layers` their layers; `top_rate` is the largest n_sink / n_seen of a head.
    """
    table = run.tables["sink_tokens"]
    table = table.assign(rate=table["n_sink"] / table["n_seen"])
    totals = table.groupby(["token_id", "token_class", "token"], dropna=False, as_index=False).agg(
        n_sink=("n_sink", "sum"),
        n_seen=("n_seen", "sum"),
        n_heads=("n_sink", "size"),
        n_layers=("layer", "nunique"),
        layer_low=("layer", "min"),
        layer_high=("layer", "max"),
        top_rate=("rate", "max"),
    )
    totals = totals.assign(rate=totals["n_sink"] / totals["n_seen"])
    return totals.sort_values(["n_sink", "token_id"], ascending=[False, True], ignore_index=True)


def massive_totals(run: Run) -> pd.DataFrame:
    """Pairs of token and channel that are massive, those of the most layers first, then the most frequent.

    `layers` lists the layers in which a pair has a row, `n` and `n_seen` are summed over these (tokens × layers).
    """
    groups = run.tables["massive"].groupby(
        ["token_id", "token_class", "token", "channel"], dropna=False, as_index=False
    )
    totals = groups.agg(n=("n", "sum"), n_seen=("n_seen", "sum"), layers=("layer", sorted), max_abs=("max_abs", "max"))
    totals["n_layers"] = totals["layers"].map(len)
    order = {"n_layers": False, "n": False, "token_id": True, "channel": True}
    return totals.sort_values(list(order), ascending=list(order.values()), ignore_index=True)


def layer_sink_tokens(run: Run, layer: int, most: int = 3) -> list[str]:
    """The tokens past position 0 that are sinks in a layer, most often first."""
    table = run.tables["sink_tokens"]
    sums = table[table["layer"] == layer].groupby(["token_id", "token"])["n_sink"].sum().reset_index()
    first = sums.sort_values(["n_sink", "token_id"], ascending=[False, True]).head(most)
    return [str(token) for token in first["token"]]


def class_rows(run: Run, token_class: str, chosen: Iterable[int] | None = None) -> pd.DataFrame:
    """The rows of `class_attention` for one class, of some layers or all."""
    table = run.tables["class_attention"]
    table = table[table["token_class"] == token_class]
    return (table if chosen is None else table[table["layer"].isin(list(chosen))]).reset_index(drop=True)


def class_counts(run: Run) -> pd.DataFrame:
    """Tokens of each class, and types behind its Λ (the largest number of any layer), by class."""
    groups = run.tables["class_attention"].groupby("token_class", sort=False)
    return groups[["n_tokens", "n_types"]].max().fillna(0).astype(int)


def type_spread(run: Run, chosen: Iterable[int], token_class: str = "content") -> tuple[float, int]:
    """Standard deviation of Λ between the types of a class, averaged over layers first, and how many types.

    The yardstick of a class sink: single content types differ by this much among themselves.
    """
    table = run.tables["type_stats"]
    table = table[table["layer"].isin(list(chosen)) & (table["token_class"] == token_class) & (table["n_sink"] > 0)]
    table = table.assign(weighted=table["lambda"] * table["n_sink"])
    sums = table.groupby(["type", "layer"])[["weighted", "n_sink"]].sum(min_count=1)
    sums = sums[sums["n_sink"] >= TYPE_TOKENS]
    means = (sums["weighted"] / sums["n_sink"]).groupby("type").mean().dropna()
    return (float(means.std(ddof=0)) if len(means) > 1 else math.nan), len(means)


def layer_summary(run: Run) -> pd.DataFrame:
    """A row a layer: key length, its spread, position 0, attention, logits; medians over heads where not said.

    Columns: window (keys a query sees, NaN: all), k_length (median), k_first (position 0), k_log_sd, first_mass (mean
    over heads), first_mass_low, first_mass_high (heads), sink_rate (ε = .3), entropy, logit_max (largest of the layer).
    What the run has no table for is NaN.
    """
    shaped = pd.DataFrame(index=pd.Index(layers(run), name="layer"))
    shaped["window"] = pd.Series(binding_windows(run), dtype=float)
    if has(run, "norms"):
        keys = lengths(run, "k")
        shaped["k_length"] = over_heads(keys, "p50")["median"]
        shaped["k_first"] = over_heads(lengths(run, "k", FIRST), "p50")["median"]
        shaped["k_log_sd"] = over_heads(keys, "log_sd")["median"]
    if has(run, "sinks"):
        mass = over_heads(run.tables["sinks"], "first_mass")
        shaped = shaped.assign(first_mass=mass["mean"], first_mass_low=mass["min"], first_mass_high=mass["max"])
    if has(run, "sink_rates"):
        shaped["sink_rate"] = [sink_rate(run, int(layer))[0] for layer in shaped.index]
    if has(run, "logits"):
        logits = final_logits(run)
        shaped["entropy"] = over_heads(logits, "entropy")["median"]
        shaped["logit_max"] = over_heads(logits, "max")["max"]
    columns = ["window", "k_length", "k_first", "k_log_sd", "first_mass", "first_mass_low", "first_mass_high"]
    return shaped.reindex(columns=[*columns, "sink_rate", "entropy", "logit_max"])


def class_summary(run: Run) -> pd.DataFrame:
    """A row a class that the text has: tokens, types, lift and class_sink over all heads, by third of the depth.

    Columns: n_tokens, n_types, lift_q25, lift, lift_q75 (quantiles over the heads of all layers), coverage and
    neighbour_offset (medians), and class_sink_<i> (median over the heads of the i-th third, from 0).
    """
    table = run.tables["class_attention"]
    shaped = class_counts(run)
    groups = table.groupby("token_class")
    for column, share in (("lift_q25", 0.25), ("lift", 0.5), ("lift_q75", 0.75)):
        shaped[column] = groups["lift"].quantile(share)
    for column in ("coverage", "neighbour_offset"):
        shaped[column] = groups[column].median()
    for index, third in enumerate(thirds(run)):
        chosen = table[table["layer"].isin(third)]
        shaped[f"class_sink_{index}"] = chosen.groupby("token_class")["class_sink"].median()
    return shaped[shaped["n_tokens"] > 0]


def document_interval(run: Run, column: str, layer: int = WHOLE_MODEL) -> tuple[float, float, int]:
    """95 % interval of a mean over the text, documents drawn with replacement, and the number of documents.

    NaN where fewer than five documents say anything. Documents weigh by their rows; the draw's seed is fixed.
    """
    table = run.tables["document_stats"]
    table = table[(table["layer"] == layer) & table[column].notna() & (table["n_rows"] > 0)]
    if len(table) < 5:
        return math.nan, math.nan, len(table)
    weights, values = table["n_rows"].to_numpy(float), table[column].to_numpy(float)
    drawn = np.random.default_rng(0).integers(len(table), size=(RESAMPLES, len(table)))
    means = (weights * values)[drawn].sum(axis=1) / weights[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high), len(table)


def visible(token: str, width: int = TOKEN_WIDTH) -> str:
    r"""A token as it can be printed: spaces as ␣, line breaks as \n, all that has no shape of its own as \u….

    At most about `width` characters; a longer token ends in ….
    """
    shown = [_shape(character, first=index == 0) for index, character in enumerate(token[: width + 1])]
    whole = "".join(shown) if len(token) <= width else "".join(shown[: width - 1]) + "…"
    return whole or "(empty)"


_ESCAPES: Final = {" ": "␣", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def _shape(character: str, *, first: bool) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    category = unicodedata.category(character)
    if category[0] in "CZ" or (first and category[0] == "M"):
        return code_point(character)
    return character


def plain(name: str) -> str:
    r"""A name in which nothing but its letters acts: characters that turn, break or hide text as \u…."""
    return "".join(code_point(one) if unicodedata.category(one)[0] == "C" else one for one in name)


def code_point(character: str) -> str:
    r"""A character by its number: \u0301, \U0001f642."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
