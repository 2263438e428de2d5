"""Inputs for models that read more than one row of tokens: images, sounds, and the text of a decoder."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.architectures.images import images
from tests.architectures.sizes import VOCABULARY
from tests.architectures.sounds import FRAMES, sounds
from tests.architectures.text import FIRST_WORD, LENGTH, PADDED, SEQUENCES, takes

# A decoder's text is shorter than what it reads, so that neither is taken for the other.
DECODED, ASKED = 15, 9
_IMAGE_TOKENS = ("image_token_id", "image_token_index", "media_placeholder_token_id", "img_context_token_id")
_SOUND_TOKENS = ("audio_token_id", "audio_token_index")
# The words before an image or a sound.
_BEFORE = 7


Media = Callable[[Any, Any], dict[str, Any]]


def mixed_inputs(
    model: Any, config: Any, seed: int, *, padded: bool, see: Media = images, hear: Media = sounds, rows: int = 0
) -> dict[str, Any]:
    """Whatever a model takes, as its forward names it: tokens, images, sounds and the tokens of a decoder.

    Parameters
    ----------
    model, config
    seed : int
    padded : bool
        Without effect on a model that takes no attention mask, or no tokens to pad.
    see, hear : callable
        What images and sounds are made with.
    rows : int
        How many vectors the model makes of what one sequence sees or hears, where it does not say.

    Returns
    -------
    dict
        Two sequences. Where images or sounds stand in the text, their placeholders are as many as the model makes
        vectors of them; with padding the second row starts with it, before the placeholders.
    """
    ids, media = words(seed, LENGTH), {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 3)
        for make, method, names in (
            (see, "get_image_features", _IMAGE_TOKENS),
            (hear, "get_audio_features", _SOUND_TOKENS),
        ):
            made = make(model, config)
            media |= made
            read = next((found for m in model.modules() if (found := getattr(m, method, None))), None)
            placeholder = next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)
            if made and (read or rows) and placeholder is not None:
                ids = _with_placeholders(ids, placeholder, rows or _rows(read, made))
    inputs = media | _texts(model, config, ids, seed, padded=padded)
    heard = next((media[name] for name in ("input_features", "input_values") if name in media), None)
    if padded and heard is not None and takes(model, "attention_mask") and "input_ids" not in inputs:
        inputs["attention_mask"] = _silence(heard)
    return inputs


def boxed_inputs(model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Any]:
    """The same where the boxes that words stand in are whole numbers."""
    inputs = mixed_inputs(model, config, seed, padded=padded)
    return inputs | {"bbox": (100 * inputs["bbox"]).long()}  # (sequence, pos, corner)


def nothing(_model: Any, _config: Any) -> dict[str, Any]:
    """No images, or no sounds, for a model that does without."""
    return {}


def _texts(model: Any, config: Any, ids: Tensor, seed: int, *, padded: bool) -> dict[str, Any]:
    """The tokens that a model takes, and what goes with them."""
    inputs = {}
    if takes(model, "input_ids"):
        inputs["input_ids"] = ids
        if padded and takes(model, "attention_mask"):
            mask = mask_of(ids)
            inputs |= {"input_ids": ids.masked_fill(mask == 0, _padding(config)), "attention_mask": mask}
        for name in ("mm_token_type_ids", "token_type_ids"):
            if takes(model, name):
                inputs[name] = (ids < FIRST_WORD).int()
    if takes(model, "image_embeds_position_mask"):
        inputs["image_embeds_position_mask"] = (ids < FIRST_WORD).int()
    if takes(model, "qformer_input_ids"):
        inputs["qformer_input_ids"] = words(seed + 7, ASKED)
    if takes(model, "bbox"):
        corners = torch.arange(4 * ids.numel()).reshape(*ids.shape, 4) % 97 / 97
        inputs["bbox"] = corners.sort(-1).values  # (sequence, pos, corner)
    if takes(model, "decoder_input_ids"):
        inputs["decoder_input_ids"] = words(seed + 5, DECODED)
        if padded and takes(model, "decoder_attention_mask"):
            inputs["decoder_attention_mask"] = mask_of(inputs["decoder_input_ids"]).flip(1)
    return inputs


def words(seed: int, length: int) -> Tensor:
    """Random words, (sequence, pos)."""
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randint(FIRST_WORD, VOCABULARY, (SEQUENCES, length), generator=generator)


def mask_of(ids: Tensor) -> Tensor:
    """1 where a token stands, (sequence, pos): the second row starts with padding."""
    mask = torch.ones_like(ids)
    mask[1::2, :PADDED] = 0
    return mask


def _silence(heard: Tensor) -> Tensor:
    """1 where a sound goes on, (sequence, frame or sample): the second ends early."""
    mask = torch.ones(SEQUENCES, FRAMES if FRAMES in heard.shape else heard.shape[-1], dtype=torch.long)
    mask[1::2, -mask.shape[1] // 4 :] = 0
    return mask


def _padding(config: Any) -> int:
    """The padding token."""
    token = getattr(config.get_text_config(decoder=True), "pad_token_id", None)
    return token if isinstance(token, int) and 0 <= token < VOCABULARY else 0


def _rows(read: Callable[..., Any], media: dict[str, Any]) -> int:
    """How many vectors the images or sounds of one sequence become."""
    known = inspect.signature(read).parameters
    with torch.no_grad():
        made = read(**{name: value for name, value in media.items() if name in known or "kwargs" in known})
    if not isinstance(made, Tensor | list | tuple):
        made = made.last_hidden_state if made.pooler_output is None else made.pooler_output
    parts = [made] if isinstance(made, Tensor) else list(made)
    return sum(part[..., 0].numel() for part in parts) // SEQUENCES


def _with_placeholders(ids: Tensor, placeholder: int, n_rows: int) -> Tensor:
    """The text with a run of placeholders in it, (sequence, pos)."""
    run = torch.full((SEQUENCES, n_rows), placeholder)
    return torch.cat([ids[:, :_BEFORE], run, ids[:, _BEFORE:]], dim=1)  # (sequence, pos)
