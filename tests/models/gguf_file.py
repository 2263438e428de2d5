"""A tiny random Llama and the same Llama as a GGUF file, written the way llama.cpp's converter does."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

N_LAYERS, N_HEADS, N_KV_HEADS, HIDDEN, HEAD_DIM, INNER = 2, 4, 2, 32, 8, 64
STORAGE = {
    "float32": gguf.GGMLQuantizationType.F32,
    "float16": gguf.GGMLQuantizationType.F16,
    "bfloat16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_tiny_llama(n_tokens: int, *, seed: int = 0) -> LlamaForCausalLM:
    """A random Llama in eval mode, its norm gains random as well."""
    config = LlamaConfig(
        vocab_size=n_tokens,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        num_key_value_heads=N_KV_HEADS,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        bos_token_id=2,
        eos_token_id=1,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.data.uniform_(0.5, 1.5)
            else:
                weight.data.normal_(0, 0.2)
    return model


def write_gguf(
    path: Path,
    model: LlamaForCausalLM,
    tokenizer_json: Path,
    *,
    storage: str = "float32",
    architecture: str = "llama",
    without: str = "",
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write the model and the byte-level tokenizer of a tokenizer.json; vectors stay in float32, as is usual."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(N_LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(N_HEADS)
    writer.add_head_count_kv(N_KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in (extra or {}).items():
        writer.add_string(key, value) if isinstance(value, str) else writer.add_uint32(key, value)
    _add_tokenizer(writer, json.loads(tokenizer_json.read_text(encoding="utf-8")))
    for name, weight in model.state_dict().items():
        if (ours := _gguf_name(name)) and ours != without:
            _add_tensor(writer, ours, weight.numpy(), storage)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict[str, Any]) -> None:
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in special else 1 for token, _ in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(value=True)


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    if stem in whole:
        return f"{whole[stem]}.weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[rest]}.weight"


def _add_tensor(writer: gguf.GGUFWriter, name: str, weight: np.ndarray, storage: str) -> None:
    if "attn_q" in name or "attn_k" in name:  # GGUF keeps rotary pairs side by side, transformers in two halves
        heads = N_HEADS if "attn_q" in name else N_KV_HEADS
        weight = weight.reshape(heads, 2, HEAD_DIM // 2, HIDDEN).swapaxes(1, 2).reshape(weight.shape)
    kind = STORAGE[storage] if weight.ndim > 1 else STORAGE["float32"]
    writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(weight), kind), raw_dtype=kind)
