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
# # A first look at a checkpoint
#
# **Question: how long are a model's queries and keys, where does its attention go, and can the numbers be trusted?**
#
# One analysis of a small model that comes with the package, and what comes out of it. It needs no network. Everything
# here works the same for `smollm2-135m`, `google/gemma-2b` or a folder of your own.

# %%
import os
import tempfile

import numpy as np

import geomprobe

os.chdir(tempfile.mkdtemp())  # run folders go there; leave this out to keep them beside the notebook

# %% [markdown]
# ## One call
#
# `plain` is a decoder of 4 million parameters, trained on English novels; it reads 16 windows of 256 tokens, each
# from another State of the Union address. What `analyze` gives back is a finished run, and in a notebook it shows
# itself as a small page.

# %%
run = geomprobe.analyze("plain", windows=16, window=256, quiet=True, page=False)
run

# %% [markdown]
# ## Can the numbers be trusted?
#
# Before it measures anything, a run shows that attention rebuilt from what it captured is the model's own, in each
# layer: the attention weights, and what attention puts out. The row of layer −1 is the model's output, with the
# capture against without it; that must not change by a single bit.

# %%
parity = run.tables["parity"]
parity

# %%
worst = parity["max_abs_attention"].max()
print(f"Attention is rebuilt to {worst:.1e} at worst (allowed {parity['tolerance'].max():.0e}),", end=" ")
print(f"and watching the model changes its output by {parity.loc[parity['layer'] == -1, 'max_abs_output'].item():g}.")

# %% [markdown]
# ## How long are the keys?
#
# A figure of the page is drawn by its name. It is plain matplotlib, and goes into axes of your own too
# (`geomprobe.draw(run, "key_lengths", ax)`).

# %% alt="Key lengths by layer for content words, function words and punctuation, with position 0 dashed."
ax = geomprobe.draw(run, "key_lengths")

# %% [markdown]
# Behind every figure is a table, and every table is a DataFrame. `norms` has a row a layer, vector (q, k, v), head,
# stage and token class; `scored` is what enters the product of queries and keys.

# %%
norms = run.tables["norms"]
keys = norms[(norms["vector"] == "k") & (norms["stage"] == "scored") & (norms["token_class"] == "all")]
keys[["layer", "head", "n", "geo_mean", "log_sd", "p05", "p50", "p95"]].head(6)

# %%
spread = keys["log_sd"].median()
print(
    f"Within the median head (of {len(keys)}; n = {keys['n'].iloc[0]:,} keys each) a key one standard deviation above"
)
print(f"the mean is {np.exp(spread):.2f} times as long as the mean.")

# %% [markdown]
# So keys differ in length, within a head by a quarter or so and between layers by far more. Two cautions. Lengths
# *between* layers or models say little by themselves, since keys can be made longer and queries shorter without any
# change to the attention. And that keys differ in length does not say that attention follows it: notebook 2 asks
# that.

# %% [markdown]
# ## Is there an attention sink?
#
# Many models give much of their attention to position 0, whatever token stands there. A number needs something to be
# held against: if every query looked at all tokens before it alike, position 0 would get 1/(t + 1) from the query at
# t.

# %% alt="A map of layers by heads, coloured by the share of attention that goes to position 0."
ax = geomprobe.draw(run, "first_mass")

# %%
mass = run.tables["sinks"]["first_mass"]
even = (1 / np.arange(2, 257)).mean()  # queries 1 to 255 see 2 to 256 keys
print(f"Position 0 gets {mass.mean():.1%} of the attention (mean of {len(mass)} heads, the most {mass.max():.1%});")
print(f"even attention would give it {even:.1%}.")

# %% [markdown]
# No sink here: on the mean position 0 gets less than its even share. This model is small and has seen 8 million
# tokens. In `smollm2-135m`, trained on very many more, position 0 takes over a third of all attention (notebook 3).

# %% [markdown]
# ## Who gets the attention, then?
#
# *Lift* is the attention that a class of tokens receives, over what it would receive if every query looked at all
# that it sees alike. A dot is a head.

# %% alt="A row of dots for each class of tokens: attention received over the even share, a dot a head."
ax = geomprobe.draw(run, "class_lift")

# %%
classes = run.tables["class_attention"].groupby("token_class")[["n_tokens", "lift"]].median()
classes.loc[["punctuation", "newline", "function", "content", "subword"]].astype({"n_tokens": int}).round(2)

# %% [markdown]
# Lift mixes what a token is with where it stands. The table's `class_sink` compares a token with the content words
# beside it, and is the number to argue from.

# %% [markdown]
# ## A question of your own
#
# Tables are there to be asked. Which heads look at the fewest tokens? `support` is the exponential of the entropy:
# how many tokens a head would look at, if it looked at them alike.

# %%
logits = run.tables["logits"]
logits.nsmallest(5, "support")[["layer", "q_head", "n_late", "support", "entropy_norm", "one_hot_rate", "max"]].round(3)

# %% [markdown]
# Some heads look at a handful of tokens out of hundreds. Notebook 5 finds out what two of them are doing.
#
# ## The whole page, and what it holds for
#
# `geomprobe.report(run)` draws all figures and writes `report.html` into the run folder (so does `analyze` by itself,
# if it is not told `page=False`). `geomprobe.open_run(folder)` opens a finished run without torch or the model.
#
# All of it holds for one checkpoint on one text. 16 windows are enough to look around in; the defaults are 32 windows
# of 512 tokens, and a table says the `n` behind each number.
