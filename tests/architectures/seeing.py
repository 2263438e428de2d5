"""The exceptions among types that see: images alone, or images and text."""

from functools import partial
from typing import Any

from tests.architectures import images
from tests.architectures.images import GRID
from tests.architectures.mixed import Media, mixed_inputs, nothing
from tests.architectures.sizes import IMAGE
from tests.architectures.special import CROSSING, Special, for_types, inside

_TIMM = "its images go through timm, which this project does not install"


def _see(how: Media, **more: Any) -> Any:
    """Inputs whose images are made another way."""
    return partial(mixed_inputs, see=how, **more)


def _canvas(model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Any]:
    """Text before, and what is to be written, none of which is padding."""
    inputs = mixed_inputs(model, config, seed, padded=padded)
    inputs.pop("decoder_attention_mask", None)
    return inputs


def _sections(*sections: int, **more: Any) -> dict[str, Any]:
    """Pairs of a rotation shared out among time, height and width."""
    return {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": list(sections),
            **more,
        }
    }


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
    **for_types("beit", "data2vec-vision", fields={"use_relative_position_bias": True}),
    **for_types("sam_vision_model", "sam_hq_vision_model", fields={"window_size": 4}),
    "sam3_vit_model": Special({"window_size": 3}),
    "vitdet": Special({"window_size": 3, "window_block_indices": [0]}),
    # Half of what comes in goes through at every step; without a gain nothing would be left at the end.
    **for_types("mobilevit", "mobilevitv2", "pp_lcnet", around={"weight": 1.5}),
    "cvt": Special({"depth": [1, 2, 3], "embed_dim": [64, 128, 128], "num_heads": [4, 8, 8]}),
    "bit": Special({"num_groups": 8}),
    **for_types(
        "qwen2_5_vl_vision",
        "exaone4_5_vision",
        "qwen2_5_omni_vision_encoder",
        fields={"window_size": 16},  # two patches by two
    ),
    "gemma4_vision": Special(inputs=_see(images.placed)),
    "inkling2_vision": Special(inputs=_see(images.merged)),
    "kimi_k25_vision": Special(inputs=_see(images.patches)),
    **for_types("muse_glimmer_vision", "muse_spark_vision", fields={"pos_emb_height": 2, "pos_emb_width": 2}),
    **for_types("minicpm_ocr_vision", "minicpmv4_7_vision", inputs=_see(images.shaped)),
    "depth_pro": Special(
        {
            "patch_size": IMAGE,
            "intermediate_hook_ids": [1, 0],
            "intermediate_feature_dims": [64, 64],
            "scaled_images_feature_dims": [64, 64, 64],
        },
        inputs=_see(images.huge),
    ),
    "sam2_hiera_det_model": Special(
        {
            "hidden_size": 32,
            "image_size": [64, 64],
            "window_positional_embedding_background_size": [4, 4],
            "blocks_per_stage": [1, 1, 2, 1],
            "embed_dim_per_stage": [32, 64, 128, 256],
            "num_attention_heads_per_stage": [2, 4, 8, 16],
            "window_size_per_stage": [4, 2, 2, 2],
            "global_attention_blocks": [3],
        }
    ),
    "sam2_vision_model": Special(
        {"backbone_channel_list": [256, 128, 64, 32], "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]]}
    ),
    "perceiver/vision": Special({"num_latents": 16}, inputs=_see(images.lone)),
    "pvt": Special({"sequence_reduction_ratios": [2, 1]}),
    "sapiens2": Special({"num_key_value_heads_per_layer": [4, 2]}),
    "vitpose_backbone": Special({"part_features": 16, "num_experts": 1}),
    "lw_detr_vit": Special({"num_windows": 4}),
    "rf_detr_dinov2": Special({"num_windows": 2}),
    "hgnet_v2": Special({"hidden_sizes": [128, 512]}),
    "efficientnet": Special(
        {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320}, around={"weight": 2.0}
    ),
    "granite_docling_vision": Special({"scale_factor": 3}),
    "hiera": Special({"num_query_pool": 1, "masked_unit_size": [4, 4], "patch_size": [7, 7]}),
    "levit": Special({"patch_size": 16, "down_ops": [["Subsample", 16, 4, 4, 2, 2]]}),
    "shieldgemma2/vision": Special({"yes_token_index": 61, "no_token_index": 62}),
    **for_types("detr", "conditional_detr", "dab-detr", "deformable_detr", "table-transformer", start=_RESNET),
    # the text models of those that see images and text
    **for_types(
        "qwen2_vl_text",
        "qwen2_5_vl_text",
        "qwen2_5_omni_text",
        "qwen3_vl_text",
        "qwen3_vl_moe_text",
        "qwen3_omni_moe_text",
        "glm4v_text",
        "glm_ocr_text",
        "glm_image_text",
        "paddleocr_vl_text",
        "cosmos3_edge_text",
        "hunyuan_vl_text",
        fields=_sections(4, 2, 2),
    ),
    "glm4v_moe_text": Special(_sections(2, 1, 1, partial_rotary_factor=0.5)),
    "ernie4_5_vl_moe_text": Special(_sections(3, 3, 2)),
    "glm5_next_text": Special({"index_kpool": 2, "qk_rope_head_dim": 0, "qk_head_dim": 16}),
    "deepseek_ocr2_text": Special({"mlp_layer_types": ["dense", "sparse"]}),
    # Its eager attention does not repeat keys for the query heads that share them.
    "unlimited_ocr_text": Special({"num_key_value_heads": 4}),
    "step3p5": Special({"sliding_window": 8}),
    "diffusion_gemma_text": Special({"global_head_dim": 32}),
    # images and text
    **for_types("fast_vlm", "perception_lm", why=_TIMM),
    "paddleocr_vl": Special(inputs=_see(images.patches)),
    **for_types(
        "qwen2_5_omni_thinker",
        "qwen3_omni_moe_thinker",
        fields={"vision_start_token_id": 9},
        inputs=partial(mixed_inputs, hear=nothing),
    ),
    **for_types("idefics2", "idefics3", "smolvlm", inputs=_see(images.several)),
    **for_types("llava_next", "llava_next_video", "llava_onevision", fields=_PIECES, inputs=_see(images.cut)),
    "granite4_vision": Special(
        {**_PIECES, "deepstack_layer_map": [[-1, 0]], "spatial_target_layers": [1], "downsample_rate": "1/2"},
        inputs=_see(images.cut, rows=30),
    ),
    "granite_docling": Special({"vision_config.scale_factor": 3, "scale_factor": 3}, inputs=_see(images.tiles)),
    "kimi_k25": Special(inputs=_see(images.patches)),
    **for_types("inkling2/multimodal", "inkling2_loop/multimodal", inputs=_see(images.merged)),
    **for_types("muse_glimmer", "muse_spark", fields={"out_hidden_size": _MERGED}),
    **for_types("minicpm_ocr", "minicpmv4_6", "minicpmv4_7", fields={"image_token_id": 9}, inputs=_see(images.shaped)),
    "llava": Special(inputs=_see(images.lone)),
    "vipllava": Special({"vision_feature_layers": [-1, -2]}),
    "llama4/multimodal": Special(
        why="transformers 5.24 asks the text model's output for image_outputs, which it does not have, and fails"
    ),
    "aria": Special({"projector_patch_to_query_dict": {36: 4}}),
    "nemotron_h_omni": Special(
        {"vision_config.video_temporal_patch_size": 2, "image_token_id": 9},
        inputs=_see(images.sized, hear=nothing),
    ),
    "align": Special(
        {
            **inside("vision_config", {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320}),
            "projection_dim": 80,
        }
    ),
    "deepseek_ocr2": Special({"vision_config.sam_config.downsample_channels": [64, 64]}),
    "unlimited_ocr": Special({"vision_config.sam_config.downsample_channels": [64, 64]}),
    "deepseek_vl_hybrid": Special(inputs=_see(images.sharp)),
    "pp_formulanet": Special({"vision_config.post_conv_in_channels": 64, "vision_config.post_conv_mid_channels": 64}),
    **for_types("blip-2", "instructblip", fields={"image_token_index": 9}, inputs=partial(mixed_inputs, rows=6)),
    "instructblipvideo": Special({"video_token_index": 9, "image_token_index": 9}, inputs=_see(images.film, rows=12)),
    "fuyu/multimodal": Special(inputs=_see(images.flat)),
    "gemma4/multimodal": Special(start={"vision_config": {}}, inputs=_see(images.placed, hear=nothing)),
    "gemma4_unified/multimodal": Special(start={"vision_config": {}}, inputs=_see(images.placed, hear=nothing)),
    "chameleon": Special(
        {
            "vocabulary_map": {"<image>": 9} | {f"IMGIMG{'ABCDEFGH'[code]}Z": 20 + code for code in range(8)},
            "vq_config.num_embeddings": 8,
            "image_token_id": 9,
        }
    ),
    "emu3/multimodal": Special(
        {
            "vocabulary_map": {"<image>": 9, "<|extra_200|>": 10}
            | {f"<|visual token {code:06}|>": 20 + code for code in range(8)},
            "vq_config.codebook_size": 8,
            "vq_config.hidden_size": 64,
        }
    ),
    "apertus1p5": Special(
        {
            "vision_config.codebook_size": 16,
            "audio_config.codebook_size": 8,
            "audio_config.codebook_dim": 64,
            "image_token_offset": 40,
            "audio_token_offset": 56,
        },
        inputs=partial(mixed_inputs, hear=nothing),
    ),
    "diffusion_gemma": Special(inputs=_canvas),
    "idefics": Special(inputs=_see(images.attended)),
    "inkling_mm_model": Special(inputs=_see(images.blocks)),
    "kosmos-2": Special({"image_token_id": 9}, inputs=partial(mixed_inputs, rows=6)),
    "kosmos-2.5": Special({"image_token_id": 9}, inputs=_see(images.numbered, rows=6)),
    "pix2struct": Special(inputs=_see(images.numbered)),
    "mllama/multimodal": Special(
        {
            **inside("text_config", {"num_hidden_layers": 3, "cross_attention_layers": [1]}),
            **inside("vision_config", {"intermediate_layers_indices": [0, 1], "vision_output_dim": 192}),
        },
        inputs=_see(images.tiled),
    ),
    "vision-encoder-decoder": Special(CROSSING),
    "molmo2": Special({"image_patch_id": 9, "adapter_config.vision_feature_layer": [1, 0]}, inputs=_see(images.pooled)),
    "pi0": Special({"image_token_id": 9, "vlm_config.image_token_id": 9}, inputs=_see(images.steered, rows=GRID**2)),
    "evolla": Special(why="it reads proteins, and the auto class for images and text does not know its configuration"),
}
