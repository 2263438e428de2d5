"""The exceptions among types that see: images alone, or images and text."""

from functools import partial
from typing import Any

from tests.architectures import images
from tests.architectures.mixed import Media, mixed_inputs, nothing
from tests.architectures.sizes import IMAGE
from tests.architectures.special import Special, for_types, inside

_TIMM = "its images go through timm, which this project does not install"


def _see(how: Media, **more: Any) -> Any:
    """Inputs whose images are made another way."""
    return partial(mixed_inputs, see=how, **more)


def _sections(*sections: int, **more: Any) -> dict[str, Any]:
    """Pairs of a rotation shared out among time, height and width, in a text model inside."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections), **more}
    return {"text_config.rope_parameters": rope}


_SECTIONS = _sections(4, 2, 2)
# Windows of two patches by two.
_WINDOWS = {"window_size": 16}
_NARROW = {"pos_emb_height": 2, "pos_emb_width": 2}
_PIECES = {"image_grid_pinpoints": [[IMAGE, 2 * IMAGE]]}
# What a merged square of patches holds.
_MERGED = 256
_RESNET = {
    "use_timm_backbone": False,
    "backbone": None,
    "backbone_config": {
        "model_type": "resnet",
        "embedding_size": 16,
        "hidden_sizes": [16, 32],
        "depths": [1, 1],
        "layer_type": "basic",
        "out_features": ["stage1", "stage2"],
    },
}

SEEING: dict[str, Special] = {
    # images alone
    **for_types("timm_backbone", "timm_wrapper", "gemma3n_vision", "edgetam_vision_model", why=_TIMM),
    "dinat": Special(why="its attention comes from natten, which this project does not install"),
    **for_types("swin", "donut-swin", "maskformer-swin", "swin2sr", "swinv2", fields={"window_size": 4}),
    "bit": Special({"num_groups": 8}),
    **for_types("qwen2_5_vl_vision", "exaone4_5_vision", fields=_WINDOWS),
    "gemma4_vision": Special(inputs=_see(images.placed)),
    "inkling2_vision": Special(inputs=_see(images.merged)),
    "kimi_k25_vision": Special(inputs=_see(images.patches)),
    **for_types("muse_glimmer_vision", "muse_spark_vision", fields=_NARROW),
    **for_types("minicpm_ocr_vision", "minicpmv4_7_vision", inputs=_see(images.shaped)),
    "perceiver/vision": Special({"num_latents": 16}, inputs=_see(images.lone)),
    "pvt": Special({"sequence_reduction_ratios": [2, 1]}),
    "sapiens2": Special({"num_key_value_heads_per_layer": [4, 2]}),
    "vitpose_backbone": Special({"part_features": 16}),
    "lw_detr_vit": Special({"num_windows": 4}),
    "rf_detr_dinov2": Special({"num_windows": 2}),
    "hgnet_v2": Special({"hidden_sizes": [128, 512]}),
    "efficientnet": Special({"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320}),
    "granite_docling_vision": Special({"scale_factor": 3}),
    "hiera": Special({"num_query_pool": 1, "masked_unit_size": [4, 4], "patch_size": [7, 7]}),
    "levit": Special({"patch_size": 16, "down_ops": [["Subsample", 16, 4, 4, 2, 2]]}),
    "shieldgemma2/vision": Special({"yes_token_index": 61, "no_token_index": 62}),
    **for_types("detr", "conditional_detr", "dab-detr", "deformable_detr", "table-transformer", start=_RESNET),
    # images and text
    **for_types("fast_vlm", "perception_lm", why=_TIMM),
    **for_types("qwen2_vl", "glm46v", "glm4v", "glm_ocr", "glmga", "paddleocr_vl", fields=_SECTIONS),
    **for_types("qwen3_vl", "qwen3_vl_moe", "cosmos3_omni", "cosmos3_edge", "hunyuan_vl", fields=_SECTIONS),
    "paddleocr_vl": Special(_SECTIONS, inputs=_see(images.one_row)),
    "glm4v_moe": Special(_sections(2, 1, 1, partial_rotary_factor=0.5)),
    "ernie4_5_vl_moe": Special(_sections(3, 3, 2)),
    "qwen2_5_vl": Special({**inside("vision_config", _WINDOWS), **_SECTIONS}),
    "qwen2_5_omni_thinker": Special(
        {**inside("vision_config", _WINDOWS), **_SECTIONS}, inputs=partial(mixed_inputs, hear=nothing)
    ),
    "qwen3_omni_moe_thinker": Special(
        {"vision_start_token_id": 9, **_SECTIONS}, inputs=partial(mixed_inputs, hear=nothing)
    ),
    **for_types("exaone4_5", "hyperclovax_vision_v2", fields=inside("vision_config", _WINDOWS)),
    **for_types("idefics2", "idefics3", "smolvlm", inputs=_see(images.several)),
    **for_types("llava_next", "llava_next_video", "llava_onevision", fields=_PIECES, inputs=_see(images.cut)),
    "granite4_vision": Special(
        {**_PIECES, "deepstack_layer_map": [[-1, 0]], "spatial_target_layers": [1], "downsample_rate": "1/2"},
        inputs=_see(images.cut),
    ),
    "granite_docling": Special({"vision_config.scale_factor": 3, "scale_factor": 3}, inputs=_see(images.tiles)),
    "kimi_k25": Special(inputs=_see(images.patches)),
    **for_types("inkling2/multimodal", "inkling2_loop/multimodal", inputs=_see(images.merged)),
    **for_types("muse_glimmer", "muse_spark", fields={**inside("vision_config", _NARROW), "out_hidden_size": _MERGED}),
    **for_types("minicpm_ocr", "minicpmv4_6", "minicpmv4_7", inputs=_see(images.shaped)),
    "llava": Special(inputs=_see(images.lone)),
    "vipllava": Special({"vision_feature_layers": [-1, -2]}),
    "llama4/multimodal": Special(
        {**inside("text_config", {"moe_layers": [1], "floor_scale": 4}), "vision_config.intermediate_size": _MERGED}
    ),
    "aria": Special({"projector_patch_to_query_dict": {36: 4}}),
    "glm5_next": Special({"text_config.index_kpool": 2}),
    "nemotron_h_omni": Special({"vision_config.video_temporal_patch_size": 2}),
    "align": Special(
        {
            **inside("vision_config", {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320}),
            "projection_dim": 320,
        }
    ),
    "deepseek_ocr2": Special({"text_config.mlp_layer_types": ["dense", "sparse"]}),
    "step3p7": Special({"text_config.sliding_window": 8}),
    "pp_formulanet": Special({}),
    "evolla": Special(why="it reads proteins, and the auto class for images and text does not know its configuration"),
}
