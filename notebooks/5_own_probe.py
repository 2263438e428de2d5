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
# # Your own probe in 30 lines
#
# **Question: which heads look at the token just before, and how far do the others look?**
#
# No table of an analysis says that. A probe is a statistic that does: it sees the attention of every layer while the
# text flows through the model, and leaves a table in the run folder beside the others. What has to be imported for
# one is all in `geomprobe.probes.base`, and `geomprobe.testing` checks it.

# %%
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import geomprobe
from geomprobe.probes.base import PROBES, AttentionProbe, counts, zeros
from geomprobe.testing import check_probe, checks

logging.disable_progress_bar()
os.chdir(tempfile.mkdtemp())  # run folders go there; leave this out to keep them beside the notebook

# %% [markdown]
# ## The probe
#
# A probe holds no data, only parameters (this one has none). What it gathers is a *state*, a dict of sums, so that
# runs can be stopped, resumed and merged. `init` makes an empty state. For each layer of each batch `open` makes
# room, `add` gets the attention of some query rows (`block.probabilities`, never all rows at once), and `close` adds
# the layer to the state. `summarise` makes the table.
#
# For each head: `previous`, the mean attention from a token to the one just before it, and `distance`, how many
# tokens back the attention goes on the mean. Position 0 is left out of the distance, as it draws attention wherever a
# query stands.


# %%
@PROBES.register("reach")
@dataclass(frozen=True)
class Reach(AttentionProbe):
    """Attention to the token before, and how far attention reaches, by layer and head."""

    def init(self, spec):
        shape = (spec.model.n_layers, spec.model.q_heads)
        return {"n": counts(shape[0]), "previous": zeros(*shape), "mass": zeros(*shape), "far": zeros(*shape)}

    def open(self, batch):
        return {name: zeros(batch.q_heads) for name in ("previous", "mass", "far")}

    def add(self, scratch, block):
        attention = block.probabilities.double()  # (batch, q_head, row, key)
        query = torch.arange(block.start, block.start + block.n_rows)[:, None]
        key = torch.arange(block.keys.start, block.keys.stop)
        back = query - key  # (row, key)
        scratch["previous"] += attention[..., back == 1].sum((0, 2))
        behind = attention * (key > 0)  # position 0 left out
        scratch["mass"] += behind.sum((0, 2, 3))
        scratch["far"] += (behind * back).sum((0, 2, 3))

    def close(self, state, batch, scratch):
        state["n"][batch.index] += batch.n_sequences * max(batch.length - 1, 0)  # position 0 has none before it
        for name, total in scratch.items():
            state[name][batch.index, : batch.q_heads] += total

    def summarise(self, state, spec):
        parts = []
        for index, layer in enumerate(spec.model.layers):
            n, at = int(state["n"][index]), (index, slice(layer.q_heads))
            previous, mass, far = (state[name][at].numpy() for name in ("previous", "mass", "far"))
            row = {"previous": previous / (n or np.nan), "distance": far / np.where(mass > 0, mass, np.nan)}
            parts.append(pd.DataFrame({"layer": layer.layer, "q_head": range(layer.q_heads), "n": n, **row}))
        return {"reach": pd.concat(parts, ignore_index=True)}


# %% [markdown]
# ## The contract
#
# `check_probe` holds the probe to what every probe promises: two halves merged are one pass, wherever the stream is
# cut; order, batch size and padding leave no trace; a statistic of nothing is NaN; and so on. Silence is good news.

# %%
check_probe(Reach())

# %% [markdown]
# It earns its place by catching mistakes. Here is one that is easily made: the count goes up by one a batch, as if
# all batches were alike.


# %%
class Careless(Reach):
    """The same with a count of batches, which depends on how the text was cut."""

    def close(self, state, batch, scratch):
        super().close(state, batch, scratch)
        state["n"][batch.index] += 1 - batch.n_sequences * max(batch.length - 1, 0)


for check in checks():
    try:
        check(Careless())
    except AssertionError:
        print("broken:", check.__doc__)

# %% [markdown]
# ## On a model
#
# A probe that is registered is known to `analyze` by its name (the cell that registers it can be run again after a
# change). Its table lies in the run folder like every other.

# %%
settings = {"windows": 16, "window": 256, "probes": "reach,sinks", "quiet": True, "page": False}
run = geomprobe.analyze("plain", **settings)
reach = run.tables["reach"]
reach.nlargest(5, "previous").round(3)

# %% alt="A map of layers by heads, coloured by the attention to the token before; beside it that against the distance."
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
image = left.imshow(reach.pivot(index="layer", columns="q_head", values="previous"), cmap="cividis", vmin=0)
figure.colorbar(image, ax=left, label="attention to the token before")
left.set_xlabel("query head")
left.set_ylabel("layer")
left.set_title("plain: who looks at the token before?", loc="left")
dots = right.scatter(reach["distance"], reach["previous"], c=reach["layer"], cmap="viridis")
figure.colorbar(dots, ax=right, label="layer")
right.set_xlabel("mean distance (tokens back)")
right.set_ylabel("attention to the token before")
_ = right.set_title(f"a dot a head (n = {len(reach)})", loc="left")

# %%
places = np.arange(1, 256)
even = (1 / (places + 1)).mean()
far = (places / 2).mean()
top = reach.nlargest(1, "previous").iloc[0]
others = reach.drop(reach.nlargest(2, "previous").index)
print(f"Even attention would give the token before {even:.1%}, at a mean distance of about {far:.0f} tokens.")
print(f"Layer {top['layer']:.0f}, head {top['q_head']:.0f} gives it {top['previous']:.0%}", end=" ")
print(f"(n = {top['n']:,.0f} queries), at a mean distance of {top['distance']:.1f}.")
print(f"Without the first two, the median head gives it {others['previous'].median():.1%},", end=" ")
print(f"at a mean distance of {others['distance'].median():.0f}.")

# %% [markdown]
# Two heads of this small model are *previous-token heads*: they look at the token before far more than any even
# spread would, and a few tokens back on the mean, where the others look forty back. They are the two that notebook 1
# found to look at the fewest tokens. Such heads are one half of what lets a model copy.
#
# ## Consistent is not yet right
#
# The contract says that a probe agrees with itself. Whether it measures what it should is another question, and wants
# an answer that shares no code with it. `geomprobe.capture` gives whole attention matrices of a short text, from
# which both numbers are a line each.

# %%
fetch = [sys.executable, "-m", "geomprobe", "models", "fetch", "plain"]  # prints the folder of the checkpoint
folder = subprocess.run(fetch, capture_output=True, text=True, check=True).stdout.strip()
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder)
story = (
    "The old house stood by the sea. When the wind rose at night the children lay awake, and told each other tales. "
)
Path("story.txt").write_text(story * 4)
with torch.no_grad(), geomprobe.capture(model) as seen:
    model(tokenizer(story * 4, return_tensors="pt").input_ids[:, :64])
own = geomprobe.analyze("plain", **settings | {"text": "story.txt", "windows": 1, "window": 64, "out": "story"})

by_hand = []
back = torch.arange(64)[:, None] - torch.arange(64)
for record in seen:
    attention = record.attention()[0].double()  # (q_head, query, key)
    behind = attention[..., 1:]
    far = (behind * back[:, 1:]).sum((1, 2)) / behind.sum((1, 2))
    previous = attention.diagonal(-1, 1, 2).mean(-1)
    by_hand.append(pd.DataFrame({"previous": previous, "distance": far}))
by_hand = pd.concat(by_hand, ignore_index=True)
off = (by_hand - own.tables["reach"][["previous", "distance"]]).abs().max()
print(f"The probe and the lines above differ by at most {off['previous']:.0e} and {off['distance']:.0e} tokens.")

# %% [markdown]
# ## Where to go from here
#
# - Five kinds of probes see different things: `VectorProbe` (queries, keys, values), `AttentionProbe` (this one),
#   `ResidualProbe` (what enters a layer), `OutputProbe` (what the model predicts), `StaticProbe` (the model's shape).
# - The numbers above are of one small model on 16 windows. `analyze("smollm2-135m", probes="reach")` asks a larger
#   one.
# - `CONTRIBUTING.md` says what a probe needs to become a part of the package.
