"""One trained run in numbers: what its tables say, as the contrasts between arms need it."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from safetensors import safe_open
from safetensors.numpy import load_file

from geomprobe import tables
from geomprobe.labels import BALANCED, FIRST, RAW
from geomprobe.run.reading import Run
from geomprobe.stats.angles import cosines

NEIGHBOURS: Final = 10
AFTER: Final = 0.25  # of the steps: growth is looked at behind the warm-up and the first quarter's quick change
_FACTORS: Final = ("1", "2", "4")  # times the training length, as a manifest writes them
_SPACES: Final = {
    "k": "keys",
    "k_balanced": "keys_balanced",
    "q": "queries",
    "residual": "residual",
    "embedding": "embedding",
    "context": "contexts",
}
_KEYS: Final = {"content": "keys", f"content_{BALANCED}": "keys_balanced"}  # spaces of saved vectors
_BY_LAYER: Final = ("k", "k_balanced", "q", "residual")


def uniform_first(length: int, begin: int = 1) -> float:
    """What the first position has where causal rows look everywhere alike: mean over the rows from `begin` on.

    Row t sees t + 1 positions. first_mass is over the rows from 1 on; growth looks from FROM_ROW on. NaN without rows.
    """
    return float((1 / np.arange(begin + 1, length + 1)).mean()) if length > begin else math.nan


def of_analysis(run: Run) -> dict[str, float]:
    """Lengths, length against angle, logits, sinks, clusters and neighbours of a checkpoint."""
    numbers: dict[str, float] = {}
    keys = tables.lengths(run, "k")
    numbers["k_log_sd"] = float(keys["log_sd"].median())
    numbers["k_geo_mean"] = float(keys["geo_mean"].mean())
    numbers["first_key_ratio"] = float(tables.first_ratio(run)["ratio"].median())
    numbers |= dict(_length_and_angle(run))
    numbers |= dict(_attention(run))
    if "clusters" in run.tables:
        numbers |= dict(clusters(run))
        numbers |= dict(_purity(run))
    if "neighbours" in run.tables:
        numbers |= dict(_neighbours(run))
    return numbers


def _length_and_angle(run: Run) -> Iterator[tuple[str, float]]:
    for gauge in ("raw", "balanced"):
        rows = tables.split_rows(run, gauge, "out")
        if not len(rows):
            continue
        end = "" if gauge == "raw" else "_balanced"
        yield f"norm_share{end}", tables.whole_share(run, gauge, "out")
        yield f"tv{end}", float(rows["tv"].median())
        yield f"r2{end}", float(rows["r2"].median())
        if end:  # in the raw gauge it is that of the table of lengths
            yield f"k_log_sd{end}", float(rows["k_log_sd"].median())
        yield f"norm_attention_rho{end}", float(rows["norm_attention_rho"].median())


def _attention(run: Run) -> Iterator[tuple[str, float]]:
    logits = tables.final_logits(run)
    yield "max_logit", float(logits["max"].max())
    yield "logit_row_sd", float(logits["row_sd"].mean())
    yield "entropy", float(logits["entropy"].mean())
    yield "one_hot_rate_weighted", float(logits["one_hot_rate_weighted"].mean())
    sinks = run.tables["sinks"]
    yield "first_mass", float(sinks["first_mass"].mean())
    yield "first_mass_max_head", float(sinks["first_mass"].max())
    for layer, rows in sinks.groupby("layer"):
        yield f"first_mass_layer{layer}", float(rows["first_mass"].mean())
    yield "first_mass_uniform", uniform_first(int(run.manifest["corpus"]["window"]))
    yield "sink_rate", tables.sink_rate(run)[0]
    function = run.tables["class_attention"]
    yield "class_sink_function", float(function.loc[function["token_class"] == "function", "class_sink"].mean())
    yield from _lead(run)
    lift = run.tables["norm_lift"]
    lift = lift[(lift["token_class"] == "function") & (lift["gauge"] == "raw")]
    yield "norm_lift_function", float(lift["norm_lift"].mean())


def _lead(run: Run) -> Iterator[tuple[str, float]]:
    """What the logits of the first position and of function words have more than content keys', in two parts: means."""
    table = run.tables["class_split"]
    for gauge, end in ((RAW, ""), (BALANCED, f"_{BALANCED}")):
        words = table[(table["token_class"] == "function") & (table["gauge"] == gauge)]
        if len(words):
            yield f"class_sink_function_by_length{end}", float(words["norm_part"].mean())
            yield f"class_sink_function_by_angle{end}", float(words["angle_part"].mean())
        rows = table[(table["token_class"] == FIRST) & (table["gauge"] == gauge)]
        if len(rows):
            yield f"first_lead{end}", float(rows["class_sink"].mean())
            yield f"first_lead_by_length{end}", float(rows["norm_part"].mean())
            yield f"first_lead_by_angle{end}", float(rows["angle_part"].mean())


def clusters(run: Run) -> Iterator[tuple[str, float]]:
    """Tightness of categories by space; keys and queries: mean over heads and layers past the first."""
    for name, line in tables.cluster_lines(run).items():
        past = line[line["layer"] > 0] if name in _BY_LAYER and len(line) > 1 else line
        for column in ("auc", "kappa", "silhouette", "knn_purity", "anisotropy", "participation_ratio"):
            yield f"{column}_{_SPACES[name]}", float(past[column].mean())
        yield f"auc_shuffled_{_SPACES[name]}", float(past["auc_shuffled"].mean())


def _neighbours(run: Run) -> Iterator[tuple[str, float]]:
    for column in ("self_retrieval_mrr", "stability", "rare_neighbour_share"):
        bands = tables.neighbour_bands(run, column, "k")["mean"].dropna()
        if len(bands) > 1:
            yield f"{column}_rare", float(bands.iloc[0])
            yield f"{column}_frequent", float(bands.iloc[-1])
    whole = run.tables["neighbours"]
    keys = (whole["vector"] == "k") & (whole["gauge"] == RAW)
    whole = whole[keys & (whole["frequency_band"] == tables.ALL_BANDS) & (whole["layer"] > 0)]
    yield "hub_skew", float(whole["hub_skew"].mean())


def _purity(run: Run) -> Iterator[tuple[str, float]]:
    """How pure the neighbourhoods of rare words and of frequent ones are (`purity`).

    Rare and frequent: the lower and the upper third by count in the text. Keys: mean over heads and layers past the
    first.
    """
    file = run.path / "vectors" / "clusters.safetensors"
    with safe_open(file, "numpy") as opened:  # not all nouns are in it: small categories are left out
        words = json.loads(opened.metadata()["types"])
    kinds, vectors = run.tables["types"].set_index("word").loc[words], load_file(file)
    category, count = kinds["category"].to_numpy(), kinds["count"].to_numpy(float)
    order = np.argsort(count, kind="stable")
    third = len(order) // 3
    of = {"rare": order[:third], "frequent": order[-third:]}
    found: dict[str, list[np.ndarray]] = {"keys": [], "keys_balanced": [], "residual": []}
    for name, block in vectors.items():
        space, vector, layer = name.rsplit(".", 2)
        if space in _KEYS and vector == "k" and int(layer) > 0:
            found[_KEYS[space]] += [purity(block[:, head].astype(float), category) for head in range(block.shape[1])]
        elif space.startswith("residual") and int(layer) > 0:
            found["residual"].append(purity(block[:, 0].astype(float), category))
    for space, each in found.items():
        if each:
            mean = np.mean(each, axis=0)  # (type,)
            for group, chosen in of.items():
                yield f"purity_{space}_{group}", float(np.nanmean(mean[chosen]))


def purity(vectors: np.ndarray, category: np.ndarray) -> np.ndarray:
    """Of each row, how many of the ten nearest are of its own category, over how many could be: (type,).

    Chance depends on the sizes of categories alone, so that it cancels in a difference between models.
    """
    similar = cosines(vectors)
    np.fill_diagonal(similar, -np.inf)
    near = np.argsort(-similar, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(similar) - 1)]
    same = (category[near] == category[:, None]).sum(1)
    room = np.minimum([(category == own).sum() - 1 for own in category], NEIGHBOURS)
    return np.divide(same, room, out=np.full(len(category), np.nan), where=room > 0)


def of_edits(run: Run) -> dict[str, float]:
    """What each edit costs, in nats a token."""
    table = run.tables["interventions"]
    whole = table[table["document"] == tables.ALL_DOCUMENTS]
    made = whole[whole["edit"] != "sham"]
    return {f"delta_ce_{name}": float(cost) for name, cost in zip(made["setting"], made["delta_ce"], strict=True)}


def of_renamed(ranks: pd.DataFrame) -> dict[str, float]:
    """Where parents stand: mean place by space, of pseudo-rare words and of halved ones."""
    numbers = {}
    past = ranks[(ranks["layer"] > 0) | (ranks["space"] == "embedding")]
    for rare, group in ((True, "rare"), (False, "half")):
        own = past[past["rare"] == rare]
        for name, chosen in (
            ("keys", (own["space"] == "content") & (own["vector"] == "k") & (own["gauge"] == RAW)),
            ("keys_balanced", own["gauge"] == BALANCED),
            ("residual", own["space"] == "residual"),
            ("embedding", own["space"] == "embedding"),
        ):
            numbers[f"parent_place_{name}_{group}"] = float(own.loc[chosen, "place"].mean())
            numbers[f"parent_hit_{name}_{group}"] = float(own.loc[chosen, "hit"].mean())
    return numbers


def of_training(folder: Path, manifest: dict[str, Any]) -> dict[str, float]:
    """Losses, spikes and growth from the training's own tables."""
    held_out = {**dict.fromkeys(_FACTORS), **manifest["held_out_loss"]}  # of a run that diverged there is none
    numbers = {f"loss_{factor}x": math.nan if loss is None else float(loss) for factor, loss in held_out.items()}
    numbers["n_spikes"] = float(manifest["n_spikes"])
    # Where the last update alone broke the weights, no later one met a loss that is no number.
    numbers["diverged"] = float(manifest["diverged_at"] is not None or held_out["1"] is None)
    growth = pd.read_parquet(folder / "growth.parquet")
    steps = pd.read_parquet(folder / "metrics.parquet")
    numbers["spike_rate"] = float(steps["spike"].mean()) if len(steps) else math.nan
    numbers["max_logit_trained"] = float(growth["max_logit"].max())
    numbers |= dict(_growth(growth, int(manifest["step"])))
    return numbers


def _growth(growth: pd.DataFrame, n_steps: int) -> Iterator[tuple[str, float]]:
    """Slopes of mean log lengths over training, and how updates point, behind the first quarter of the steps."""
    late = growth[growth["step"] >= AFTER * n_steps]
    spaced = late[late["cosine_q"].notna()] if "cosine_q" in late else late
    for vector in ("q", "k"):
        for column, name in ((f"log_length_{vector}", "scored"), (f"log_projected_{vector}", "projected")):
            mean = late.groupby("step")[column].mean()
            slope = np.polyfit(mean.index / n_steps, mean.to_numpy(), 1)[0] if len(mean) > 2 else math.nan
            yield f"growth_{name}_{vector}", float(slope)
            whole = growth.groupby("step")[column].mean()
            yield f"gain_{name}_{vector}", float(whole.iloc[-1] - whole.iloc[0])
        yield f"turn_{vector}", float(spaced[f"turn_{vector}"].mean())
        if f"radial_share_{vector}" in spaced:
            # A random step has 1; a step with a share of its own more.
            share = spaced[f"radial_share_{vector}"] / spaced[f"radial_null_{vector}"]
            yield f"radial_over_random_{vector}", float(share.mean())
            yield f"radial_cosine_{vector}", float(spaced[f"cosine_{vector}"].mean())


def curves(folder: Path) -> list[dict[str, float]]:
    """A row a measured step: means over layers of what `growth` has."""
    growth = pd.read_parquet(folder / "growth.parquet")
    mean = growth.drop(columns="layer").groupby("step").mean().reset_index()
    mean["max_logit"] = growth.groupby("step")["max_logit"].max().to_numpy()
    return [{str(name): value for name, value in row.items()} for row in mean.to_dict("records")]


def losses(folder: Path) -> list[dict[str, float]]:
    """Held-out losses of the saved steps at the training length."""
    table = pd.read_parquet(folder / "held_out.parquet")
    own = table[(table["factor"] == 1) & np.isfinite(table["loss"])].drop_duplicates("step")
    return [{"step": int(step), "loss": float(loss)} for step, loss in zip(own["step"], own["loss"], strict=True)]
