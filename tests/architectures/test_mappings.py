"""Every model type beside the causal ones, as a tiny model: what is captured is what the model computes."""

import pytest

from tests.architectures.building import MAPPINGS, types_of
from tests.architectures.verifying import verify

pytestmark = [pytest.mark.architectures, pytest.mark.filterwarnings("ignore:Using padding=.same.:UserWarning")]
# "off by inf": under eager attention and without a mask, the model itself hides every key from every query.
# What is not verified, by mapping, and in what words. A type that leaves this table is a gain.
NO_ATTENTION = "has no attention that geomprobe can see"
OWN_CODE = "in code of its own"
EXPECTED: dict[str, dict[str, str]] = {
    "masked": {
        "fnet": NO_ATTENTION,
        "funnel": OWN_CODE,
        "ibert": OWN_CODE,
        "longformer": OWN_CODE,
        "mra": NO_ATTENTION,
        "reformer": NO_ATTENTION,
        "xlnet": OWN_CODE,
        "yoso": NO_ATTENTION,
    },
    "seq2seq": {
        "fsmt": OWN_CODE,
        "longt5": OWN_CODE,
        "pegasus_x": OWN_CODE,
        "prophetnet": OWN_CODE,
    },
    "vision": {
        "bit": NO_ATTENTION,
        "convnext": NO_ATTENTION,
        "convnextv2": NO_ATTENTION,
        "cvt": OWN_CODE,
        "dinov3_convnext": NO_ATTENTION,
        "efficientnet": NO_ATTENTION,
        "focalnet": NO_ATTENTION,
        "hgnet_v2": NO_ATTENTION,
        "hiera": OWN_CODE,
        "mobilenet_v1": NO_ATTENTION,
        "mobilenet_v2": NO_ATTENTION,
        "mobilevitv2": OWN_CODE,
        "poolformer": NO_ATTENTION,
        "pp_lcnet": NO_ATTENTION,
        "pp_lcnet_v3": NO_ATTENTION,
        "pp_lcnet_v4": NO_ATTENTION,
        "regnet": NO_ATTENTION,
        "resnet": NO_ATTENTION,
        "rt_detr_resnet": NO_ATTENTION,
        "swiftformer": OWN_CODE,
        "swin2sr": OWN_CODE,
        "swinv2": OWN_CODE,
        "textnet": NO_ATTENTION,
        "uvdoc_backbone": NO_ATTENTION,
    },
    "audio": {
        "gemma3n_audio": OWN_CODE,
        "gemma4_audio": OWN_CODE,
        "muse_spark_audio": NO_ATTENTION,
        "nemotron_asr_streaming_encoder": "off by inf",
        "sew-d": NO_ATTENTION,
        "vibevoice_acoustic_tokenizer_encoder": NO_ATTENTION,
        "wavlm": NO_ATTENTION,
    },
}
# Softmaxes over four axes that are not captured beside attention that is, and what they are.
MISSED = {
    "deformable_detr": 4,  # sampling weights without queries and keys
    "led": 2,  # sliding chunks, which capture names as unread
    "glm5_next": 5,  # mixing of streams, not of tokens
    "glm5_next_text": 5,
    "sam2_vision_model": 5,  # products over heads that the model throws away
}
OTHERS = [(mapping, model_type) for mapping in MAPPINGS if mapping != "causal" for model_type in types_of(mapping)]


@pytest.mark.parametrize(("mapping", "model_type"), OTHERS)
def test_attention_is_the_models_own(mapping, model_type):
    outcome = verify(model_type, mapping)
    words = EXPECTED.get(mapping, {}).get(model_type)
    assert outcome.missed == MISSED.get(model_type, 0), outcome
    if words is None:
        assert outcome.state in ("verified", "cannot_build"), outcome
    else:
        assert outcome.state != "verified", outcome
        assert words in outcome.why
