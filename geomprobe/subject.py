"""The model under study, and where it came from."""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from geomprobe import provenance
from geomprobe.errors import InvalidParameter, UnsupportedModel
from geomprobe.lab.folder import WHOLE
from geomprobe.lab.model import register
from geomprobe.models.calling import seeing_part
from geomprobe.models.classes import Reading
from geomprobe.models.load import load
from geomprobe.models.quiet import quiet_hub
from geomprobe.models.resolve import resolve
from geomprobe.progress import Reporter
from geomprobe.run.naming import slug


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with what it reads by.

    Attributes
    ----------
    model : transformers model
        Of one that reads images beside text, the part that looks at them.
    reader : tokenizer or image processor
    name, slug : str
        For people, and for the names of folders.
    about : dict
        What the manifest says of where it came from.
    """

    model: Any
    reader: Any
    name: str
    slug: str
    about: dict[str, Any]


def make_subject(
    model: Any, reader: Any, reading: Reading, *, revision: str | None, loading: dict[str, Any], reporter: Reporter
) -> Subject:
    """Load a checkpoint by name, or take a model that is loaded already.

    Parameters
    ----------
    model : str, Path or transformers model
    reader : tokenizer, image processor or None
        Of a loaded model.
    reading : {"text", "images"}
    revision : str or None
    loading : dict
        What `load` takes.
    reporter : Reporter

    Raises
    ------
    GeomprobeError
        Where it cannot be had, or does not read what it shall.
    """
    by = "tokenizer" if reading == "text" else "processor"
    if isinstance(model, str | Path):
        if reader is not None:
            raise InvalidParameter(f"{by} goes with a loaded model; a checkpoint brings its own.")
        register()
        with quiet_hub() if reporter.quiet else nullcontext():
            found = resolve(
                str(model), revision=revision, trust_remote_code=loading["trust_remote_code"], say=reporter.say
            )
        loaded = load(found, reading=reading, **loading)
        about = {
            "id": found.id,
            "source": found.source,
            "revision": found.revision,
            "sha256": found.sha256,
            **training_of(found.path),
        }
        return Subject(
            _reading(loaded.model, reading), loaded.tokenizer or loaded.processor, found.name, found.slug, about
        )
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        raise InvalidParameter(f"model must be a name, a path or a transformers model; got {type(model).__name__}.")
    if reader is None:
        raise InvalidParameter(f"A loaded model needs its {by}: analyze(model, {by}=…).")
    if reading == "text" and not getattr(reader, "is_fast", False):
        raise UnsupportedModel(
            f"{type(reader).__name__} does not say which characters a token covers; give a fast tokenizer."
        )
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    about = {"id": name, "source": "object", "revision": None, "sha256": provenance.sha256_of_weights(model)}
    return Subject(_reading(model, reading), reader, name, slug(name), about)


def training_of(folder: Path) -> dict[str, Any]:
    """What a checkpoint of `geomprobe train` says of itself: `training`, whose `pair` is the same for twins."""
    try:
        note = json.loads((folder / WHOLE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(note, dict) or "pair" not in note:
        return {}
    return {"training": {name: note.get(name) for name in ("arm", "pair", "fingerprint", "step", "tokens")}}


def _reading(model: Any, reading: Reading) -> Any:
    return seeing_part(model) if reading == "images" else model
