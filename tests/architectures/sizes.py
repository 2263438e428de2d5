"""The size that a field of a small configuration gets, by the field's name."""

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, LAYERS, WINDOW = 64, 4, 2, 16, 128, 2, 8
ROTATED, RANK, LENGTH_LIMIT = 8, 32, 256
EXPERTS, CHOSEN = 4, 2
IMAGE, PATCH = 48, 8

_VOCABULARIES = """
    vocab_size decoder_vocab_size vocab_size_per_layer_input output_vocab_size audio_vocab_size text_vocab_size
    unpadded_vocab_size src_vocab_size tgt_vocab_size t2u_vocab_size unit_hifi_gan_vocab_size entity_vocab_size
    shape_vocab_size pronunciation_vocab_size
"""
_WIDTHS = """
    hidden_size d_model n_embd dim emb_dim embed_dim embedding_size embedding_dim hidden_dim word_embed_proj_dim
    projection_dim out_hidden_size input_embedding_size output_embedding_size lru_width attention_hidden_size
    hidden_size_global backbone_hidden_size prediction_head_size true_hidden_size intra_bottleneck_size
    pooler_hidden_size router_hidden_size adapter_out_dim d_latents ple_embed_dim
    intermediate_size moe_intermediate_size ffn_dim decoder_ffn_dim encoder_ffn_dim ffn_hidden_size d_ff dff dim_ff
    d_inner n_inner feed_forward_size mlp_dim shared_expert_intermediate_size shared_experts_intermediate_size
    shared_intermediate_size expert_ffn_hidden_size moe_shared_expert_intermediate_size intermediate_size_mlp
    dense_intermediate_size prefix_dense_intermediate_size mlp_hidden_size expert_intermediate_size
    encoder_hidden_size decoder_hidden_size projector_hidden_size text_hidden_size output_channels pooler_output_size
    projection_size image_text_hidden_size alignment_intermediate_size downsample_hidden_size projection_hidden_dim
    projection_hidden_size projection_intermediate_size image_token_embed_dim vision_output_dim projector_input_dim
    projector_output_dim latent_channels decoder_intermediate_size fusion_hidden_size patch_embed_hidden_size
    fpn_hidden_size cross_hidden_size project_dim encoder_intermediate_size speech_encoder_intermediate_size
    t2u_encoder_ffn_dim t2u_decoder_ffn_dim adapter_in_dim adapter_input_size subsampling_conv_channels
    cross_attention_hidden_size share_expert_dim vision_hidden_size base_channels adapter_hidden_size mm_embed_dim
    output_proj_dims output_dim
"""
_LAYER_COUNTS = """
    num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers
    depth num_layers_per_stack num_blocks num_global_layers conf_num_hidden_layers num_self_attends_per_block
    speech_encoder_layers t2u_encoder_layers t2u_decoder_layers num_spatial_layers num_temporal_layers
    decoder_num_hidden_layers decoder_num_layers num_auxiliary_layers layers num_stages num_encoder_blocks
    resampler_depth mm_layers
"""
_QUERY_HEADS = """
    num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads
    num_encoder_attention_heads num_decoder_attention_heads attention_heads swa_num_attention_heads linear_num_heads
    linear_num_key_heads linear_num_value_heads index_n_heads num_self_attention_heads num_cross_attention_heads
    conf_num_attention_heads encoder_num_attention_heads speech_encoder_attention_heads t2u_encoder_attention_heads
    t2u_decoder_attention_heads
    decoder_num_attention_heads cross_num_attention_heads resampler_n_heads resampler_heads num_sliding_attention_heads
"""
_KEY_HEADS = """
    num_key_value_heads num_kv_heads kv_n_heads swa_num_key_value_heads num_global_key_value_heads num_query_groups
    cross_num_key_value_heads decoder_num_key_value_heads encoder_num_key_value_heads
"""
_HEAD_WIDTHS = """
    head_dim d_kv d_head dim_head kv_channels attention_head_size qk_nope_head_dim v_head_dim swa_head_dim
    swa_v_head_dim linear_head_dim linear_key_head_dim linear_value_head_dim index_head_dim mamba_d_head
    mamba_head_dim mamba_d_state ssm_state_size state_size hidden_size_per_layer_input shape_embed_dim
    pronunciation_embed_dim entity_emb_size cross_head_dim resampler_head_dim resampler_dim_head
"""
_HALF_HEADS = """
    qk_rope_head_dim rotary_dim d_rel laurel_rank loop_gate_rank gated_norm_rank mamba_dt_rank time_step_rank
    adapter_rank hc_lowrank
"""
# What a position may see; a sequence of a test is three times as long.
_WINDOWS = """
    sliding_window sliding_window_size attention_window attention_window_size attention_chunk_size window_size
    local_attention local_attention_window_len keep_window_size local_attn_chunk_length lsh_attn_chunk_length
    chunk_size mamba_chunk_size block_size index_topk
"""
_LENGTH_LIMITS = """
    max_position_embeddings n_positions n_ctx max_seq_len context_length model_max_length max_target_positions
    max_2d_position_embeddings max_encoder_position_embeddings max_decoder_position_embeddings
    t2u_max_position_embeddings max_speech_positions max_text_positions
"""
# An image is four patches high and wide, so are the tables of positions of those that know no size.
_GRIDS = """
    num_position_embeddings num_patches image_seq_length max_num_patches num_image_tokens
    position_embedding_size mm_posemb_size max_vit_seq_len img_max_token_num
"""
_EXPERT_COUNTS = "num_experts num_local_experts n_routed_experts moe_num_experts num_codebooks"
_CHOICES = """
    num_experts_per_tok num_experts_per_token moe_topk moe_top_k moe_k top_k_experts hc_mult hc_count o_groups
    altup_num_inputs
"""
_ONES = """
    n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace num_dense_layers n_group
    topk_group num_expert_group n_groups
"""

# Fields that are not here keep their default.
SIZES: dict[str, int] = {
    name: size
    for size, names in (
        (VOCABULARY, _VOCABULARIES),
        (HIDDEN, _WIDTHS),
        (LAYERS, _LAYER_COUNTS),
        (HEADS, _QUERY_HEADS),
        (KV_HEADS, _KEY_HEADS),
        (HEAD_DIM, _HEAD_WIDTHS),
        (ROTATED, _HALF_HEADS),
        (HEAD_DIM + ROTATED, "qk_head_dim"),
        (RANK, "q_lora_rank kv_lora_rank o_lora_rank embedding_rank"),
        (WINDOW, _WINDOWS),
        (LENGTH_LIMIT, _LENGTH_LIMITS),
        (EXPERTS, _EXPERT_COUNTS),
        (CHOSEN, _CHOICES),
        (1, _ONES),
        (IMAGE, "image_size pretrain_image_size max_img_size max_image_size"),
        (PATCH, "patch_size"),
        ((IMAGE // PATCH) ** 2, _GRIDS),
        (IMAGE // PATCH, "pos_emb_height pos_emb_width posemb_grid_size num_query_tokens latent_query_num"),
        (4, "resampler_n_latents resampler_num_latents"),
        (9, "mm_tokens_per_image"),
        (16, "num_mel_bins n_mel_bins"),
        (32, "max_source_positions"),
        (0, "num_nextn_predict_layers"),
        (12, "query_pre_attn_scalar"),  # near the head dimension, and not equal to it
    )
    for name in names.split()
}

# Sized where the default is None, too: it means "none" to a class that divides by it.
NEVER_NONE = frozenset(
    {
        "head_dim",
        "num_key_value_heads",
        "num_experts",
        "num_experts_per_tok",
        "top_k_experts",
        "n_routed_experts",
        "n_shared_experts",
        "moe_intermediate_size",
    }
)

# Kept where the default is smaller.
NEVER_LARGER = frozenset({"patch_size"})
