"""Every causal model type, as a tiny model: what is captured is what the model computes."""

import pytest

from tests.architectures.building import types_of
from tests.architectures.verifying import verify

# What cannot be read, and the words in which that is said. Nothing else may fail.
NO_ATTENTION = "has no attention that geomprobe can see"
OWN_CODE = "computes attention in code of its own"
REFUSED = {
    "falcon_mamba": NO_ATTENTION,
    "mamba": NO_ATTENTION,
    "mamba2": NO_ATTENTION,
    "rwkv": NO_ATTENTION,
    "xlstm": NO_ATTENTION,
    "reformer": NO_ATTENTION,
    "prophetnet": OWN_CODE,
    "xlnet": OWN_CODE,
}
CANNOT_BUILD = {"gemma3n"}
MISSED = {"deepseek_v4": 9}  # softmaxes over four axes that mix streams and not tokens


@pytest.mark.parametrize("model_type", types_of("causal"))
def test_attention_is_the_models_own(model_type):
    outcome = verify(model_type)
    if model_type in CANNOT_BUILD:
        assert outcome.state == "cannot_build", outcome
    elif model_type in REFUSED:
        assert outcome.state == "refused", outcome
        assert REFUSED[model_type] in outcome.why
    else:
        assert outcome.state == "verified", outcome
        assert outcome.products > 0
        assert outcome.missed == MISSED.get(model_type, 0)
        assert outcome.worst <= 1e-5


# Products whose queries or keys cannot be followed to a projection, and why that is so.
PARTLY = {
    "deepseek_v4": "keys of compressed slots",
    "gemma3n_text": "keys of another layer",
    "gemma4": "keys of another layer",
    "gemma4_assistant": "keys of another model",
    "gemma4_text": "keys of another layer",
    "gemma4_unified": "keys of another layer",
    "gemma4_unified_assistant": "keys of another model",
    "gemma4_unified_text": "keys of another layer",
    "inkling2_text": "attention over depth",
    "inkling2_loop_text": "attention over depth",
    "jetmoe": "queries of a mixture of experts",
}


@pytest.mark.parametrize("model_type", [t for t in types_of("causal") if t not in REFUSED and t not in CANNOT_BUILD])
def test_all_stages_are_found(model_type):
    outcome = verify(model_type)
    whole = all(set(outcome.stages[vector]) == {"p+c+s"} for vector in ("q", "k"))
    assert whole != (model_type in PARTLY), outcome.stages
