"""Checkpoints to models: on a device, in a dtype, every weight from the files."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from geomprobe.errors import InvalidParameter, ModelNotFound, UnsupportedModel, one_of
from geomprobe.models.classes import Reading, choose_class
from geomprobe.models.folder import CONFIG, has_tokenizer, read_config, weight_files
from geomprobe.models.quiet import quiet_transformers
from geomprobe.models.resolve import Checkpoint
from geomprobe.models.wording import in_brief

logger = logging.getLogger("geomprobe")

DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
_BAD_FILES: Final = (ValueError, TypeError, KeyError, AttributeError, OSError, RuntimeError, ImportError)
_SHOWN: Final = 3


@dataclass(frozen=True)
class LoadedModel:
    """A model, ready to be watched.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        In eval mode; no parameter requires a gradient.
    tokenizer : transformers.PreTrainedTokenizerBase or None
        A fast one: it knows which characters a token stands for. None where no text is read.
    processor : transformers image processor or None
        Of a model that reads images.
    checkpoint : Checkpoint
        What it was loaded from.
    dtype : str
        Of the weights: "float32", "bfloat16" or "float16".
    device : str
        "cpu", "mps", "cuda:0" …; "map" where transformers spread it by a device map.
    """

    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    processor: Any = field(repr=False)
    checkpoint: Checkpoint
    dtype: str
    device: str


def load(
    checkpoint: Checkpoint,
    *,
    reading: Reading = "text",
    dtype: str = "auto",
    device: str = "auto",
    device_map: str | Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a resolved checkpoint's model, and its tokenizer or image processor.

    Parameters
    ----------
    checkpoint : Checkpoint
        What `resolve` found.
    reading : {"text", "images", "any"}
        What it is to read; "any" loads the model alone.
    dtype : {"auto", "float32", "bfloat16", "float16"}
        "auto" is float32 on a CPU, the checkpoint's own elsewhere.
    device : str
        "auto" (cuda, else mps, else cpu), "cpu", "mps", "cuda" or "cuda:N".
    device_map : str, mapping or None
        Handed to transformers, which then places the layers; `device` must be left at "auto".
    trust_remote_code : bool
        Run Python code that the checkpoint brings.

    Raises
    ------
    InvalidParameter
        Where the dtype or device is unknown, or this machine has no such device.
    ModelNotFound
        Where a file is missing or damaged, or the files do not hold every weight of the model.
    UnsupportedModel
        Where transformers does not know it, it does not read what it shall, or its tokenizer has no character offsets.
    """
    one_of("dtype", dtype, DTYPES)
    place = choose_device(device) if device_map is None else _free_device(device)
    folder = checkpoint.path
    _check_kind(folder, reading, trust_remote_code=trust_remote_code)
    weight_files(folder)
    if reading == "text" and not has_tokenizer(folder) and not trust_remote_code:
        raise ModelNotFound(
            f"The folder {str(folder)!r} has no tokenizer; copy the files of the checkpoint's tokenizer "
            "(tokenizer.json, tokenizer_config.json) into it."
        )
    with quiet_transformers():
        _check_config(folder, trust_remote_code=trust_remote_code)
        tokenizer = _load_tokenizer(folder, trust_remote_code=trust_remote_code) if reading == "text" else None
        processor = _load_processor(folder) if reading == "images" else None
        model = _load_model(
            folder,
            reading,
            dtype=_choose_dtype(dtype, place),
            device_map=device_map if device_map is not None else _whole_on(place),
            trust_remote_code=trust_remote_code,
        )
    model.eval().requires_grad_(requires_grad=False)
    used = str(model.dtype).removeprefix("torch.")
    return LoadedModel(model, tokenizer, processor, checkpoint, used, "map" if device_map is not None else place)


def choose_device(device: str) -> str:
    """The name of a device that this machine has.

    Raises
    ------
    InvalidParameter
        Where it has no such device.
    """
    kind, _, number = device.partition(":")
    if device not in ("auto", "cpu", "cuda", "mps") and not (kind == "cuda" and number.isdecimal()):
        raise InvalidParameter(f"device must be 'auto', 'cpu', 'mps', 'cuda' or 'cuda:N'; got {device!r}.")
    n_cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    has_mps = torch.backends.mps.is_available()
    if device == "auto":
        return "cuda:0" if n_cuda else "mps" if has_mps else "cpu"
    if kind == "cuda":
        if int(number or 0) >= n_cuda:
            have = f"only {n_cuda} CUDA device{'s' if n_cuda > 1 else ''}" if n_cuda else "no CUDA device"
            raise InvalidParameter(f"device must be one that this machine has, and it has {have}; got {device!r}.")
        return f"cuda:{int(number or 0)}"
    if device == "mps" and not has_mps:
        raise InvalidParameter("device must be one that this machine has, and it has no mps device; got 'mps'.")
    return device


def _free_device(device: str) -> str:
    if device != "auto":
        raise InvalidParameter(f"device must be left at 'auto' where a device_map is given; got {device!r}.")
    return choose_device(device)


def _whole_on(place: str) -> dict[str, str] | None:
    """A device map that loads straight onto an accelerator, without a stay in the CPU's memory."""
    return None if place == "cpu" else {"": place}


def _choose_dtype(dtype: str, place: str) -> Any:
    if dtype != "auto":
        return getattr(torch, dtype)
    return torch.float32 if place == "cpu" else "auto"


def _check_kind(folder: Path, reading: Reading, *, trust_remote_code: bool) -> None:
    """Raise unless transformers, or code that the checkpoint may bring, makes a model that reads what it shall."""
    config = read_config(folder)
    kind, brings_code = config.get("model_type"), bool(config.get("auto_map"))
    known = isinstance(kind, str) and kind in transformers.CONFIG_MAPPING
    if (known and choose_class(config, reading) is not None) or (brings_code and trust_remote_code):
        return
    if brings_code:
        raise UnsupportedModel(
            f"The model type {kind!r} of {str(folder)!r} needs Python code that the checkpoint brings; "
            "read that code, and give --trust-remote-code if you trust it."
        )
    if known:
        raise UnsupportedModel(
            f"The model type {kind!r} of {str(folder)!r} is no model of text; give images with --input for a model "
            "that looks at them, or call geomprobe.capture and geomprobe.inspect on the loaded model."
        )
    what = f"the model type {kind!r}" if kind else "the model"
    raise UnsupportedModel(
        f"transformers {transformers.__version__} does not know {what} that {str(folder / CONFIG)!r} describes; "
        "a newer transformers may."
    )


def _check_config(folder: Path, *, trust_remote_code: bool) -> None:
    """Raise where transformers does not take the config, before the tokenizer or the weights are blamed for it."""
    try:
        transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=trust_remote_code)
    except (*_BAD_FILES, StrictDataclassError) as error:
        raise ModelNotFound(
            f"transformers {transformers.__version__} does not take the config {str(folder / CONFIG)!r} "
            f"({in_brief(error)}); get it again."
        ) from error


def _load_tokenizer(folder: Path, *, trust_remote_code: bool) -> Any:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise ModelNotFound(
            f"The tokenizer in {str(folder)!r} cannot be loaded ({in_brief(error)}); get its files again."
        ) from error
    if not tokenizer.is_fast:
        raise UnsupportedModel(
            f"The tokenizer in {str(folder)!r} ({type(tokenizer).__name__}) does not tell which characters a token "
            "stands for; give a checkpoint with a fast tokenizer (tokenizer.json)."
        )
    return tokenizer


def _load_processor(folder: Path) -> Any:
    try:
        return transformers.AutoImageProcessor.from_pretrained(str(folder), local_files_only=True)
    except _BAD_FILES as error:
        raise ModelNotFound(
            f"The image processor in {str(folder)!r} cannot be loaded ({in_brief(error)}); a model that looks at "
            "images comes with a preprocessor_config.json."
        ) from error


def _load_model(folder: Path, reading: Reading, *, dtype: Any, device_map: Any, trust_remote_code: bool) -> Any:
    try:
        config = read_config(folder)
        known = config.get("model_type") in transformers.CONFIG_MAPPING
        made_by = (choose_class(config, reading) if known else None) or transformers.AutoModelForCausalLM
        model, report = made_by.from_pretrained(
            str(folder),
            dtype=dtype,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # so that the report names them; they are an error all the same
            output_loading_info=True,
        )
    except torch.OutOfMemoryError as error:
        raise ModelNotFound(
            f"The model in {str(folder)!r} does not fit into the device's memory; give --dtype bfloat16, "
            "--device cpu, or --device-map auto."
        ) from error
    except (*_BAD_FILES, SafetensorError, StrictDataclassError) as error:
        raise ModelNotFound(
            f"transformers {transformers.__version__} cannot load the model in {str(folder)!r} "
            f"({type(error).__name__}: {in_brief(error)})."
        ) from error
    _check_report(folder, report)
    return model


def _check_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Raise where weights were not in the files: transformers then fills them with random numbers."""
    if missing := sorted(report["missing_keys"]):
        raise ModelNotFound(
            f"The weights in {str(folder)!r} are not those of its config.json: {len(missing)} are missing, "
            f"the first {_some(missing)}; get the checkpoint again."
        )
    if mismatched := sorted((str(name), tuple(found), tuple(due)) for name, found, due in report["mismatched_keys"]):
        name, found, due = mismatched[0]
        raise ModelNotFound(
            f"The weights in {str(folder)!r} are not those of its config.json: {len(mismatched)} have another shape, "
            f"the first {name!r}, {found} instead of {due}; get the checkpoint again."
        )
    if unused := sorted(report["unexpected_keys"]):
        logger.warning("The model in %s leaves %d weights unused, the first %s.", folder, len(unused), _some(unused))


def _some(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:_SHOWN])
