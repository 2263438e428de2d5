"""What the attention of each family is, kept by hand from the modelling source of transformers 5.24.

A row speaks of one kind of attention layer of one model type under one setting of its flags; of a model with an image
or audio tower it speaks of the text part. What a row says:

- `flags`: config fields to set, dots reach into a sub-config or a dict. Empty means the class's own defaults. A number
  in a flag is an example: any number like it would do.
- `layers`: "all"; "softmax" (the model has other mixers too); or one kind where the kinds differ.
- `q_norm`, `k_norm`, `v_norm`: the norm that this layer itself applies. A layer that borrows keys has no `k_norm` of
  its own. In a `partial` row the norm covers a part of the channels only.
- `rotary`: which channels make a pair, and the share of the head's channels that turn. "half": channel i with i + n/2;
  "interleaved": 2i with 2i + 1; "complex": the same pairs, multiplied as complex numbers; "unzip": pairs 2i, 2i + 1
  come in and halves go out, so the output is permuted too.
- `scale`: "d" is head_dim ** -0.5 over all channels of a key, "one" no scale, "prescaled" a query (or key) that holds
  it already; else the name of what sets it, as the note says.
- `window`: of the layers the row speaks of; "some" only where a row holds both kinds, "chunk" where keys come in fixed
  groups instead of a window that moves along.

The default verdict is `norm` where q or k has one, else `none`.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Verdict = Literal["none", "norm", "latent_only", "partial", "clip", "composite", "shared_kv", "unknown"]
Mapping = Literal["causal", "masked", "seq2seq", "vision", "multimodal", "time_series"]
Window = Literal["none", "some", "all", "chunk"]
Pairing = Literal["half", "interleaved", "complex", "unzip"]
Rotary = tuple[Pairing, float] | None
Key = tuple[str, tuple[tuple[str, Any], ...], str]


class Norm(NamedTuple):
    """A step on q, k or v; `axis` is what one statistic spans ("element": none, each channel by itself)."""

    kind: Literal["rms", "layernorm", "l2", "clip", "other"]
    axis: Literal["head", "full", "element"]
    order: Literal["before_rope", "after_rope", "no_rope"]
    has_gain: bool
    has_bias: bool


@dataclass(frozen=True)
class Truth:
    """One row; the module's docstring says what the fields mean."""

    model_type: str
    mapping: Mapping
    layers: str
    q_norm: Norm | None
    k_norm: Norm | None
    v_norm: Norm | None
    verdict: Verdict
    rotary: Rotary
    softcap: bool
    sinks: Literal["learned", "input"] | None
    scale: str
    window: Window
    note: str
    flags: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.model_type, tuple(self.flags.items()), self.layers


def _t(
    model_type: str,
    layers: str = "all",
    *,
    mapping: Mapping = "causal",
    flags: dict[str, Any] | None = None,
    qk: Norm | None = None,
    q: Norm | None = None,
    k: Norm | None = None,
    v: Norm | None = None,
    verdict: Verdict | None = None,
    rotary: Rotary = ("half", 1.0),
    softcap: bool = False,
    sinks: Literal["learned", "input"] | None = None,
    scale: str = "d",
    window: Window = "none",
    note: str = "",
) -> Truth:
    q, k = q or qk, k or qk
    found: Verdict = verdict or ("norm" if q or k else "none")
    return Truth(model_type, mapping, layers, q, k, v, found, rotary, softcap, sinks, scale, window, note, flags or {})


RMS = Norm("rms", "head", "before_rope", has_gain=True, has_bias=False)
RMS_AFTER = RMS._replace(order="after_rope")
RMS_NOPE = RMS._replace(order="no_rope")
RMS_FULL = RMS._replace(axis="full")
BARE = RMS._replace(has_gain=False)
BARE_AFTER = BARE._replace(order="after_rope")
BARE_NOPE = BARE._replace(order="no_rope")
LAYER = Norm("layernorm", "head", "before_rope", has_gain=True, has_bias=True)
LAYER_GAIN = LAYER._replace(has_bias=False)
L2 = Norm("l2", "head", "before_rope", has_gain=False, has_bias=False)
L2_NOPE = L2._replace(order="no_rope")
CLAMP = Norm("clip", "element", "before_rope", has_gain=False, has_bias=False)
CLAMP_NOPE = CLAMP._replace(order="no_rope")
CAP_NOPE = Norm("clip", "head", "no_rope", has_gain=False, has_bias=False)

ONE_PLUS = "the gain is 1 + weight"
PER_HEAD = "a gain of its own for each head"
NO_LAYER_FLAG = "sliding only if layer_types says so"
SLIDE = {"sliding_window": 4}
SLIDE_LATE = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
# MLA: the rotated part is qk_rope_head_dim of qk_nope_head_dim + qk_rope_head_dim; YaRN with mscale_all_dim multiplies
# the scale by mscale ** 2 (not in kimi_linear).
MLA = "q and kv latents have an RMS norm, q and k have none"
MLA_KV = "only the kv latent has an RMS norm, q comes straight from its projection"

_HEAD_RMS_BEFORE = [
    _t("qwen3", qk=RMS),
    _t("qwen3", flags=SLIDE_LATE, qk=RMS, window="some"),
    _t("qwen3_moe", qk=RMS),
    _t("qwen3_moe", flags={"use_sliding_window": True, "sliding_window": 4}, qk=RMS, window="all"),
    _t("apertus", qk=RMS, note="rope_type is llama3 by default"),
    _t("doge", qk=RMS, note="a term made from v is added to the logits; top keep_window_size keys"),
    _t("doge", flags=SLIDE, qk=RMS, window="all", note="the window is in the mask only"),
    _t("dots1", qk=RMS),  # sliding_window is 4096, yet max_window_layers leaves every layer full
    _t("dots1", flags={"sliding_window": 4, "max_window_layers": 1}, qk=RMS, window="some"),
    _t("hy_v3", qk=RMS),
    _t("lfm2", "softmax", qk=RMS, note="conv layers only if layer_types says so; modules q_layernorm, k_layernorm"),
    _t("mellum", qk=RMS, note=NO_LAYER_FLAG),  # rotary: rope_parameters[layer type], always the whole head
    # rotary: rope_parameters.partial_rotary_factor; the class's own sizes (head of 42) round to 22 of 42 channels
    _t("glm4_moe", rotary=("half", 0.5)),
    _t("glm4_moe", flags={"use_qk_norm": True}, qk=RMS, rotary=("half", 0.5)),
    _t("sarvam_moe", qk=RMS, note="class Glm4MoeAttention"),  # rotary: rope_parameters.partial_rotary_factor
    _t("sarvam_moe", flags={"use_qk_norm": False}, note="class Glm4MoeAttention"),
    _t("afmoe", "rope", qk=RMS, window="all", note="the sliding layers; output gated"),
    _t("afmoe", "no_rope", qk=RMS_NOPE, rotary=None, note="the full layers; output gated"),
    _t("exaone4", "rope", qk=RMS, window="all", note="the sliding layers"),
    _t("exaone4", "no_rope", qk=RMS_NOPE, rotary=None, note="the full layers"),
    _t("exaone4", flags={"sliding_window": None}, qk=RMS, note="needs layer_types too, else the config divides by 0"),
]

_HEAD_RMS_ONE_PLUS = [
    # attn_logit_softcapping is in both configs and on the module, and is never handed to the kernel
    _t("gemma3_text", qk=RMS, scale="query_pre_attn_scalar", window="some", note=f"{ONE_PLUS}; scale field ** -0.5"),
    _t("t5gemma2", "encoder", mapping="seq2seq", qk=RMS, scale="query_pre_attn_scalar", window="some", note=ONE_PLUS),
    _t(
        "t5gemma2",
        "decoder",
        mapping="seq2seq",
        qk=RMS,
        scale="query_pre_attn_scalar",
        window="some",
        note=f"{ONE_PLUS}; self and cross keys in one call: cross keys are normed, not rotated, and see no window",
    ),
    # rotary: rope_parameters.partial_rotary_factor
    _t("qwen3_next", "softmax", qk=RMS, rotary=("half", 0.25), note=f"{ONE_PLUS}; q_proj holds an output gate too"),
    _t("qwen3_5_text", "softmax", qk=RMS, rotary=("half", 0.25), note=f"{ONE_PLUS}; q_proj holds an output gate too"),
    # rotary: rope_parameters.partial_rotary_factor; nothing reads the config's rotary_dim
    _t("minimax_m3_vl_text", qk=RMS, note=f"{ONE_PLUS}; minimax_m3_sparse layers (none by default) drop key blocks"),
    # rotary: rope_parameters[layer type].partial_rotary_factor
    _t(
        "step3p7",
        mapping="multimodal",
        qk=RMS,
        scale="query_pre_attn_scalar",
        note=f"{ONE_PLUS}; text config is step3p5; {NO_LAYER_FLAG}; scale field ** -0.5",
    ),
]

_V_NORMED = [
    _t("gemma3n_text", "own_kv", qk=RMS, v=BARE_NOPE, scale="one", window="some"),
    _t(
        "gemma3n_text",
        "shared_kv",
        q=RMS,
        verdict="shared_kv",
        scale="one",
        window="some",
        note="the last num_kv_shared_layers (15) layers; k and v of the last own layer of the type, normed there",
    ),
    _t("gemma4_text", "sliding", qk=RMS, v=BARE_NOPE, scale="one", window="all"),
    # rotary of full layers: rope_parameters.full_attention.partial_rotary_factor under rope_type "proportional"
    _t(
        "gemma4_text",
        "full",
        qk=RMS,
        v=BARE_NOPE,
        rotary=("half", 0.25),
        scale="one",
        note="larger head; the first quarter of each half turns, the rest meets frequency 0 in the same function",
    ),
    _t(
        "gemma4_text",
        "full",
        flags={"attention_k_eq_v": True},
        qk=RMS,
        v=BARE_NOPE,
        rotary=("half", 0.25),
        scale="one",
        note="no v_proj: v is the output of k_proj, normed apart",
    ),
    _t(
        "gemma4_text",
        "shared_sliding",
        flags={"num_kv_shared_layers": 2},
        q=RMS,
        verdict="shared_kv",
        scale="one",
        window="all",
        note="k and v of the last own layer of the type",
    ),
    _t(
        "gemma4_text",
        "shared_full",
        flags={"num_kv_shared_layers": 2},
        q=RMS,
        verdict="shared_kv",
        rotary=("half", 0.25),
        scale="one",
        note="k and v of the last own layer of the type",
    ),
]

_HEAD_RMS_AFTER = [
    _t("hunyuan_v1_dense", qk=RMS_AFTER, note="head_dim is None by default and must be set"),
    _t("hunyuan_v1_moe", qk=RMS_AFTER, note="head_dim is None by default and must be set"),
    _t(
        "timesfm2_5",
        mapping="time_series",
        qk=RMS_AFTER,
        scale="prescaled",
        note="q times a learned scale per channel, softplus(scaling) * 1.4427 / sqrt(d), after the norm",
    ),
    # qk_layer_norms reaches the cross-attention alone, which has no RoPE
    _t("idefics", "self", mapping="multimodal"),
    _t("idefics", "cross", mapping="multimodal", rotary=None, note="keys are image states"),
    _t("idefics", "self", mapping="multimodal", flags={"qk_layer_norms": True}, note="the flag does not reach it"),
    _t("idefics", "cross", mapping="multimodal", flags={"qk_layer_norms": True}, qk=RMS_NOPE, rotary=None),
]

_RMS_BARE = [
    _t("nanochat", qk=BARE_AFTER, note="RoPE turns the other way round: rotate_half has its signs swapped"),
    # layers with RoPE: no_rope_layers[i] is 1
    _t("llama4_text", "rope", qk=BARE_AFTER, rotary=("complex", 1.0), window="chunk", note="one module for q and k"),
    _t("llama4_text", "no_rope", rotary=None, note="q times a factor that grows with position"),
    _t("llama4_text", "rope", flags={"use_qk_norm": False}, rotary=("complex", 1.0), window="chunk"),
    _t("llama4_text", "no_rope", flags={"use_qk_norm": False}, rotary=None, note="q times a factor as by default"),
    _t(
        "llama4_text",
        "no_rope",
        flags={"attn_temperature_tuning": False},
        rotary=None,
        note="no factor on q",
    ),
    # layers without RoPE: layer_rope_theta[i] is 0; by default just the full ones
    _t(
        "muse_spark", "rope", mapping="multimodal", qk=BARE, window="all", note="q times qk_scale_factor after its norm"
    ),
    _t("muse_spark", "no_rope", mapping="multimodal", qk=BARE_NOPE, rotary=None, note="q times qk_scale_factor"),
    _t("muse_glimmer", "rope", mapping="multimodal", qk=BARE, window="all", note="q times qk_scale_factor"),
    _t("muse_glimmer", "no_rope", mapping="multimodal", qk=BARE_NOPE, rotary=None, note="q times qk_scale_factor"),
    # rotary: rope_parameters[layer type].partial_rotary_factor; the window reaches sliding_window to both sides
    _t(
        "neomme",
        "sliding",
        mapping="masked",
        qk=BARE,
        window="all",
        note="2-D positions; some v get token embeddings",
    ),
    _t("neomme", "full", mapping="masked", qk=BARE, rotary=("half", 0.25), note="2-D positions"),
]

_FULL_WIDTH = [
    _t("olmo2", qk=RMS_FULL),
    _t("olmo3", qk=RMS_FULL, window="some"),
    _t("olmoe", qk=RMS_FULL),
    _t(
        "olmoe",
        flags={"clip_qkv": 0.5},
        qk=RMS_FULL,
        v=CLAMP_NOPE,
        verdict="composite",
        note="q and k clamped after the norm",
    ),
    _t("flex_olmo", qk=RMS_FULL),
    _t("olmo_hybrid", "softmax", qk=RMS_FULL),
    _t(
        "olmo_hybrid",
        "softmax",
        flags={"rope_parameters.rope_theta": None},
        qk=RMS_FULL._replace(order="no_rope"),
        rotary=None,
        note="what released checkpoints use; rope_parameters=None turns into the default",
    ),
    _t("minimax_m2", qk=RMS_FULL),  # rotary: rotary_dim / head_dim, or rope_parameters.partial_rotary_factor
    _t("minimax_m2", flags={"rotary_dim": 8, "head_dim": 16}, qk=RMS_FULL, rotary=("half", 0.5)),
]

_LAYERNORM = [
    # rotary of the next eight rows: rope_parameters.partial_rotary_factor
    _t("persimmon", qk=LAYER, rotary=("half", 0.5)),
    _t("persimmon", flags={"qk_layernorm": False}, rotary=("half", 0.5)),
    _t("fuyu", qk=LAYER, rotary=("half", 0.5), note="text model is Persimmon"),
    _t("fuyu", flags={"text_config.qk_layernorm": False}, rotary=("half", 0.5), note="text model is Persimmon"),
    _t("phi", rotary=("half", 0.5)),
    _t("phi", flags={"qk_layernorm": True}, qk=LAYER, rotary=("half", 0.5)),
    _t("stablelm", rotary=("half", 0.25)),
    _t(
        "stablelm",
        flags={"qk_layernorm": True},
        qk=LAYER_GAIN,
        rotary=("half", 0.25),
        note=f"{PER_HEAD}: one module each",
    ),
    _t("cohere", rotary=("interleaved", 1.0)),
    _t("cohere", flags={"use_qk_norm": True}, qk=LAYER_GAIN, rotary=("interleaved", 1.0), note=PER_HEAD),
    _t("chameleon", mapping="multimodal", qk=LAYER, note="a gain and a bias of its own for each head; no flag"),
    _t("esmc", mapping="masked", qk=LAYER_GAIN._replace(axis="full")),
]

_LENGTHS = [
    _t(
        "dory",
        q=L2._replace(has_gain=True),
        k=L2,
        window="some",
        note="the gain of q, a square for each channel, stands after RoPE; a layer may run several times in one pass",
    ),
    # rotary: rope_parameters[layer type].partial_rotary_factor
    _t(
        "zaya",
        q=L2,
        k=L2._replace(has_gain=True),
        verdict="composite",
        rotary=("half", 0.5),
        note="causal convs and a mean of q and k come first; length sqrt(d); k gain one per kv head, 0 in a new model",
    ),
    _t(
        "swinv2",
        mapping="vision",
        qk=L2_NOPE,
        rotary=None,
        scale="logit_scale",
        window="chunk",
        note="scale exp(min(logit_scale, log 100)) is learned, per head; position bias; past the interface",
    ),
    _t(
        "reformer",
        "lsh",
        k=L2_NOPE,
        rotary=None,
        scale="one",
        window="chunk",
        note="q and k are one projection, k made unit length; keys of the same hash bucket; past the interface",
    ),
    _t(
        "reformer", "local", rotary=None, scale="prescaled", window="chunk", note="k divided, not q; past the interface"
    ),
]

_CLIPS = [
    _t(
        "inkling2_text",
        "sliding",
        q=CAP_NOPE._replace(has_gain=True),
        k=CAP_NOPE,
        v=BARE_NOPE,
        verdict="clip",
        rotary=None,
        sinks="input",
        window="all",
        note="lengths capped at qk_l2_clip_threshold, q scaled before; short conv on k and v; position bias",
    ),
    _t(
        "inkling2_text",
        "full",
        q=CAP_NOPE._replace(has_gain=True),
        k=CAP_NOPE,
        v=BARE_NOPE,
        verdict="clip",
        rotary=None,
        sinks="input",
        note="as sliding, with an input-dependent conv, q grows with position after its cap, k and v have other inputs",
    ),
    _t("olmo"),
    _t("olmo", flags={"clip_qkv": 0.5}, qk=CLAMP, v=CLAMP_NOPE, verdict="clip"),
    # without clip_qkv, the default, torch.clamp gets no bound and raises
    _t("dbrx", flags={"attn_config.clip_qkv": 0.5}, qk=CLAMP, v=CLAMP_NOPE, verdict="clip"),
    _t("mpt", rotary=None, note="ALiBi; past the interface"),  # scale: attn_config.softmax_scale if set
    _t(
        "mpt",
        flags={"attn_config.clip_qkv": 0.5},
        qk=CLAMP_NOPE,
        v=CLAMP_NOPE,
        verdict="clip",
        rotary=None,
        note="ALiBi; past the interface",
    ),
]

_LATENT = [
    _t("deepseek_v2", verdict="latent_only", rotary=("complex", 64 / 192), note=MLA),
    _t("deepseek_v2", flags={"q_lora_rank": None}, verdict="latent_only", rotary=("complex", 64 / 192), note=MLA_KV),
    _t("deepseek_v3", verdict="latent_only", rotary=("unzip", 64 / 192), note=MLA),
    _t("deepseek_v3", flags={"rope_interleave": False}, verdict="latent_only", rotary=("half", 64 / 192), note=MLA),
    _t("deepseek_v3", flags={"q_lora_rank": None}, verdict="latent_only", rotary=("unzip", 64 / 192), note=MLA_KV),
    _t("kimi_linear", "softmax", verdict="latent_only", rotary=None, note=f"{MLA_KV}; its rope part is never rotated"),
    _t("kimi_linear", "softmax", flags={"q_lora_rank": 8}, verdict="latent_only", rotary=None, note=MLA),
    _t("glm4_moe_lite", verdict="latent_only", rotary=("unzip", 64 / 256), note=MLA),
    _t("glm4_moe_lite", flags={"rope_interleave": False}, verdict="latent_only", rotary=("half", 64 / 256), note=MLA),
    _t("minicpm3", verdict="latent_only", rotary=("half", 32 / 96), note=MLA),
    _t("longcat_flash", verdict="latent_only", rotary=("unzip", 64 / 192), note=f"{MLA}; two attentions a layer"),
    _t(
        "mistral4",
        mapping="multimodal",
        verdict="latent_only",
        rotary=("unzip", 64 / 128),
        scale="rope_parameters",
        note=f"{MLA}; YaRN by default: scale d ** -0.5 * mscale ** 2; q times a factor that grows with position",
    ),
    # the norm is on the part of k that is rotated, one head for all
    _t(
        "dots3_note_text",
        "sparse",
        k=RMS,
        verdict="partial",
        rotary=("unzip", 64 / 192),
        note="latents normed; indexed keys",
    ),
    _t(
        "dots3_note_text",
        "sliding",
        k=RMS,
        verdict="partial",
        rotary=("unzip", 64 / 256),
        window="all",
        note="latents too",
    ),
]

_NONE = [
    _t("llama"),
    _t("mistral", window="all"),
    _t("mistral", flags={"sliding_window": None}),
    _t("mixtral"),
    _t("mixtral", flags=SLIDE, window="all"),
    _t("qwen2"),
    _t("qwen2", flags=SLIDE_LATE, window="some"),
    _t("gemma"),
    _t("gemma2", softcap=True, scale="query_pre_attn_scalar", window="some", note="scale field ** -0.5"),
    _t("gemma2", flags={"attn_logit_softcapping": None}, scale="query_pre_attn_scalar", window="some"),
    _t("phi3"),  # rotary: rope_parameters.partial_rotary_factor
    _t("phi3", flags=SLIDE, window="all"),
    _t("gpt_oss", sinks="learned", window="some", note="YaRN by default: RoPE lengthens q and k by 1.3466"),
    _t("granite", scale="attention_multiplier", note="1.0 by default"),
    _t("cohere2", "rope", rotary=("interleaved", 1.0), window="all", note="the sliding layers"),
    _t("cohere2", "no_rope", rotary=None, note="the full layers"),
    # layers with RoPE: no_rope_layers[i] is 1
    _t("smollm3", "rope"),
    _t("smollm3", "no_rope", rotary=None),
    _t("smollm3", "rope", flags={"use_sliding_window": True, "sliding_window": 4}),
    _t("smollm3", "no_rope", flags={"use_sliding_window": True, "sliding_window": 4}, rotary=None, window="all"),
    _t("glm4", rotary=("interleaved", 0.5)),  # rotary: rope_parameters.partial_rotary_factor
    _t("gpt2", rotary=None),
    _t("gpt2", flags={"scale_attn_weights": False}, rotary=None, scale="one"),
    _t(
        "gpt2",
        flags={"scale_attn_by_inverse_layer_idx": True},
        rotary=None,
        scale="scale_attn_by_inverse_layer_idx",
        note="d ** -0.5 divided by the layer's index + 1",
    ),
    _t("gpt2", flags={"reorder_and_upcast_attn": True}, rotary=None, note="past the interface under eager"),
    _t("gpt_neox", rotary=("half", 0.25)),  # rotary: rope_parameters.partial_rotary_factor
    _t("gptj", rotary=("interleaved", 0.25)),  # rotary: rotary_dim (64) / head_dim (256)
    _t("opt", rotary=None, scale="prescaled"),
    _t("bert", mapping="masked", rotary=None),
    _t("vit", mapping="vision", rotary=None),
    _t("clip", mapping="vision", rotary=None, note="text and image towers alike"),
    _t("siglip", mapping="vision", rotary=None, note="towers alike; the image head is nn.MultiheadAttention"),
    _t("dinov2", mapping="vision", rotary=None),
    _t("whisper", mapping="seq2seq", rotary=None, scale="prescaled"),
    _t("t5", mapping="seq2seq", rotary=None, scale="one", note="position bias"),
    _t("minimax", "softmax"),
    _t("minimax", "softmax", flags=SLIDE, window="all"),
    _t("bloom", rotary=None, note="ALiBi; past the interface"),
    _t("falcon", note="past the interface"),
    _t("falcon", flags={"alibi": True}, rotary=None, note="ALiBi, scaled like the product; past the interface"),
]

ROWS = [
    *_HEAD_RMS_BEFORE,
    *_HEAD_RMS_ONE_PLUS,
    *_V_NORMED,
    *_HEAD_RMS_AFTER,
    *_RMS_BARE,
    *_FULL_WIDTH,
    *_LAYERNORM,
    *_LENGTHS,
    *_CLIPS,
    *_LATENT,
    *_NONE,
]
TRUTHS: dict[Key, Truth] = {row.key: row for row in ROWS}
