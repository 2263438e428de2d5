"""GGUF files to folders that transformers loads: safetensors, config, tokenizer."""

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from geomprobe.errors import ModelNotFound, UnsupportedModel
from geomprobe.models.header import Header, read_header
from geomprobe.models.quiet import quiet_transformers
from geomprobe.models.wording import in_brief


def convert(gguf: Path, out: Path) -> None:
    """Write a GGUF file's model and tokenizer as a safetensors folder, keeping what the file holds.

    Matrices of a pure float16 or bfloat16 file stay so; quantised ones are unpacked to float32.

    Parameters
    ----------
    gguf : Path
        The file.
    out : Path
        An existing, empty folder.

    Raises
    ------
    ModelNotFound
        Where the file is damaged, holds no whole model, or the folder cannot be written.
    UnsupportedModel
        Where transformers cannot read a file of this architecture.
    """
    header = read_header(gguf)
    with quiet_transformers(), redirect_stderr(io.StringIO()):  # a bar of the reader obeys no setting
        model, tokenizer = _read(gguf, header)
        try:
            _as_stored(model, header).save_pretrained(out)
            tokenizer.save_pretrained(out)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise ModelNotFound(
                f"The weights of {gguf.name!r} cannot be written ({in_brief(error)}); free some space, or "
                "set GEOMPROBE_CACHE to a folder on another disk."
            ) from error


def _read(gguf: Path, header: Header) -> tuple[Any, Any]:
    """Model (float32) and tokenizer by transformers' reader."""
    unpacked: dict[str, Any] = {}
    if hasattr(transformers, "GgufConfig"):  # else a machine with GPU kernels keeps the blocks packed
        unpacked["quantization_config"] = transformers.GgufConfig(dequantize=True)
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name, "local_files_only": True}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            **where, **unpacked, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:
        # The header is sound, so it is the reader that lacks something; it says so with errors of every type.
        raise UnsupportedModel(
            f"transformers {transformers.__version__} cannot read the GGUF file {gguf.name!r} of architecture "
            f"{header.architecture!r} ({in_brief(error)}); give a safetensors checkpoint of the model instead."
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelNotFound(
            f"The GGUF file {gguf.name!r} lacks {len(missing)} weights of its model, the first {missing[0]!r}; "
            "give a safetensors checkpoint of the model instead."
        )
    if header.scales_rope and _rope_types(model.config.to_dict().get("rope_parameters")) <= {"default"}:
        raise UnsupportedModel(
            f"The GGUF file {gguf.name!r} rescales its rotary frequencies, and transformers "
            f"{transformers.__version__} drops that when it reads {header.architecture!r} from GGUF; "
            "give a safetensors checkpoint of the model instead."
        )
    return model, tokenizer


def _rope_types(parameters: Any) -> set[str]:
    """Every rope_type in a config's rotary parameters, which some families keep by kind of layer."""
    if not isinstance(parameters, dict):
        return set()
    own = {parameters["rope_type"]} if "rope_type" in parameters else set()
    return own.union(*(_rope_types(value) for value in parameters.values()))


def _as_stored(model: Any, header: Header) -> Any:
    """The same model, savable and in the file's own dtype.

    save_pretrained refuses a model that came out of a GGUF file, so its weights move into a fresh one.
    """
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    half = getattr(torch, header.matrix_dtype)
    weights = {
        name: weight.to(half) if weight.ndim > 1 or header.has_half_vectors else weight
        for name, weight in model.state_dict().items()
    }
    with torch.device("meta"):  # no second copy of the weights
        fresh = type(model)(config)
    fresh.load_state_dict(weights, assign=True)
    fresh.tie_weights()
    return fresh
