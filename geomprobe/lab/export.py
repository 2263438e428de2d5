"""Checkpoints that transformers loads without geomprobe: an arm written as the architecture that does the same."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from geomprobe.errors import InvalidParameter, RunError
from geomprobe.lab.arms import ARMS, IN_WORDS, Arm, name_of
from geomprobe.lab.model import EPS, LabForCausalLM
from geomprobe.models.quiet import quiet_transformers


@dataclass(frozen=True)
class _Form:
    """An architecture of transformers, and what it calls the norms of queries and keys."""

    model_type: str
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"


_FORMS: Final[dict[Arm, _Form]] = {
    ARMS["A0"]: _Form("llama"),
    ARMS["A1"]: _Form("qwen3"),
    ARMS["A3"]: _Form("hunyuan_v1_dense", "query_layernorm", "key_layernorm"),
    ARMS["A7"]: _Form("qwen3"),
}
# Beginnings of the names of a tokenizer's files: its folder may be a checkpoint, which has others.
_OF_TOKENIZERS: Final = ("tokenizer", "special_tokens_map", "added_tokens", "vocab", "merges", "chat_template")


def exported(model: LabForCausalLM) -> PreTrainedModel:
    """The same function as a model of transformers: A0 as Llama, A1 and A7 as Qwen3, A3 as Hunyuan v1 (dense).

    Parameters
    ----------
    model : LabForCausalLM
        It is left as it is.

    Returns
    -------
    PreTrainedModel
        On the CPU, in the model's dtype, in eval mode.

    Raises
    ------
    InvalidParameter
        For an arm that transformers has no model like, or widths that its Llama refuses.
    """
    form = _form_of(model)
    config = model.config
    described = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rms_norm_eps": EPS,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
    }
    with torch.random.fork_rng(devices=[]), quiet_transformers():  # its first weights are drawn, and then replaced
        made = AutoModelForCausalLM.from_config(AutoConfig.for_model(form.model_type, **described))
    made = made.to(model.dtype).eval()
    made.load_state_dict(_weights(model, form))
    return made


def export(
    model: LabForCausalLM, folder: Path, *, tokenizer: Path | None = None, dtype: torch.dtype = torch.float32
) -> str:
    """Write a checkpoint that transformers loads without geomprobe; the folder is there whole or not at all.

    Parameters
    ----------
    model : LabForCausalLM
    folder : Path
        Is made; may be there if it is empty.
    tokenizer : Path, optional
        Folder with the files of a tokenizer, which are copied; it may hold a checkpoint too.
    dtype : torch.dtype
        Of the weights in the file.

    Returns
    -------
    str
        The model type of transformers: llama, qwen3 or hunyuan_v1_dense.

    Raises
    ------
    InvalidParameter
        As `exported`; or where `tokenizer` holds no tokenizer.
    RunError
        Where something is in the way, or the folder cannot be made.
    """
    _free(folder)
    files = _files_of(tokenizer)
    made = exported(model).to(dtype)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
            part = Path(beside) / "whole"
            with quiet_transformers():
                made.save_pretrained(str(part))
            for file in files:
                shutil.copy2(file, part / file.name)
            part.rename(folder)
    except OSError as error:
        raise RunError(f"Cannot write the folder {str(folder)!r}: {os.strerror(error.errno or 0)}.") from error
    return str(made.config.model_type)


def _form_of(model: LabForCausalLM) -> _Form:
    """The architecture for a model's arm.

    Raises
    ------
    InvalidParameter
        Where there is none.
    """
    config = model.config
    form = _FORMS.get(config.arm)
    if form is None:
        name = name_of(config.arm)
        meaning = f" ({IN_WORDS[name]})" if name in IN_WORDS else ""
        known = ", ".join(name_of(arm) for arm in _FORMS)
        raise InvalidParameter(
            f"The arm must be one of {known} to be exported, as no others are written for transformers; "
            f"got {name}{meaning}, which geomprobe alone loads."
        )
    if form.model_type == "llama" and config.hidden_size % config.num_attention_heads:
        raise InvalidParameter(
            f"hidden must be a multiple of heads, {config.num_attention_heads}, for Llama to load it; "
            f"got {config.hidden_size}."
        )
    return form


def _weights(model: LabForCausalLM, form: _Form) -> dict[str, Tensor]:
    """The weights by the names of the architecture."""
    weights = {}
    for name, x in model.state_dict().items():
        if model.config.scale == "one" and name.endswith("q_norm.weight"):
            # These architectures divide by √head_dim, the arm does not: the gain of queries makes up for it.
            x = x.double() * model.config.head_dim**0.5
        weights[name.replace("q_norm", form.q_norm).replace("k_norm", form.k_norm)] = x
    return weights


def _free(folder: Path) -> None:
    """Raise RunError where something is in the way."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{str(folder)!r} is a file; an export needs a folder.")
    if folder.is_dir() and any(folder.iterdir()):
        raise RunError(f"{str(folder)!r} is not empty; give another folder for the export.")


def _files_of(tokenizer: Path | None) -> list[Path]:
    """The files of a tokenizer, without others that lie beside them.

    Raises
    ------
    InvalidParameter
        Where there are none.
    """
    if tokenizer is None:
        return []
    there = sorted(tokenizer.iterdir()) if tokenizer.is_dir() else []
    files = [file for file in there if file.name.startswith(_OF_TOKENIZERS) and file.is_file()]
    if not files:
        raise InvalidParameter(f"tokenizer must be a folder with the files of one; got {str(tokenizer)!r}.")
    return files
