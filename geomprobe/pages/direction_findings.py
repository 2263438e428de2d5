"""What a run says about directions: clusters of meaning, and the neighbours of rare words."""

import math

from geomprobe import tables
from geomprobe.labels import BALANCED
from geomprobe.pages.finding import Finding, known
from geomprobe.pages.wording import number, percent
from geomprobe.run.reading import Run
from geomprobe.tables import count

RARE, FREQUENT = (0, 1, 2), (7, 8, 9)  # deciles
ALIKE = 0.05  # a difference of overlaps that is not worth a word
SPACES = {
    "k": "keys",
    "k_balanced": "keys in the balanced gauge",
    "q": "queries",
    "residual": "the residual stream",
    "embedding": "the input embedding",
}


def tell_clusters(run: Run) -> Finding | None:
    """How well each space separates the categories, at its best layer and in the embedding."""
    if not tables.has(run, "clusters"):
        return None
    parts: list[str] = []
    values: dict[str, float] = {}
    lines = tables.cluster_lines(run)
    alone = float(lines.pop("context")["auc"].iloc[0]) if "context" in lines else math.nan
    for name, rows in lines.items():
        top = rows.nlargest(1, "auc").to_dict("records")
        if not top or not known(float(top[0]["auc"])):
            continue
        row = top[0]
        values |= {
            name: float(row["auc"]),
            f"{name}_low": float(row["auc_low"]),
            f"{name}_high": float(row["auc_high"]),
        }
        where = "" if name == "embedding" else f" in layer {int(row['layer'])}"
        interval = f"95% interval {row['auc_low']:.2f} to {row['auc_high']:.2f}"
        parts.append(f"{SPACES[name]} {row['auc']:.2f}{where} ({interval})")
    if not parts:
        return None
    first = next(iter(lines.values())).iloc[0]
    values |= {"n_types": int(first["n_types"]), "n_categories": int(first["n_categories"])}
    text = (
        f"Two nouns of one category point more alike than two of different ones with this probability (AUC; .5 is "
        f"chance; the best layer of each, so read the figure too; {int(first['n_types'])} nouns in "
        f"{int(first['n_categories'])} categories): {'; '.join(parts)}."
    )
    if known(alone):
        values["context"] = alone
        text += f" The contexts alone, without the word and without a model, give {alone:.2f}."
    return Finding("Directions", text, "clusters", values)


def tell_neighbours(run: Run) -> Finding | None:
    """Whether rare words keep their neighbours as frequent ones do."""
    if not tables.has(run, "neighbours"):
        return None
    found = tables.neighbour_bands(run, "stability", "k")["median"]
    rare, frequent = (float(found.reindex(list(bands)).mean()) for bands in (RARE, FREQUENT))
    if not known(rare, frequent):
        return None
    table = run.tables["neighbours"]
    n = int(table[table["frequency_band"] == tables.ALL_BANDS]["n_types"].max())
    side = "about as" if abs(rare - frequent) < ALIKE else "less" if rare < frequent else "more"
    text = (
        f"The ten nearest words of a rare word (lowest three of ten bands of frequency) overlap by {percent(rare)} "
        f"between two halves of its contexts, those of a frequent word (highest three) by {percent(frequent)}: rare "
        f"words have {side} settled neighbours, in the keys of the median head past the first layer "
        f"({count(n, 'word')}, all in equally many contexts)."
    )
    values = {"rare": rare, "frequent": frequent, "n_types": n}
    kept = _kept_in_balanced(run)
    if known(kept):
        values["raw_overlap"] = kept
        text += (
            f" In the balanced gauge, which describes the same attention, the ten nearest overlap by {percent(kept)} "
            "with those in the raw one (keys, median head past the first layer)."
        )
    return Finding("Directions", text, "neighbours", values)


def _kept_in_balanced(run: Run) -> float:
    """How far the neighbours of all words are the same in both gauges; NaN where there is no balanced one."""
    heads = tables.word_heads(run, "neighbours", gauge=BALANCED)
    heads = heads[heads["frequency_band"] == tables.ALL_BANDS]
    past = heads[heads["layer"] > heads["layer"].min()]
    return float(past["raw_overlap"].median()) if len(past) else math.nan


def tell_frequency(run: Run) -> Finding | None:
    """Whether frequency decides who is whose neighbour."""
    if not tables.has(run, "neighbours"):
        return None
    heads = tables.word_heads(run, "neighbours")
    heads = heads[heads["frequency_band"] == tables.ALL_BANDS]
    rho, skewed = heads["zipf_rho"].dropna(), heads["hub_skew"].dropna()
    if not len(rho) or not len(skewed):
        return None
    share = float(tables.neighbour_bands(run, "rare_neighbour_share", "k")["median"].reindex(list(RARE)).mean())
    text = (
        "A word's frequency and that of its neighbours go together with a rank correlation of "
        f"{number(float(rho.median()))} in the keys of the median head, raw gauge (0: frequency plays no part; "
        f"{count(len(rho), 'head')}). Of a rare word's neighbours {percent(share)} are more frequent than the median "
        f"word, and the counts of being a neighbour have a skewness of {number(float(skewed.median()))}."
    )
    values = {
        "zipf_rho": float(rho.median()),
        "rare_share": share,
        "hub_skew": float(skewed.median()),
        "n_heads": len(rho),
    }
    return Finding("Directions", text, "neighbours", values)
