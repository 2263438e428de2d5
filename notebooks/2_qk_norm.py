# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # With and without QK norm
#
# **Question: what does a QK norm do to the attention of a model?**
#
# Released models with a QK norm differ from those without in everything else too: data, size, shape. The two models
# that come with the package are *twins*: the same initial weights, the same batches in the same order, and one
# difference. In `qknorm` an RMS norm with a gain for each channel stands on queries and keys, before the rotation; in
# `plain` there is none.

# %%
import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import geomprobe

os.chdir(tempfile.mkdtemp())  # run folders go there; leave this out to keep them beside the notebook

# %%
settings = {"windows": 32, "window": 256, "probes": "norms,gains,logits,sinks,loss,split", "quiet": True, "page": False}
runs = {name: geomprobe.analyze(name, **settings) for name in ("plain", "qknorm")}
runs["qknorm"]

# %% [markdown]
# A run's manifest says how a model of `geomprobe train` came about. `pair` is the same for twins.

# %%
about = pd.DataFrame({name: run.manifest["model"]["training"] for name, run in runs.items()}).T
about[["arm", "pair", "step", "tokens"]]

# %% [markdown]
# ## Do lengths still differ?
#
# The norm brings every key to one length, then the gain of each channel stretches it again, so that lengths differ a
# little once more.

# %% alt="Dots, one a key head, for the spread of key lengths: plain, qknorm before its norm, qknorm after it."
before, after = "qknorm,\nbefore the norm", "qknorm,\nafter it"
spread = {}
for label, name, stage in (("plain", "plain", "scored"), (before, "qknorm", "projected"), (after, "qknorm", "scored")):
    norms = runs[name].tables["norms"]
    chosen = (norms["vector"] == "k") & (norms["stage"] == stage) & (norms["token_class"] == "all")
    spread[label] = norms.loc[chosen, "log_sd"].to_numpy()

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for place, values in enumerate(spread.values()):
    ax.plot(place + np.linspace(-0.15, 0.15, len(values)), values, "o", color="#0072B2", alpha=0.6)
    ax.plot([place - 0.25, place + 0.25], [np.median(values)] * 2, color="black", linewidth=2)
ax.set_xticks(range(len(spread)), spread)
ax.set_ylim(0)
ax.set_ylabel("standard deviation of log key length")
_ = ax.set_title(f"Spread of key lengths: a dot a key head ({len(values)} each), line the median", loc="left")

# %%
middle = {label: np.median(values) for label, values in spread.items()}
print(f"Median head: {middle[before]:.3f} before the norm, {middle[after]:.3f} after it;", end=" ")
print(f"{middle['plain']:.3f} in the twin without one.")

# %% [markdown]
# The projections of the normed twin make keys of as different lengths as those of the plain one. The norm takes most
# of that away, and not all, because its gains differ between channels.
#
# ## Does attention need the lengths?
#
# That lengths differ is one thing, that attention follows them another. The table `split` divides what explains each
# query's attention between the lengths of keys and their angles. It does so in two gauges, since keys can be rescaled
# against queries without changing the attention: only what both say is a finding.


# %%
def share_of_lengths(run, gauge):
    """What lengths tell of the attention, over all heads, position 0 left out."""
    rows = heads(run, gauge)
    return rows["phi_norm"].sum() / (rows["phi_norm"] + rows["phi_angle"]).sum()


def heads(run, gauge):
    """The rows of `split` over all documents, position 0 left out: a row a head."""
    split = run.tables["split"]
    return split[(split["gauge"] == gauge) & (split["first"] == "out") & (split["document"] == -1)]


gauges = ("raw", "balanced")
pd.DataFrame({name: {gauge: share_of_lengths(run, gauge) for gauge in gauges} for name, run in runs.items()}).round(4)

# %% [markdown]
# In both twins angles tell nearly everything: without a norm too, lengths tell little of where attention goes. What
# the norm changes is how *nearly* attention is a softmax of cosines alone. `tv` says how far off that would be (total
# variation, 0 to 1).

# %% alt="How far attention is from a softmax of cosines, by layer, for both twins, a dot a head."
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (name, run), colour, shift in zip(runs.items(), ("#D55E00", "#0072B2"), (-0.12, 0.12), strict=True):
    rows = heads(run, "raw")
    ax.plot(rows["layer"] + shift, rows["tv"], "o", color=colour, alpha=0.5, markersize=4)
    ax.plot(rows.groupby("layer")["tv"].median(), color=colour, linewidth=2, label=f"{name} (median head)")
    print(f"{name}: {rows['tv'].median():.3f} at the median head of {len(rows)}")
ax.set_xlabel("layer")
ax.set_ylim(0)
ax.set_ylabel("tv: distance from a softmax of cosines")
ax.set_title("How far attention is from cosines alone", loc="left")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## The same documents, twice
#
# Both twins read the same windows, so they can be compared document by document, which takes away what makes
# documents harder or easier. The table `document_stats` has a row a document (layer −1: the whole model). Drawing the
# documents with replacement gives an interval of the mean difference.

# %%
quantities = {
    "loss": "loss, nats a token",
    "entropy": "entropy of attention, nats",
    "logit_max": "largest logit over its row's mean",
    "k_log_sd": "sd of log key length",
    "first_mass": "attention on position 0",
}
tables = {}
for name, run in runs.items():
    stats = run.tables["document_stats"]
    tables[name] = stats[stats["layer"] == -1].set_index("document")[list(quantities)]
assert runs["plain"].manifest["corpus"]["documents"] == runs["qknorm"].manifest["corpus"]["documents"]

difference = (tables["qknorm"] - tables["plain"]).dropna()
drawn = np.random.default_rng(0).integers(len(difference), size=(2000, len(difference)))
low, high = np.quantile(difference.to_numpy()[drawn].mean(axis=1), (0.025, 0.975), axis=0)
paired = pd.DataFrame(
    {
        "plain": tables["plain"].mean(),
        "qknorm": tables["qknorm"].mean(),
        "difference": difference.mean(),
        "low": low,
        "high": high,
        "n": len(difference),
    }
).rename(index=quantities)
paired.round(4)

# %%
for name, row in paired.iterrows():
    side = "no difference that documents can tell" if row["low"] < 0 < row["high"] else "lower with the norm"
    side = "higher with the norm" if row["low"] > 0 else side
    print(f"{name}: {side} ({row['difference']:+.3f}, 95% interval {row['low']:+.3f} to {row['high']:+.3f})")

# %% [markdown]
# `geomprobe.compare` does this for every quantity at once, for each third of the depth too, and writes a page. Its
# intervals are a little wider, as those of few documents should be; `beyond` says whether 0 is outside the band that
# holds all differences together.

# %%
comparison = geomprobe.compare(runs["plain"], runs["qknorm"], formats="csv", quiet=True)
differences = comparison.differences
shown = ["title", "gauge", "estimate_a", "estimate_b", "difference", "low", "high", "n_documents", "beyond"]
differences.loc[differences["where"] == "all layers", shown].round(4)

# %% [markdown]
# ## What this shows, and what it does not
#
# In this pair the norm evens out key lengths, keeps the largest logits down, and makes attention nearly a softmax of
# cosines. It does not decide whether attention goes by angle: it did without the norm as well.
#
# The intervals are over documents. They say how sure one can be *of these two models*; how much another seed would
# change is not in them. One pair is one observation: `reports/qk-norm-evidence` has more seeds and more arms, and
# `geomprobe sweep` makes your own.
