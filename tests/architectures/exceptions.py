"""What the generic shrinking cannot know of single families: the one table of exceptions."""

from functools import partial

from tests.architectures import text
from tests.architectures.hearing import HEARING
from tests.architectures.mixed import boxed_inputs, mixed_inputs, nothing
from tests.architectures.seeing import SEEING
from tests.architectures.special import CROSSING, Special, for_types, inside

# ------------------------------------------------------------------ what several families share
_SLIDING, _FULL = "sliding_attention", "full_attention"
_LINEAR = "linear_attention"
_BOTH_WINDOWS = {"layer_types": [_SLIDING, _FULL], "sliding_window": 8}
# The windows of these are off by default.
_SWITCHED_WINDOWS = {**_BOTH_WINDOWS, "use_sliding_window": True}
_DENSE_FIRST = {"mlp_layer_types": ["dense", "sparse"]}
# 8 state-space heads of 16 are the inner width, twice the hidden size.
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_expand": 2}
# A scale that is not the head dimension's, nor so steep that attention is one-hot.
_GRANITE = {"attention_multiplier": 0.2}
# The last two layers reuse the keys of the two before.
_SHARED_KEYS = {"num_hidden_layers": 4, "num_kv_shared_layers": 2}
_GLOBAL_HEADS = {**_SHARED_KEYS, "global_head_dim": 32}
_ASSISTANT_TEXT = {
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "num_hidden_layers": 2,
    "num_kv_shared_layers": 2,
}
_ASSISTANT = {f"text_config.{name}": value for name, value in (_ASSISTANT_TEXT | {"global_head_dim": 32}).items()}
# Within reach of few positions; no sequence of a test would get as far as the default.
_CLIPPED = {"log_scaling_n_floor": 8, "rel_extent": 16}
_LATENT_WINDOWS = {
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_q_lora_rank": 32,
    "swa_kv_lora_rank": 32,
    "swa_head_dim": 24,
    "swa_qk_nope_head_dim": 16,
    "swa_v_head_dim": 16,
}
_QWEN4 = {
    "eos_token_id": 2,
    "ple_layer_ids": [1],
    "ngram_vocab_size_base": 100,
    "heads_per_ngram": 2,
    "split_ngram_parts": 1,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 8,
    "indexer_compress_ratio": 2,
}
_SHORT_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 8,
    "max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


_DOTS3 = {"vision_config.adapter_in_dim": 64, "audio_config.adapter_input_size": 64}

# ------------------------------------------------------------------ the table
# By model type, or by "type/mapping" for one mapping alone. The fields of a type hold as well where it is a part of a
# larger configuration.
EXCEPTIONS: dict[str, Special] = {
    # sliding and full layers, where the default has one of them
    **for_types("dots1", "ministral", fields=_BOTH_WINDOWS),
    **for_types("qwen2", "qwen3", fields=_SWITCHED_WINDOWS),
    **for_types("qwen2_moe", fields={**_SWITCHED_WINDOWS, "mlp_only_layers": [0]}),
    **for_types("qwen3_moe", "qwen3_next", "flint", fields={"mlp_only_layers": [0]}),
    **for_types("got_ocr2", "moss_transcribe_diarize", fields=inside("text_config", _SWITCHED_WINDOWS)),
    "laguna": Special({**_BOTH_WINDOWS, "num_attention_heads_per_layer": [4, 8]}),
    "mellum": Special({**_BOTH_WINDOWS, **_DENSE_FIRST}),
    "gpt_neo": Special({"attention_types": [[["global", "local"], 1]]}),
    "zaya": Special(
        {"layer_types": ["hybrid", "hybrid_sliding"], "sliding_window": 8, "num_experts_per_tok": 1},
        around={"temp": 1.0},  # multiplies keys of fixed length, and starts at 0
    ),
    # layers without RoPE
    "smollm3": Special({**_SWITCHED_WINDOWS, "layer_types": [_SLIDING, _FULL, _FULL], "no_rope_layers": [1, 1, 0]}),
    "llama4_text": Special({"moe_layers": [1], "floor_scale": 4}),
    "llama4": Special(inside("text_config", {"moe_layers": [1], "floor_scale": 4})),
    **for_types("granite_swa", "granitemoe_swa", fields={**_GRANITE, "layer_rope_theta": [10000.0, 0.0]}),
    "cohere_compass_text": Special(
        {
            "layer_types": [_SLIDING, _FULL],
            "rope_parameters": {
                _SLIDING: {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
                _FULL: None,
            },
        }
    ),
    # layers that share keys; layers with heads of another width
    "gemma3n_text": Special(_SHARED_KEYS),
    "gemma3n": Special(why="its vision tower comes from timm, which this project does not install"),
    **for_types("gemma4_text", "gemma4_unified_text", fields=_GLOBAL_HEADS),
    **for_types("gemma4", "gemma4_unified", fields=inside("text_config", _GLOBAL_HEADS)),
    **for_types(
        "gemma4_assistant",
        "gemma4_unified_assistant",
        fields=_ASSISTANT,
        start={"text_config": {**_ASSISTANT_TEXT, "layer_types": [_SLIDING, _FULL]}},
        inputs=text.assistant_inputs,
    ),
    # a choice of keys by an indexer, or compressed keys
    "deepseek_v4": Special(
        {
            "num_key_value_heads": 1,
            "layer_types": [_SLIDING, "compressed_sparse_attention", "heavily_compressed_attention"],
            "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 8},
            "index_topk": 4,
        }
    ),
    **for_types("glm_moe_dsa", "hy_v4", fields={"indexer_types": ["full", "shared"]}),
    "minimax_m3_vl_text": Special(
        {
            "layer_types": ["minimax_m3_sparse", _FULL],
            **_DENSE_FIRST,
            "index_block_size": 4,
            "index_topk_blocks": 2,
        }
    ),
    "dots3_note_text": Special(_LATENT_WINDOWS),
    "dots3_note": Special(_DOTS3),
    "dots3_note/multimodal": Special(_DOTS3, inputs=partial(mixed_inputs, hear=nothing)),
    # scales that depend on the position or on the vector's length
    "ministral3": Special({"rope_parameters": _SHORT_YARN}),
    "inkling_text": Special({**_CLIPPED, **_DENSE_FIRST}),
    "inkling2_text": Special({**_CLIPPED, "n_layers_per_attn_res_block": 1, "qk_l2_clip_threshold": 4.0}),
    "inkling2_loop_text": Special(
        {
            **_CLIPPED,
            "n_layers_per_attn_res_block": 1,
            "qk_l2_clip_threshold": 4.0,
            "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid", "hybrid"],
            "loop_layer_index_start": 1,
            "loop_layer_index_end": 3,
            "loop_num_passes": 2,
        }
    ),
    **for_types("gemma2", "vaultgemma", fields={"attn_logit_softcapping": 4.0}),
    **for_types("granite", "granitemoe", "granitemoeshared", fields=_GRANITE),
    "dbrx": Special({"attn_config.rope_theta": 10000.0, "attn_config.clip_qkv": 2.0, "attn_config.kv_n_heads": 2}),
    # layers that are called several times
    "dory": Special(
        {
            "layer_types": [_SLIDING, _SLIDING, _FULL, _SLIDING],
            "n_input_layers": 1,
            "n_recurrent_layers": 2,
            "n_output_layers": 1,
            # Its scales are kept as fractions of this; at the default a random one is a hundred times too large.
            "initializer_range": 1.0,
        }
    ),
    "hrm_text": Special(
        {
            "H_cycles": 2,
            "L_cycles": 2,
            "num_layers_per_stack": 1,
            "num_hidden_layers": 6,  # 1 a stack · 2 · (2 + 1)
            "embedding_scale": 1.0,
        }
    ),
    # state spaces, convolutions and recurrences beside attention
    "bamba": Special({**_MAMBA, "attn_layer_indices": [1]}),
    "falcon_h1": Special({**_MAMBA, "mamba_d_ssm": 128, "key_multiplier": 0.5}),
    "granitemoehybrid": Special({**_MAMBA, **_GRANITE, "layer_types": [_LINEAR, _FULL]}),
    "jamba": Special(
        {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 0}
    ),
    "lfm2": Special({"layer_types": ["conv", _FULL]}),
    "lfm2_moe": Special({"layer_types": ["conv", _FULL]}),
    "mamba2": Special({"num_heads": 8}),
    "nemotron_h": Special({"mamba_num_heads": 8}),
    "recurrent_gemma": Special({"block_types": ["recurrent", "attention"]}),
    "qwen4_exp_text": Special(_QWEN4),
    "qwen4_exp": Special(inside("text_config", _QWEN4)),
    "zamba": Special({"num_hidden_layers": 4, "attention_hidden_size": 128, "attention_head_dim": 32}),
    "zamba2": Special({"num_hidden_layers": 4, "use_mem_rope": True, "num_key_value_heads": 4}),
    # dense and routed layers, where the default has one of them
    "cohere2_moe": Special(_DENSE_FIRST),
    "ernie4_5_moe": Special({"moe_layer_end_index": 1}),
    # masked language models
    "deberta": Special({"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta-v2": Special(
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 4, "share_att_key": True}
    ),
    "esm": Special({"vocab_size": 128, "pad_token_id": 0, "mask_token_id": 3, "position_embedding_type": "rotary"}),
    "esmc": Special({"num_key_value_heads": 4}),
    "funnel": Special({"block_sizes": [1, 1, 1]}),
    # Without a norm its attention is one-hot under these weights.
    "mobilebert": Special({"embedding_size": 32, "normalization_type": "layer_norm"}),
    "perceiver": Special({"num_latents": 16}),
    # the rest
    "blt": Special({"encoder_hash_byte_group_vocab": 500}),
    "longcat_flash": Special({"zero_expert_num": 2}),
    "mllama": Special(
        inside("text_config", {"num_hidden_layers": 3, "cross_attention_layers": [1]}), inputs=text.cross_inputs
    ),
    **for_types("musicgen", "musicgen_melody", part="decoder", inputs=text.codebook_inputs),
    "reformer": Special(
        {
            "attn_layers": ["local", "lsh"],
            "axial_pos_embds": False,
            "num_buckets": 4,
            "hash_seed": 0,
        }
    ),
    "encoder-decoder": Special(CROSSING),
    "nllb-moe": Special({"encoder_sparse_step": 2, "decoder_sparse_step": 2}),
    "switch_transformers": Special({"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}),
    "sam3_lite_text_text_model": Special({"num_hidden_layers": 3}),  # the first and the last are convolutions
    "lilt": Special({"hidden_size": 96}, inputs=boxed_inputs),  # a multiple of 6
    "voxtral_realtime_text": Special(why="transformers 5.24 names a class for it that does not exist"),
    "xmod": Special({"default_language": "en_XX"}),
    **HEARING,
    **SEEING,
}
