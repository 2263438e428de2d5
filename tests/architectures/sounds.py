"""Sounds for models that listen: spectra, or the waves themselves."""

from typing import Any

import torch
from torch import Tensor

from tests.architectures.text import SEQUENCES, takes

# A whole number of frames for every model that cuts waves into them.
FRAMES, SAMPLES = 64, 1920
_PARTS = ("audio_config", "encoder_config", "encoder")


def sounds(model: Any, config: Any) -> dict[str, Tensor]:
    """Two random sounds under the names that a model's forward has for them; empty where it takes none.

    Drawn from torch's global generator.
    """
    if takes(model, "input_features"):
        found = {"input_features": torch.randn(SEQUENCES, bands(config), FRAMES)}
        for name in ("input_features_mask", "feature_attention_mask"):
            if takes(model, name):
                found[name] = torch.ones(SEQUENCES, FRAMES, dtype=torch.long)
        return found
    return waves(model, config) if takes(model, "input_values") else {}


def waves(_model: Any, _config: Any) -> dict[str, Tensor]:
    """Sounds as they come, (sequence, sample)."""
    return {"input_values": torch.randn(SEQUENCES, SAMPLES)}


def waves_inside(model: Any, config: Any) -> dict[str, Tensor]:
    """The same with an axis for channels, for a part that takes them as states."""
    return {"hidden_states": waves(model, config)["input_values"][:, None]}


def channel(model: Any, config: Any) -> dict[str, Tensor]:
    """The same with an axis for channels, (sequence, 1, sample)."""
    return {"input_values": waves(model, config)["input_values"][:, None]}


def frames(model: Any, config: Any, *, n_bands: int = 0) -> dict[str, Tensor]:
    """Spectra with the frames first, (sequence, frame, band)."""
    return sounds(model, config) | {"input_features": torch.randn(SEQUENCES, FRAMES, n_bands or bands(config))}


def values(_model: Any, config: Any) -> dict[str, Tensor]:
    """The same under the name of waves."""
    return {"input_values": torch.randn(SEQUENCES, FRAMES, bands(config))}


def frames_alone(model: Any, config: Any) -> dict[str, Tensor]:
    """The same without a mask."""
    return {"input_features": frames(model, config)["input_features"]}


def long(model: Any, config: Any, *, n_frames: int) -> dict[str, Tensor]:
    """Spectra of more frames."""
    found = {"input_features": torch.randn(SEQUENCES, bands(config), n_frames)}
    if takes(model, "input_features_mask"):
        found["input_features_mask"] = torch.ones(SEQUENCES, n_frames, dtype=torch.long)
    return found


def unpadded(model: Any, config: Any) -> dict[str, Tensor]:
    """Sounds, and that nothing of them is padding."""
    found = sounds(model, config)
    shape = next(iter(found.values())).shape
    return found | {"padding_mask": torch.ones(SEQUENCES, shape[-1], dtype=torch.long)}


def unpadded_channel(model: Any, config: Any) -> dict[str, Tensor]:
    """The same for waves with an axis for channels."""
    return unpadded(model, config) | channel(model, config)


def bands(config: Any) -> int:
    """The bands of a spectrum."""
    audio = next((found for name in _PARTS if (found := getattr(config, name, None)) is not None), config)
    names = ("num_mel_bins", "n_mels", "input_feat_per_channel", "input_dim", "feature_size")
    return next((n for name in names if (n := getattr(audio, name, None))), 16)
