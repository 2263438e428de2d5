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
# # Your own model class
#
# **Question: what does geomprobe see of attention that somebody wrote yesterday?**
#
# It knows no family by name. Here is a small decoder in plain torch that no library ships, with a QK norm that is
# neither a module nor called one. To know what must come out, it gets the weights of `qknorm`, one of the two models
# that come with the package, so that it should do exactly what that one does.

# %%
import os
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

import geomprobe

logging.disable_progress_bar()
os.chdir(tempfile.mkdtemp())  # run folders go there; leave this out to keep them beside the notebook

# %% [markdown]
# ## A model
#
# `analyze` wants three things of a model: a `config`, a `forward` that takes `input_ids` and returns `logits`, and a
# fast tokenizer beside it. Deriving from `PreTrainedModel` gives the rest. The attention is in code of its own, from
# the product of queries and keys to the softmax.


# %%
class OurConfig(PretrainedConfig):
    model_type = "our_own"

    def __init__(self, vocab_size=8192, width=192, inner=512, layers=6, heads=6, kv_heads=3, **others):
        super().__init__(**others)
        self.vocab_size, self.width, self.inner = vocab_size, width, inner
        self.layers, self.heads, self.kv_heads = layers, heads, kv_heads


def evened(x):
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()


def apply_rope(x):
    n, d = x.shape[-2:]
    angle = torch.arange(n)[:, None] * 10_000.0 ** (-torch.arange(0, d, 2) / d)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.d = config, config.width // config.heads
        self.q_proj = nn.Linear(config.width, config.width, bias=False)
        self.k_proj = nn.Linear(config.width, config.kv_heads * self.d, bias=False)
        self.v_proj = nn.Linear(config.width, config.kv_heads * self.d, bias=False)
        self.o_proj = nn.Linear(config.width, config.width, bias=False)
        self.q_gain, self.k_gain = nn.Parameter(torch.ones(self.d)), nn.Parameter(torch.ones(self.d))
        self.num_key_value_groups = config.heads // config.kv_heads

    def vectors(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, self.d)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        return apply_rope(evened(q) * self.q_gain), apply_rope(evened(k) * self.k_gain), v  # (batch, head, pos, d)

    def forward(self, x):
        q, k, v = self.vectors(x)
        k, v = (y.repeat_interleave(self.num_key_value_groups, dim=1) for y in (k, v))
        scores = q @ k.transpose(-1, -2) / self.d**0.5
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return evened(x) * self.weight


class Block(nn.Module):
    def __init__(self, config, mixer):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Scale(config.width), Scale(config.width)
        self.self_attn = mixer(config)
        width, inner = config.width, config.inner
        shapes = {"gate_proj": (width, inner), "up_proj": (width, inner), "down_proj": (inner, width)}
        self.mlp = nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in shapes.items()})

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        y = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](nn.functional.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y))


class OurModel(PreTrainedModel):
    config_class = OurConfig
    mixer = Mixer

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList(Block(config, self.mixer) for _ in range(config.layers))
        self.norm = Scale(config.width)

    def forward(self, input_ids, **others):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return CausalLMOutput(logits=self.norm(x) @ self.embed_tokens.weight.T)


# %% [markdown]
# The weights of `qknorm`, under our names. `geomprobe models fetch` prints the folder in which a checkpoint lies.

# %%
fetch = [sys.executable, "-m", "geomprobe", "models", "fetch", "qknorm"]
folder = subprocess.run(fetch, capture_output=True, text=True, check=True).stdout.strip()
reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder)


def filled(kind):
    """A model of one of our classes with the weights of qknorm."""
    model = kind(OurConfig())
    names = {"model.": "", "q_norm.weight": "q_gain", "k_norm.weight": "k_gain"}
    weights = {}
    for name, tensor in reference.state_dict().items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        weights[name] = tensor
    weights.pop("lm_head.weight")  # tied to the embedding
    model.load_state_dict(weights)
    return model.eval().requires_grad_(requires_grad=False)


ours = filled(OurModel)
ids = tokenizer(
    "The house stood at the end of the lane, and in the winter nobody came to it.", return_tensors="pt"
).input_ids
with torch.no_grad():
    off = (ours(ids).logits - reference(ids).logits).abs().max()
print(f"Our model's logits are those of qknorm to {off:.0e}.")

# %% [markdown]
# ## What kind of attention is it?
#
# `inspect` asks the model and not its code: it tampers with the outputs of the projections and looks at what arrives
# at the softmax.


# %%
def seen_by(model):
    """What inspect finds, a row a layer."""
    found = geomprobe.inspect(model)
    print("attention rebuilt from what was captured is the model's own:", found.trusted)
    norms = {vector: [getattr(layer, f"{vector}_norm") for layer in found.layers] for vector in ("q", "k")}
    return pd.DataFrame(
        {
            "layer": [layer.layer for layer in found.layers],
            "heads": [f"{layer.q_heads} / {layer.kv_heads}" for layer in found.layers],
            "queries": [layer.verdict["q"] for layer in found.layers],
            "keys": [layer.verdict["k"] for layer in found.layers],
            **{f"{v}_norm": [f"{n.kind}, {n.order}" if n else "" for n in found] for v, found in norms.items()},
            "stages of keys": [", ".join(layer.stages["k"]) for layer in found.layers],
        }
    )


seen_by(ours)

# %% [markdown]
# The norm of the queries is found, though it is three operations and nothing names it; so is its place before the
# rotation. Of the keys it says `unknown`: our code repeats each key for two query heads, so that they cannot be
# followed back to one projection. It says so, and does not guess. What is measured of them is what enters the product
# (`scored`).
#
# ## An analysis
#
# The numbers must be those of `qknorm`.

# %%
settings = {"windows": 8, "window": 128, "probes": "norms,sinks", "quiet": True, "page": False}
run = geomprobe.analyze(ours, tokenizer=tokenizer, out="ours", **settings)
run

# %% alt="A dot a head: attention on position 0 in our class against that in qknorm; all dots lie on the diagonal."
same = geomprobe.analyze("qknorm", out="reference", **settings)
own, theirs = (found.tables["sinks"]["first_mass"] for found in (run, same))
figure, ax = plt.subplots(figsize=(4.2, 4), layout="constrained")
ax.axline((0, 0), slope=1, color="grey", linewidth=0.8)
ax.plot(theirs, own, "o", alpha=0.6)
ax.set_xlabel("attention on position 0, qknorm")
ax.set_ylabel("the same, our class")
ax.set_title(f"a dot a head (n = {len(own)})", loc="left")
print(f"The most that they differ by is {(own - theirs).abs().max():.0e}.")

# %% [markdown]
# ## Asking for the kernel
#
# Models of transformers do not multiply queries and keys themselves: they ask for a function that does. A model that
# asks, too, can be watched at that one place, keys are seen once for each key head, and edits become possible. It
# takes a function for the plain way and a few lines; the mask is handed over, so that every kernel has the same.


# %%
def plain_attention(module, query, key, value, attention_mask, scaling, **others):
    key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (key, value))
    weights = (query @ key.transpose(-1, -2) * scaling + attention_mask).softmax(-1)
    return (weights @ value).transpose(1, 2), weights


class AskingMixer(Mixer):
    def forward(self, x):
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, plain_attention)
        mask = torch.full((1, 1, x.shape[1], x.shape[1]), float("-inf")).triu(1)
        mixed, _ = attend(self, *self.vectors(x), attention_mask=mask, scaling=self.d**-0.5)
        return self.o_proj(mixed.flatten(2))


class AskingModel(OurModel):
    mixer = AskingMixer
    _supports_sdpa = True

    @classmethod
    def _can_set_attn_implementation(cls):  # transformers looks into the file of a class, and a notebook has none
        return True


asking = filled(AskingModel)
seen_by(asking)

# %% [markdown]
# Now keys are followed too, and keys and queries can be edited on their way to the kernel. Here all keys get the
# usual length of their head, and all logits are halved, in our class and in the packaged model:

# %%
edits, settings = ["neutral_norm", "temperature:0.5"], {"windows": 8, "window": 128, "quiet": True, "page": False}
tried = {
    "our class": geomprobe.intervene(asking, edits, tokenizer=tokenizer, out="our-edits", **settings),
    "qknorm": geomprobe.intervene("qknorm", edits, out="reference-edits", **settings),
}
costs = {name: run.tables["interventions"].query("document == -1").set_index("setting") for name, run in tried.items()}
pd.DataFrame({name: table["delta_ce"] for name, table in costs.items()}).assign(n_tokens=costs["qknorm"]["n_tokens"])

# %% [markdown]
# The same to the digit. (What it says: evening out lengths costs next to nothing where a norm has done it before,
# which the sharpness of the softmax does not. The loss is in nats a token; four documents give no interval.)
#
# ## What is refused
#
# A number that cannot be shown to be the model's own is not given. Three models that go too far:


# %%
class LinearMixer(Mixer):
    """No softmax over keys at all: linear attention."""

    def forward(self, x):
        q, k, v = self.vectors(x)
        k, v = (y.repeat_interleave(self.num_key_value_groups, dim=1) for y in (k, v))
        q, k = q.softmax(-1), k.exp()
        state = (k[..., None] * v[..., None, :]).cumsum(2)  # (batch, head, pos, d, d)
        mixed = (q[..., None, :] @ state)[..., 0, :] / (q * k.cumsum(2)).sum(-1, keepdim=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class ByHandMixer(Mixer):
    """A softmax without the name: exponentials over their sum."""

    def forward(self, x):
        q, k, v = self.vectors(x)
        k, v = (y.repeat_interleave(self.num_key_value_groups, dim=1) for y in (k, v))
        weights = (q @ k.transpose(-1, -2) / self.d**0.5).exp().tril()
        return self.o_proj((weights / weights.sum(-1, keepdim=True) @ v).transpose(1, 2).flatten(2))


def hidden_mask(module, query, key, value, attention_mask, scaling, **others):
    mask = torch.full((query.shape[2], query.shape[2]), float("-inf")).triu(1)
    return plain_attention(module, query, key, value, mask, scaling)


class HidingMixer(AskingMixer):
    """A kernel of its own that makes its mask by itself, so that nothing it is handed tells of it."""

    def forward(self, x):
        attend = ALL_ATTENTION_FUNCTIONS.get_interface("eager", hidden_mask)
        mixed, _ = attend(self, *self.vectors(x), attention_mask=None, scaling=self.d**-0.5)
        return self.o_proj(mixed.flatten(2))


for mixer in (LinearMixer, ByHandMixer, HidingMixer):
    model = filled(type(mixer.__name__, (AskingModel,), {"mixer": mixer}))
    try:
        geomprobe.analyze(model, tokenizer=tokenizer, out=mixer.__name__, **settings)
        print(f"{mixer.__name__}: taken\n")
    except geomprobe.GeomprobeError as error:
        print(f"{mixer.__name__}: {error}\n")

# %% [markdown]
# The second does compute softmax attention, and could be read; geomprobe looks for a softmax by its name, and says
# that it found none. The last is caught by the self-check alone: rebuilt attention is not what the model computes, so
# the run stops before it measures anything.
#
# ## In short
#
# - Attention in code of its own is read if it has a softmax of scaled products of queries and keys; what stands
#   between (masks, biases) is followed.
# - Name the function that rotates so that it can be found (`apply_rope`, `rotary`), and ask for the kernel if you
#   can: more is seen, and `intervene` works.
# - `geomprobe.inspect(model)` is the first thing to run on a new class. It says what it does not know.
