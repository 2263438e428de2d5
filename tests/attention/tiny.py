"""Tiny models on a padded batch, and all that watching one may touch."""

import inspect
import sys

import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from geomprobe.testing import tiny_model

FAMILIES = ("llama", "qwen3", "gemma2", "gemma3", "gpt_oss")
# Gemma 2 (soft-cap) and GPT-OSS (learned sinks) refuse sdpa.
KERNELS = {
    "llama": ("eager", "sdpa"),
    "qwen3": ("eager", "sdpa"),
    "gemma2": ("eager",),
    "gemma3": ("eager", "sdpa"),
    "gpt_oss": ("eager",),
}
CASES = [(family, kernel) for family in FAMILIES for kernel in KERNELS[family]]
STAGES = ("projected", "content", "scored")
LENGTH = 60  # the sliding windows of the tiny models are 40
PADDING = ((0, 0), (7, 0), (0, 9))  # left and right, a sequence


def on(kernel, family, **changes):
    """A tiny model of a family on a kernel."""
    model = tiny_model(family, **changes)
    model.set_attn_implementation(kernel)
    return model


def some_ids(n=1, length=LENGTH, seed=0):
    return torch.randint(3, 160, (n, length), generator=torch.Generator().manual_seed(seed))


def padded(*, padding=PADDING):
    """Three sequences: whole, with padding on the left, with padding on the right."""
    mask = torch.ones(len(padding), LENGTH, dtype=torch.int64)
    for row, (left, right) in enumerate(padding):
        mask[row, :left] = 0
        mask[row, LENGTH - right :] = 0
    return {"input_ids": some_ids(len(padding)).masked_fill(mask == 0, 0), "attention_mask": mask, "use_cache": False}


def cached(model, cache):
    """The argument by which a cache is handed to the model: newer releases of transformers call it `cache`."""
    known = inspect.signature(type(model).forward).parameters
    return {"cache" if "cache" in known else "past_key_values": cache}


def traces(model):
    """Everything that watching changes for its time: two equal answers mean that nothing stayed behind."""
    modelling = sys.modules[type(model).__module__]
    hooks = {
        name: [len(value) for key, value in vars(module).items() if key.startswith("_") and "hooks" in key]
        for name, module in model.named_modules()
    }
    return {
        "interface": dict(vars(AttentionInterface)),
        "inherited": (AttentionInterface.get_interface, AttentionInterface.__getitem__),
        "kernels": {name: ALL_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "flex_attention")},
        "globals": {name: id(value) for name, value in vars(modelling).items()},
        "hooks": hooks,
        "configs": {
            name: module.config._attn_implementation
            for name, module in model.named_modules()
            if hasattr(module, "config")
        },
        "training": {name: module.training for name, module in model.named_modules()},
        "forwards": {name: "forward" in vars(module) for name, module in model.named_modules()},
    }
