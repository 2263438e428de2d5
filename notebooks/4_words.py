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
# # Clusters and rare words
#
# **Question: do words of one meaning point the same way, and do rare words have sensible neighbours?**
#
# Everything before looked at attention. This looks at directions: of keys, queries and the residual stream, when the
# model has read up to a word. The words are nouns of packaged categories, and words of every frequency, each seen in
# equally many contexts of the text. `plain` comes with the package: small, trained on novels, and read here on State
# of the Union addresses.

# %%
import os
import tempfile

import matplotlib.pyplot as plt
import pandas as pd

import geomprobe

pd.set_option("display.max_colwidth", None)
os.chdir(tempfile.mkdtemp())  # run folders go there; leave this out to keep them beside the notebook

# %%
words = {"probes": "clusters,neighbours", "max_types": 100, "context": 32}
run = geomprobe.analyze("plain", **words, windows=1, window=64, quiet=True, page=False)
run

# %% [markdown]
# What was looked at, and how much was not: most words of the lists are too rare in the text, or more than one token
# for this tokenizer.

# %%
found = run.manifest["words"]
print(f"{found['n_types']} words in {found['n_contexts']:,} contexts of {found['context']} tokens. Left out:")
print(pd.Series(found["left_out"]).to_string())

# %% [markdown]
# ## Do nouns of one category point the same way?
#
# AUC: how often two nouns of one category point more alike than two of different ones. 1 is clean separation, .5 is
# chance. Three levels to hold it against: categories reassigned at random, *contexts alone* (random vectors for the
# words before, averaged: what a model without any knowledge makes of the windows), and the input embedding.

# %% alt="AUC by layer for keys, queries and residual stream; embedding, contexts alone and shuffled null as levels."
ax = geomprobe.draw(run, "cluster_auc")

# %%
clusters = run.tables["clusters"]
means = clusters[(clusters["head"] == -1) & (clusters["gauge"] == "raw")]
means = means.assign(what=means["vector"].where(means["vector"] != "", means["space"]))
best = means.loc[means.groupby("what")["auc"].idxmax()].set_index("what")
best[["layer", "auc", "auc_low", "auc_high", "auc_shuffled", "n_types", "n_categories"]].round(3)

# %%
alone, known = best.loc["context"], best.loc["embedding"]
print(f"Contexts alone reach {alone['auc']:.2f}, the embedding {known['auc']:.2f}", end=" ")
print(f"(95% interval {known['auc_low']:.2f} to {known['auc_high']:.2f}).")
for what in ("k", "q", "residual"):
    row = best.loc[what]
    print(f"{what}: {row['auc']:.2f} ({row['auc_low']:.2f} to {row['auc_high']:.2f}) in its best layer, {row['layer']}")

# %% [markdown]
# Even this small model has categories in its directions, well above what the contexts give away. Most of that is in
# the embedding already: the layers add less than the intervals are wide. (The best of several layers is a flattering
# choice; the figure shows all.)
#
# ## What does it look like?
#
# The nouns on a flat map of their directions, in the key head that separates the categories best. What is near on the
# map is near in angle; far groups cannot be compared.

# %% alt="Nouns on a flat map of their directions, written in the colour of their category."
nouns = run.tables["map"]
large = nouns["category"].value_counts().head(6).index
figure, ax = plt.subplots(figsize=(9, 6), layout="constrained")
ax.scatter(nouns["x"], nouns["y"], s=8, color="lightgrey")
for number, category in enumerate(large):
    own = nouns[nouns["category"] == category]
    ax.scatter(own["x"], own["y"], s=14, color=f"C{number}", label=f"{category} ({len(own)})")
    for word, x, y in own[["word", "x", "y"]].itertuples(index=False):
        ax.annotate(word, (x, y), xytext=(3, 2), textcoords="offset points", fontsize=8, color=f"C{number}")
ax.set_xticks([])
ax.set_yticks([])
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
where = nouns.iloc[0]
title = f"{len(nouns)} nouns, keys of layer {where['layer']}, head {where['head']}; six of the largest categories"
_ = ax.set_title(title, loc="left")

# %% [markdown]
# ## Do rare words have sensible neighbours?
#
# Words of all frequencies, by decile of their count in the text (0: the rarest). *Stability* is the overlap of a
# word's ten nearest words from one half of its contexts and from the other. Rare words see as many contexts here as
# frequent ones: else their vectors would be noisier for that reason alone.

# %% alt="Four panels over deciles of word frequency, for keys and queries, each with the median head and quartiles."
ax = geomprobe.draw(run, "neighbour_quality")

# %%
neighbours = run.tables["neighbours"]
heads = neighbours[(neighbours["space"] == "content") & (neighbours["vector"] == "k") & (neighbours["layer"] > 0)]
heads = heads[heads["gauge"] == "raw"]
bands = heads[heads["frequency_band"] >= 0].groupby("frequency_band")["stability"].median()
print(f"Overlap of neighbours, median key head past layer 0 ({heads['n_types'].max()} words in ten deciles):")
print(
    f"{bands.loc[:2].mean():.2f} for the three rarest deciles, {bands.loc[7:].mean():.2f} for the three most frequent."
)

# %% [markdown]
# Rare words have as settled neighbours as frequent ones. But settled is not sensible: a word could stably lie among
# words that have only their frequency in common. `zipf_rho` asks that: the rank correlation of a word's frequency
# with the mean frequency of its neighbours, 0 where frequency plays no part.

# %%
every = neighbours[neighbours["frequency_band"] == -1]
rho = pd.Series(
    {
        "embedding": every.loc[every["space"] == "embedding", "zipf_rho"].item(),
        **every[every["space"] == "residual"].set_index("layer")["zipf_rho"].add_prefix("residual stream, layer "),
        "keys, median head": heads.loc[heads["frequency_band"] == -1, "zipf_rho"].median(),
    },
    name="zipf_rho",
)
rho.round(2).to_frame()

# %% [markdown]
# In the embedding neighbours go by frequency; after the first layer they do so far less. Here are the rarest words of
# those whose neighbours the run keeps, with their nearest in each place. Judge for yourself: "misery" is near
# "sorrow" by meaning; "establishment" and "kindred" are near much that is merely rare.

# %%
near = run.tables["word_neighbours"]
rarest = near[["word", "zipf"]].drop_duplicates().nsmallest(8, "zipf")["word"]
near = near.assign(where=near["space"].replace({"content": "keys", "residual": "residual stream"}))
lists = near[near["word"].isin(rarest)].sort_values("rank").groupby(["word", "where"])["neighbour"]
lists.agg(lambda found: ", ".join(found.head(3))).unstack().loc[rarest]

# %% [markdown]
# ## What this shows, and what it does not
#
# - Categories are in the directions of a small model, and most of that comes with the embedding.
# - Frequency shapes the neighbours of the embedding, and much less those of the layers behind it.
# - 100 words and nouns of a dozen categories: the intervals say how little that is. All of it is what one model does
#   on one text, whose nouns are those of politics.
# - A larger model takes longer: `smollm2-135m` some minutes even for so few words. `reports/words.md` has it and
#   gemma3-270m, with more words and all layers.
