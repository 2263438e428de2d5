"""Random weights under which a step that is skipped shows: no gain of one, no bias of zero, no even attention."""

import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

# These start in a range that their formula needs: decays and step sizes of state spaces, corrections of routers.
_KEPT = re.compile(
    r"A_log|\bD$|dt_bias|time_decay|time_first|time_mix|recurrent_param|recurrent_gate|correction_bias|expert_bias"
)
_EMBEDDINGS = re.compile("embed|wte|wpe|token|position")
_SPREAD, _STEEP, _EMBEDDED = 0.3, 1.3, 0.7
# Some weights hold -inf or huge numbers until a checkpoint is read.
_HUGE = 50.0


def is_kept(name: str, parameter: Tensor) -> bool:
    """Whether a weight stays as its class initialises it."""
    sinusoids = not parameter.requires_grad and "pos" in name
    return sinusoids or not parameter.is_floating_point() or _KEPT.search(name) is not None


def randomise(model: Any, *, seed: int, around: Mapping[str, float]) -> None:
    """Draw the weights of a model anew, each from a stream of its own.

    A weight's values depend on its name, its shape and the seed alone, so that two variants of a family share what
    both have.

    Parameters
    ----------
    model : nn.Module
    seed : int
    around : Mapping
        The mean of vectors by their own name, where it is not the number that they are initialised with.
    """
    modules = dict(model.named_modules())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_kept(name, parameter):
                continue
            owner, _, own_name = name.rpartition(".")
            generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            noise = torch.randn(parameter.shape, generator=generator)
            mean = torch.full_like(parameter, around[own_name]) if own_name in around else parameter
            parameter.copy_(_drawn(modules[owner], own_name, mean, noise))


def _drawn(owner: nn.Module, name: str, mean: Tensor, noise: Tensor) -> Tensor:
    """The new values of a weight of a module."""
    if "sink" in name:
        return noise
    if isinstance(owner, nn.Embedding):
        drawn = _EMBEDDED * noise
        if owner.padding_idx is not None:
            drawn[owner.padding_idx] = 0
        return drawn
    if mean.dim() < 2:
        plain = torch.isfinite(mean).all() and mean.abs().max() < _HUGE
        return (mean if plain else 0.0) + _SPREAD * noise
    if _EMBEDDINGS.search(name):
        return _EMBEDDED * noise
    return _STEEP / math.sqrt(_fan_in(owner, mean)) * noise


def _fan_in(owner: nn.Module, weight: Tensor) -> int:
    """How many numbers a product with the weight sums."""
    if isinstance(owner, Conv1D):
        return weight.shape[0]
    if isinstance(owner, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return weight[0].numel()
    return weight.shape[-1]
