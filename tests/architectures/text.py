"""Inputs for models that read text."""

import inspect
from typing import Any

import torch
from torch import Tensor

from tests.architectures.sizes import VOCABULARY

SEQUENCES, LENGTH, PADDED, PATCHES = 2, 24, 5, 6
# Below are ids with a meaning of their own (padding, images, ends).
FIRST_WORD = 60


def text_inputs(model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Tensor]:
    """Two random sequences of tokens, the second padded on the left.

    Parameters
    ----------
    model, config
    seed : int
    padded : bool
        Without effect on a model that takes no attention mask.

    Returns
    -------
    dict
        ``input_ids`` and, where it is taken, ``attention_mask``; (sequence, pos).
    """
    ids = random_ids(seed, SEQUENCES)
    if not padded or not takes(model, "attention_mask"):
        return {"input_ids": ids}
    return {"input_ids": pad(ids, config), "attention_mask": padding_mask(SEQUENCES)}


def random_ids(seed: int, rows: int) -> Tensor:
    """Random words, (rows, pos)."""
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randint(FIRST_WORD, VOCABULARY, (rows, LENGTH), generator=generator)


def padding_mask(rows: int) -> Tensor:
    """1 where a token stands, (rows, pos): every second row starts with padding."""
    mask = torch.ones(rows, LENGTH, dtype=torch.long)
    mask[1::2, :PADDED] = 0
    return mask


def pad(ids: Tensor, config: Any) -> Tensor:
    """The same rows with the padding token where the mask is 0."""
    token = getattr(config.get_text_config(decoder=True), "pad_token_id", None)
    return ids.masked_fill(padding_mask(len(ids)) == 0, token if token is not None and 0 <= token < VOCABULARY else 0)


def takes(model: Any, name: str) -> bool:
    """Whether the forward of a model has a parameter of this name."""
    return name in inspect.signature(model.forward).parameters


def call_kwargs(model: Any) -> dict[str, Any]:
    """What every call is made with: no cache, where a model has one; some hand the word on without naming it."""
    hands_on = takes(model, "kwargs") and hasattr(model.config.get_text_config(decoder=True), "use_cache")
    return {"use_cache": False} if takes(model, "use_cache") or hands_on else {}


def cross_inputs(model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Tensor]:
    """Text, and the states of an image that layers of cross-attention look at, (sequence, patch, channel)."""
    generator = torch.Generator().manual_seed(seed + 2)
    states = torch.randn(SEQUENCES, PATCHES, config.hidden_size, generator=generator)
    return text_inputs(model, config, seed, padded=padded) | {"cross_attention_states": states}


def codebook_inputs(model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Tensor]:
    """Random codes of a decoder of audio, (sequence · codebook, pos); its mask has a row a sequence."""
    ids = random_ids(seed, SEQUENCES * config.num_codebooks)
    return {"input_ids": ids, "attention_mask": padding_mask(SEQUENCES)} if padded else {"input_ids": ids}


def assistant_inputs(model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Any]:
    """What a drafting model gets from the model it drafts for: the embedding of the last token, all keys and values.

    One token a sequence, as in use: its masks look both ways, which is right for the last token alone.
    """
    generator = torch.Generator().manual_seed(seed + 1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    states = {}
    for index, kind in enumerate(config.text_config.layer_types):
        layer = config.text_config.per_layer_config[index]
        shape = (SEQUENCES, layer.num_key_value_heads, LENGTH, layer.head_dim)
        states[kind] = (random(*shape), random(*shape))
    inputs = {
        "inputs_embeds": random(SEQUENCES, 1, 2 * config.backbone_hidden_size),
        "shared_kv_states": states,
        "position_ids": torch.full((SEQUENCES, 1), LENGTH - 1),
    }
    return inputs | {"attention_mask": padding_mask(SEQUENCES)} if padded else inputs
