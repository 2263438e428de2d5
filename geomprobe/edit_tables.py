"""What the edits of an intervention cost: the table `interventions` as figures and pages read it."""

import math
from typing import Any, Final

import numpy as np
import pandas as pd

from geomprobe.run.reading import Run
from geomprobe.stats.resampling import counts_of_draws
from geomprobe.tables import ALL_DOCUMENTS, RESAMPLES

NO_EDIT: Final = {"scale_class": 0.0, "temperature": 1.0}  # strengths at which an edit changes nothing


def edit_costs(run: Run) -> pd.DataFrame:
    """A row an edit and set of layers: what it cost, with low and high of a 95 % interval over documents.

    NaN where fewer than five documents say anything. Documents weigh by their tokens; the draw's seed is fixed.
    `per_displacement` is the cost over how far keys were moved (NaN where they were not), as edits that move them
    further hurt more.
    """
    return _costs(run.tables["interventions"])


def _costs(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for _, own in table.groupby(["setting", "layers"], sort=False):
        whole = own[own["document"] == ALL_DOCUMENTS].to_dict("records")[0]
        each = own[own["document"] != ALL_DOCUMENTS]
        low = high = math.nan
        if len(each) >= 5:
            weights, values = each["n_tokens"].to_numpy(float), each["delta_ce"].to_numpy(float)
            times = counts_of_draws(len(each), RESAMPLES, (0, 1))  # (draw, document)
            low, high = np.quantile(times @ (weights * values) / (times @ weights), (0.025, 0.975))
        moved = float(whole["displacement"])
        rate = float(whole["delta_ce"]) / moved if moved > 0 else math.nan
        added: dict[Any, Any] = {"low": float(low), "high": float(high), "n_documents": len(each)}
        rows.append({**whole, **added, "per_displacement": rate})
    return pd.DataFrame(rows, columns=[*table.columns, "low", "high", "n_documents", "per_displacement"])


def edited_layers(run: Run) -> str:
    """The layers that the run edits together, as its table has them: "all", or numbers."""
    return str(run.tables["interventions"]["layers"].iloc[0])  # the sham's, which comes first


def edited(run: Run) -> str:
    """The same in words: "all layers", "layers 0, 5", "layer 3"."""
    where = edited_layers(run)
    return "all layers" if where == "all" else f"layer{'s' if ',' in where else ''} {where.replace(',', ', ')}"


def joint_costs(run: Run) -> pd.DataFrame:
    """The rows of `edit_costs` in all those layers at once, shams first."""
    table = run.tables["interventions"]
    return _costs(table[table["layers"] == edited_layers(run)])


def single_costs(run: Run) -> pd.DataFrame:
    """The rows of `edit_costs` in one layer by itself, which `layer` names; none without --one-by-one."""
    table = run.tables["interventions"]
    single = _costs(table[table["layers"] != edited_layers(run)])
    return single.assign(layer=single["layers"].astype(int))


def dose_costs(run: Run, edit: str) -> pd.DataFrame:
    """Costs of an edit by class, gauge and strength; the model without it is among them (`tried` is False).

    No rows where no class was tried at two strengths in one gauge; else `n_strengths` says at how many.
    """
    costs = joint_costs(run)
    keys = ["token_class", "gauge"]
    own = costs[(costs["edit"] == edit) & (costs["strength"] != NO_EDIT[edit])].assign(tried=True)
    own["n_strengths"] = own.groupby(keys)["strength"].transform("nunique")
    if not len(own) or own["n_strengths"].max() < 2:
        return own.iloc[:0]
    nothing = dict.fromkeys(["delta_ce", "kl", "low", "high", "delta_class_sink", "displacement"], 0.0)
    without = own.drop_duplicates(keys).assign(strength=NO_EDIT[edit], tried=False, **nothing)
    return pd.concat([own, without]).sort_values([*keys, "strength"], ignore_index=True)


def turned_costs(run: Run) -> dict[tuple[str, str], tuple[pd.DataFrame, pd.DataFrame]]:
    """By (edit of lengths, gauge): its costs layer by layer, and those of directions turned as far, same layers."""
    single = single_costs(run)
    found = {}
    for (edit, gauge), other in single[single["against"] != ""].groupby(["against", "gauge"], sort=False):
        own = single[(single["edit"] == edit) & (single["gauge"] == gauge)].set_index("layer").sort_index()
        other = other.set_index("layer").sort_index()
        both = own.index.intersection(other.index)
        if len(both):
            found[str(edit), str(gauge)] = own.loc[both], other.loc[both]
    return found
