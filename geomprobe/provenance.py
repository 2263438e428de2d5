"""Where numbers come from: hashes, versions, and what the manifest says of model and corpus."""

import hashlib
import json
import platform
from importlib.metadata import version as installed
from typing import Any

import pandas as pd
import torch

from geomprobe.attention.spec import ModelSpec
from geomprobe.corpus.function_words import function_words, is_approximate
from geomprobe.corpus.windows import Corpus
from geomprobe.labels import WHOLE_MODEL

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "wordfreq")


def version() -> str:
    """The version of geomprobe."""
    return installed("geomprobe")


def versions() -> dict[str, str]:
    """Of Python and of what computes the numbers."""
    return {"python": platform.python_version(), **{name: installed(name) for name in _PACKAGES}}


def fingerprint(settings: dict[str, Any]) -> str:
    """The sha256 of settings, version and schema, in hex."""
    text = json.dumps({"geomprobe": version(), **settings}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_of_weights(model: torch.nn.Module) -> str:
    """The sha256 of a model's parameters and buffers, by name; for a model that came from no file."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def of_model(model: Any, spec: ModelSpec) -> dict[str, Any]:
    """What the manifest says of a model, beside where it came from."""
    return {
        "family": model.config.model_type,
        "dtype": str(model.dtype).removeprefix("torch."),
        "kernel": model.config._attn_implementation,
        "device": str(next(model.parameters()).device),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "layers": int(getattr(model.config.get_text_config(), "num_hidden_layers", spec.n_layers)),
        "anatomy": [layer.described() for layer in spec.layers],
        "skipped": [{"module": module, "reason": reason} for module, reason in spec.skipped],
    }


def of_corpus(corpus: Corpus) -> dict[str, Any]:
    """What the manifest says of a corpus."""
    starts = zip(corpus.document, corpus.token_start, corpus.char_start, corpus.char_end, strict=True)
    names = ("document", "token_start", "char_start", "char_end")
    return {
        "name": corpus.name,
        "kind": "text" if corpus.of_text else "images",
        "sha256": corpus.sha256,
        "tokens_sha256": corpus.tokens_sha256,
        "language": corpus.language,
        **_of_function_words(corpus),
        "window": corpus.window,
        "n_windows": corpus.n_windows,
        "n_tokens": corpus.n_tokens,
        "n_documents": len(corpus.document_names),
        "bos": corpus.bos,
        "documents": list(corpus.document_names),
        "windows": [dict(zip(names, map(int, values), strict=True)) for values in starts],
    }


def _of_function_words(corpus: Corpus) -> dict[str, Any]:
    if not corpus.of_text:
        return {"function_words": "", "n_function_words": 0}
    source = "approximate" if is_approximate(corpus.language) else "list"
    return {"function_words": source, "n_function_words": len(function_words(corpus.language))}


def of_parity(table: pd.DataFrame, n_tokens: int) -> dict[str, Any]:
    """The verdict of the self-check: the worst of all layers."""
    layers = table[table["layer"] != WHOLE_MODEL]
    whole = table[table["layer"] == WHOLE_MODEL].iloc[0]
    attention = layers["max_abs_attention"].max()
    return {
        "ok": bool(table["ok"].all()),
        "tolerance": float(layers["tolerance"].max()),
        "max_abs_attention": None if pd.isna(attention) else float(attention),
        "max_abs_output": float(whole["max_abs_output"]),
        "max_abs_mixed": float(layers["max_abs_output"].max()),
        "n_tokens": n_tokens,
    }
