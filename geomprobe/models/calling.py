"""Calling a model of any kind on a small input of its own kind."""

import inspect
from typing import Any

import torch
from torch.nn import Module
from transformers import PreTrainedModel

from geomprobe.errors import UnsupportedModel

IMAGE = 224  # pixels, where a vision model's configuration names no size


def probe_inputs(model: Module, length: int, *, seed: int = 0) -> dict[str, Any]:
    """A small input: random tokens, or random pixels for a model that looks at images.

    Parameters
    ----------
    model : Module
        A transformers model.
    length : int
        Tokens of a text; shorter where the model has fewer positions.
    seed : int

    Raises
    ------
    UnsupportedModel
        Where the model takes neither tokens nor pixels.
    """
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    device = next(model.parameters()).device
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values":
        vision = getattr(config, "vision_config", config)
        pixels = getattr(vision, "image_size", None) or IMAGE
        height, width = pixels if isinstance(pixels, tuple | list) else (pixels, pixels)
        shape = (1, getattr(vision, "num_channels", 3), height, width)
        inputs = {"pixel_values": torch.randn(shape, generator=generator).to(device, next(model.parameters()).dtype)}
    elif main == "input_ids":
        inputs = {"input_ids": _ids(config, length, generator).to(device)}
    else:
        raise UnsupportedModel(f"{type(model).__name__} takes {main}; give inspect() an input of its own (inputs=…).")
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = _ids(config, length, generator).to(device)
    return inputs


def text_inputs(model: Module, ids: torch.Tensor, *, shorter: int = 0) -> dict[str, torch.Tensor]:
    """What a model is called with so that it reads a text: an encoder–decoder gets it on both sides.

    The decoder's first token is the one that the model starts with, so its positions are those of the text.

    Parameters
    ----------
    model : Module
    ids : Tensor (batch, pos), int64
    shorter : int
        Tokens that a decoder lacks at the end: attention across is then told by its shape from attention within.
    """
    if not getattr(model.config, "is_encoder_decoder", False):
        return {"input_ids": ids}
    start = getattr(model.config, "decoder_start_token_id", None)
    decoded = ids[:, : ids.shape[1] - shorter].clone()
    if start is not None:
        decoded[:, 0] = start
    return {"input_ids": ids, "decoder_input_ids": decoded}


def seeing_part(model: Module) -> Module:
    """The part of a model that looks at images: itself, or the vision half of one that also reads text.

    Raises
    ------
    UnsupportedModel
        Where no part does.
    """
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.main_input_name == "pixel_values" and _takes_pixels(part):
            return part
    raise UnsupportedModel(f"{type(model).__name__} does not look at images; leave out --input and give it a text.")


def _takes_pixels(part: Module) -> bool:
    """Whether pixels are all that a part must be given."""
    parameters = inspect.signature(part.forward).parameters.values()
    due = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return "pixel_values" in inspect.signature(part.forward).parameters and set(due) <= {"pixel_values"}


def _ids(config: Any, length: int, generator: torch.Generator) -> torch.Tensor:
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 4:
        length = min(length, positions - 2)
    # The first ids are often special tokens, padding among them.
    low = min(10, text.vocab_size // 2)
    return torch.randint(low, text.vocab_size, (1, length), generator=generator)


def run(model: Module, inputs: dict[str, Any]) -> Any:
    """One forward pass without a cache, where the model knows one."""
    with torch.no_grad():
        try:
            return model(**inputs, use_cache=False)
        except TypeError as error:
            if "use_cache" not in str(error):
                raise
            return model(**inputs)
