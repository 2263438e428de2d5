"""A checkpoint folder, looked at before anything heavy: config, weights, tokenizer files, all there and whole."""

import json
from pathlib import Path
from typing import Any, Final

from geomprobe.errors import ModelNotFound
from geomprobe.models.wording import in_brief

CONFIG: Final = "config.json"
_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
_TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "*.tiktoken",
)


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json says.

    Raises
    ------
    ModelNotFound
        Where there is none, or it is not a JSON object.
    """
    file = folder / CONFIG
    if not file.is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        hint = (
            f"give the GGUF file in it instead: {str(ggufs[0])!r}"
            if ggufs
            else "give the folder that holds config.json, weights and tokenizer, as save_pretrained writes them"
        )
        raise ModelNotFound(f"The folder {str(folder)!r} has no {CONFIG}; {hint}.")
    return _read_object(file)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a checkpoint, in the order of their names, each with a sound header.

    Raises
    ------
    ModelNotFound
        Where there are none, one is missing, or one is damaged.
    """
    if (folder / _SINGLE).exists():
        files: tuple[Path, ...] = (folder / _SINGLE,)
    elif (folder / _INDEX).exists():
        shards = _read_object(folder / _INDEX).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ModelNotFound(f"{str(folder / _INDEX)!r} lists no weights; get the checkpoint again.")
        files = tuple(folder / name for name in sorted(set(shards.values())))
    else:
        pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
        found = f"it has {pickles[0]}, but pickled weights are never loaded" if pickles else "it has no weights at all"
        raise ModelNotFound(
            f"The folder {str(folder)!r} has no {_SINGLE}: {found}; give one that save_pretrained wrote as safetensors."
        )
    for file in files:
        if not file.exists():
            raise ModelNotFound(f"The weights in {str(folder)!r} are incomplete: {file.name} is missing; get it again.")
        _check_safetensors(file)
    return files


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder holds a vocabulary."""
    return any(next(folder.glob(pattern), None) is not None for pattern in _TOKENIZER_FILES)


def _check_safetensors(file: Path) -> None:
    """Raise where the header is not one, or the file is shorter or longer than its header says."""
    from safetensors import SafetensorError, safe_open  # loads numpy: only where weights are looked at

    try:
        with safe_open(file, framework="numpy"):
            pass
    except SafetensorError as error:
        raise ModelNotFound(
            f"The weights {str(file)!r} are damaged or unfinished ({in_brief(error)}); get them again."
        ) from error
    except OSError as error:
        raise ModelNotFound(f"The weights {str(file)!r} cannot be read ({error.strerror or error}).") from error


def _read_object(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelNotFound(f"{str(file)!r} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise ModelNotFound(f"{str(file)!r} is not valid JSON ({error}); get the checkpoint again.") from error
    if not isinstance(content, dict):
        raise ModelNotFound(f"{str(file)!r} is not a JSON object; get the checkpoint again.")
    return content
