"""Sounds for models that listen: spectra, or the waves themselves."""

from typing import Any

import torch
from torch import Tensor

from tests.architectures.text import SEQUENCES, takes

FRAMES, SAMPLES = 64, 1600


def sounds(model: Any, config: Any) -> dict[str, Tensor]:
    """Two random sounds under the names that a model's forward has for them; empty where it takes none.

    Drawn from torch's global generator.
    """
    audio = part(config)
    if takes(model, "input_features"):
        n_bands = getattr(audio, "num_mel_bins", None) or getattr(audio, "input_feat_per_channel", None) or 16
        found = {"input_features": torch.randn(SEQUENCES, n_bands, FRAMES)}
        for name in ("input_features_mask", "feature_attention_mask"):
            if takes(model, name):
                found[name] = torch.ones(SEQUENCES, FRAMES, dtype=torch.long)
        return found
    if takes(model, "input_values"):
        return {"input_values": torch.randn(SEQUENCES, SAMPLES)}
    return {}


def part(config: Any) -> Any:
    """The part of a configuration that describes how sounds are read."""
    for name in ("audio_config", "encoder_config", "encoder"):
        found = getattr(config, name, None)
        if found is not None and not isinstance(found, dict):
            return found
    return config
