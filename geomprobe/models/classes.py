"""Which transformers class loads a checkpoint: that which its config names, where it fits what is to be read."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import transformers

Reading = Literal["text", "images", "any"]

# Mappings whose models read text, first come first taken where the config names none of their classes.
_TEXT: Final = (
    ("MODEL_FOR_CAUSAL_LM_MAPPING", "AutoModelForCausalLM"),
    ("MODEL_FOR_MASKED_LM_MAPPING", "AutoModelForMaskedLM"),
    ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "AutoModelForSeq2SeqLM"),
    ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "AutoModelForImageTextToText"),
)


def choose_class(config: Mapping[str, Any], reading: Reading = "text") -> Any:
    """The class that loads a checkpoint as what it was trained as, None where none fits.

    A type may be in several mappings (BERT is a masked language model that transformers can also run as a decoder);
    the architecture that the config names decides.

    Parameters
    ----------
    config : mapping
        What config.json says; its model_type is one that transformers knows.
    reading : {"text", "images", "any"}
        What the model is to read. Images and anything are read by the class that the config names, or by the bare
        model.
    """
    kind = transformers.CONFIG_MAPPING[config["model_type"]]
    named = str((config.get("architectures") or [""])[0])
    if reading != "text":
        return _named(named) or _text_class(kind, named) or transformers.AutoModel
    return _text_class(kind, named)


def _text_class(kind: Any, named: str) -> Any:
    fitting = [
        (mapping[kind], getattr(transformers, auto))
        for mapping, auto in ((getattr(transformers, name), auto) for name, auto in _TEXT)
        if kind in mapping
    ]
    for made, auto in fitting:
        if any(named == model.__name__ for model in _several(made)):
            return auto
    own = _named(named)
    if own is not None and (own.main_input_name != "input_ids" or "vision_config" in kind.sub_configs):
        return None  # it reads sounds or images, by itself or beside a text
    bare = transformers.MODEL_MAPPING.get(kind, None)
    if any(named == model.__name__ for model in _several(bare)):
        return transformers.AutoModel
    return fitting[0][1] if fitting else None


def _named(name: str) -> Any:
    found = getattr(transformers, name, None) if name else None
    is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    return found if is_model else None


def _several(models: Any) -> tuple[Any, ...]:
    return () if models is None else tuple(models) if isinstance(models, list | tuple) else (models,)
