"""Build a tiny model with random weights of any model type that transformers has.

``python -m tests.architectures.building causal`` builds and runs every type of a mapping and says how each went;
types may follow. A further mapping is a further Task; what is particular to a type goes into the table of exceptions.
"""

import copy
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoBackbone,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    AutoModelForVisualQuestionAnswering,
    AutoModelForZeroShotImageClassification,
)
from transformers.models.auto import modeling_auto

from tests.architectures.exceptions import EXCEPTIONS
from tests.architectures.mixed import mixed_inputs
from tests.architectures.shrinking import Draft, draft
from tests.architectures.special import Special
from tests.architectures.text import call_kwargs, text_inputs
from tests.architectures.weights import randomise


class CannotBuild(Exception):
    """A model type that no tiny model can be built of here."""

    def __init__(self, model_type: str, why: str):
        super().__init__(f"{model_type}: {why}")
        self.model_type = model_type
        self.why = why


@dataclass(frozen=True)
class Task:
    """Auto mappings of transformers that are asked the same way, and how their models are called.

    Attributes
    ----------
    autos : tuple of (Mapping, type)
        Model types with the class of each, and what makes a model of a configuration; the first that has a type counts.
    inputs : Callable
        ``inputs(model, config, seed, padded)`` gives the tensors of a call; a type's own, in the table of exceptions,
        goes first.
    fields : Mapping
        Set in every configuration that has them; the table of exceptions goes first.
    """

    autos: tuple[tuple[Mapping[str, Any], Any], ...]
    inputs: Callable[..., dict[str, Any]] = text_inputs
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, Any]:
        """Model types, and the class of each."""
        return {model_type: name for names, _ in reversed(self.autos) for model_type, name in names.items()}

    def auto(self, model_type: str) -> Any:
        """What makes a model of a type's configuration."""
        return next(auto for names, auto in self.autos if model_type in names)


def _base(*, endings: tuple[str, ...], names: Iterable[str] = (), but: Iterable[str] = ()) -> dict[str, Any]:
    """Types of the base mapping by the endings of their names, and others by name."""
    base, named = modeling_auto.MODEL_MAPPING_NAMES, set(names)
    return {name: base[name] for name in base if (name in named or name.endswith(endings)) and name not in set(but)}


_SEE = set(modeling_auto.MODEL_FOR_IMAGE_MAPPING_NAMES) | set(modeling_auto.MODEL_FOR_BACKBONE_MAPPING_NAMES)
_SEE_AND_READ = {*modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, "tipsv2"}
_HEAR = modeling_auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES
_READ = ("bros", "canine", "dpr", "lilt", "markuplm", "openai_privacy_filter", "splinter")
_OTHERWISE = {*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "t5gemma2_encoder", "pe_video_encoder"}
MAPPINGS: dict[str, Task] = {
    "causal": Task(
        ((modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, AutoModelForCausalLM),),
        fields={"is_decoder": True, "causal": True},
    ),
    "masked": Task(((modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, AutoModelForMaskedLM),)),
    "seq2seq": Task(
        (
            (modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, AutoModelForSeq2SeqLM),
            (modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, AutoModelForSpeechSeq2Seq),
        ),
        inputs=mixed_inputs,
    ),
    "vision": Task(
        (
            (modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, AutoModelForImageClassification),
            (_base(endings=("_vision", "_vision_model"), names=_SEE, but=_SEE_AND_READ), AutoModel),
            (modeling_auto.MODEL_FOR_BACKBONE_MAPPING_NAMES, AutoBackbone),
        ),
        inputs=mixed_inputs,
    ),
    "multimodal": Task(
        (
            (modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, AutoModelForImageTextToText),
            (modeling_auto.MODEL_FOR_VISUAL_QUESTION_ANSWERING_MAPPING_NAMES, AutoModelForVisualQuestionAnswering),
            (
                modeling_auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES,
                AutoModelForZeroShotImageClassification,
            ),
        ),
        inputs=mixed_inputs,
    ),
    "audio": Task(
        ((_base(endings=("_audio", "_encoder", "_ctc"), names=_HEAR, but=_OTHERWISE), AutoModel),),
        inputs=mixed_inputs,
    ),
    "text": Task(
        ((_base(endings=("_text", "_text_model"), names=_READ, but=_OTHERWISE), AutoModel),),
        inputs=mixed_inputs,
    ),
}


@dataclass(frozen=True)
class Built:
    """A tiny model, and what to call it with.

    Attributes
    ----------
    model : PreTrainedModel
        In eval mode, float32, on the kernel that it chooses by itself.
    config : PreTrainedConfig
        The model's own.
    inputs : dict
        Two sequences, the second padded on the left where the model takes an attention mask.
    plain : dict
        The same without padding.
    call_kwargs : dict
        Goes with either, as in ``model(**inputs, **call_kwargs)``.
    """

    model: Any
    config: Any
    inputs: dict[str, Any]
    plain: dict[str, Any]
    call_kwargs: dict[str, Any]


def types_of(mapping: str) -> list[str]:
    """Every model type of a mapping, sorted."""
    return sorted(MAPPINGS[mapping].names)


def build(model_type: str, mapping: str = "causal", *, variant: dict[str, Any] | None = None, seed: int = 0) -> Built:
    """A tiny model of a type, its weights drawn anew.

    Parameters
    ----------
    model_type : str
    mapping : str
        One of MAPPINGS.
    variant : dict, optional
        Fields of the configuration, set after everything else. A field that only a part of the configuration has (a
        text model's, say) is set there; a dotted path names a part.
    seed : int
        Of weights and inputs.

    Raises
    ------
    CannotBuild
        Where this type cannot be built here; says why.
    """
    task, special = MAPPINGS[mapping], _special(model_type, mapping)
    if special.why:
        raise CannotBuild(model_type, special.why)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _model(model_type, task, special, variant or {}).float().eval()
    randomise(model, seed=seed, around=special.around)
    config = model.config
    make = special.inputs or task.inputs
    return Built(
        model,
        config,
        make(model, config, seed, padded=True),
        make(model, config, seed, padded=False),
        {name: value for name, value in (call_kwargs(model) | dict(special.call)).items() if value is not None},
    )


def _model(model_type: str, task: Task, special: Special, variant: Mapping[str, Any]) -> Any:
    """The model of a type's small configuration, as its class initialises it."""
    config = _draft(model_type, task, special, variant).make()
    config.architectures = config.architectures or []  # an auto class with a choice looks for a name here
    if special.part:
        return getattr(transformers, task.names[model_type])(getattr(config, special.part))
    return task.auto(model_type).from_config(config)


def _special(model_type: str, mapping: str) -> Special:
    """What the table of exceptions says of a type: for the mapping, else for all of them."""
    return EXCEPTIONS.get(f"{model_type}/{mapping}") or EXCEPTIONS.get(model_type) or Special()


def _parts(whole: Draft) -> Iterator[tuple[Draft, Special]]:
    """The parts of a draft that are of a type with an entry of its own in the table, and the entry."""
    for part in whole.fields.values():
        if isinstance(part, Draft):
            yield from _parts(part)
            if part.kind.model_type in EXCEPTIONS:
                yield part, EXCEPTIONS[part.kind.model_type]


def _draft(model_type: str, task: Task, special: Special, variant: Mapping[str, Any]) -> Draft:
    """The draft of a type's small configuration."""
    result = draft(CONFIG_MAPPING[model_type](**copy.deepcopy(dict(special.start))))
    for name, value in task.fields.items():
        if name in result.known:
            result.set(name, value)
    for part, own in _parts(result):
        for path, value in own.fields.items():
            part.set(path, copy.deepcopy(value))
    for path, value in special.fields.items():
        result.set(path, copy.deepcopy(value))
    for name, value in variant.items():
        result.vary(name, copy.deepcopy(value))
    return result


_MAIN = ("logits", "prediction_logits", "last_hidden_state", "text_embeds")


def run(built: Built, *, padded: bool) -> Tensor:
    """What a model puts out where a token stands, (token, channel): its logits, else its hidden states."""
    inputs = built.inputs if padded else built.plain
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # some draw the patches that they look at
        outputs = built.model(**inputs, **built.call_kwargs)
    main = next((value for name in _MAIN if isinstance(value := getattr(outputs, name, None), Tensor)), None)
    if main is None:
        main = next(_floating(outputs.to_tuple()))
    mask = inputs.get("attention_mask")
    if mask is None or mask.shape[1:] != main.shape[1:2]:
        return main.flatten(0, -2)  # (token, channel)
    # A decoder of audio puts out several rows a sequence.
    return main[mask.bool().repeat_interleave(len(main) // len(mask), 0)]  # (token, channel)


def _floating(values: Iterable[Any]) -> Iterator[Tensor]:
    """The floating tensors among values, and in tuples among them."""
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point():
            yield value
        elif isinstance(value, tuple):
            yield from _floating(value)


def _outcome(model_type: str, mapping: str) -> str:
    """How building a type and running it went, in a few words."""
    try:
        built = build(model_type, mapping)
        plain, once, again = run(built, padded=False), run(built, padded=True), run(built, padded=True)
    except CannotBuild as reason:
        return f"cannot  {reason.why}"
    except Exception as problem:  # noqa: BLE001 – whatever it is, the report goes on to the next type
        last = traceback.extract_tb(problem.__traceback__)[-1]
        words = " ".join(str(problem).split())[:300]
        return f"ERROR  {type(problem).__name__} at {Path(last.filename).name}:{last.lineno}: {words}"
    flaws = {
        "NaN": not torch.isfinite(plain).all(),
        "NaN with padding": not torch.isfinite(once).all(),
        "not deterministic": not torch.equal(once.nan_to_num(), again.nan_to_num()),
    }
    weights = sum(parameter.numel() for parameter in built.model.parameters())
    text = f"{type(built.model).__name__} {weights:,} weights, {built.config._attn_implementation}"
    found = ", ".join(name for name, is_there in flaws.items() if is_there)
    return f"{f'FLAW {found}' if found else 'ok'}  {text}, std {plain.std():.2f}"


def main(mapping: str, model_types: list[str]) -> None:
    """Build and run types of a mapping, and write a line about each."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for model_type in model_types or types_of(mapping):
        start = time.perf_counter()
        outcome = _outcome(model_type, mapping)
        sys.stdout.write(f"{model_type:<28} {time.perf_counter() - start:6.2f} s  {outcome}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
