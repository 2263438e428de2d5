"""The decoder that every arm is trained as: pre-norm, RoPE, grouped keys, SwiGLU, tied embeddings."""

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from geomprobe.lab.arms import Arm

MODEL_TYPE: Final = "geomprobe_lab"
INITIAL_STD: Final = 0.02
EPS: Final = 1e-6  # of the norms of the residual stream and of RMS norms of queries and keys


class LabConfig(PreTrainedConfig):
    """What a decoder of the lab looks like.

    Parameters
    ----------
    vocab_size, hidden_size, intermediate_size, num_hidden_layers : int
    num_attention_heads, num_key_value_heads, head_dim : int
    max_position_embeddings : int
    rope_theta : float
    qk_norm, axis, order, scale : str
        The fields of an `Arm`.
    """

    model_type = MODEL_TYPE

    vocab_size: int = 4096
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = True
    use_cache: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    qk_norm: str = "none"
    axis: str = "head"
    order: str = "before_rope"
    scale: str = "rsqrt_d"

    @property
    def arm(self) -> Arm:
        """What happens to queries and keys."""
        return Arm(qk_norm=self.qk_norm, axis=self.axis, order=self.order, scale=self.scale)  # type: ignore[arg-type]


class UnitLength(nn.Module):
    """Vectors to length 1."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, d) to the same."""
        return functional.normalize(x, dim=-1, eps=EPS)


def _qk_norm(arm: Arm, n_heads: int, head_dim: int) -> nn.Module | None:
    width = n_heads * head_dim if arm.axis == "full" else head_dim
    if arm.qk_norm == "none":
        return None
    if arm.qk_norm == "l2":
        return UnitLength()
    return nn.RMSNorm(width, eps=EPS, elementwise_affine=arm.qk_norm == "rms")


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of channels (i, i + d/2) by its angle (RoPE, Su et al. 2021, arXiv 2104.09864).

    Parameters
    ----------
    x : Tensor (batch, head, pos, head_dim)
    cos, sin : Tensor (pos, head_dim)
        Both halves alike.
    """
    one, two = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-two, one), dim=-1) * sin


class LabAttention(nn.Module):
    """Causal attention of an arm."""

    def __init__(self, config: LabConfig, layer_idx: int) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.arm = config.arm
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = config.head_dim**-0.5 if self.arm.scale == "rsqrt_d" else 1.0
        self.attention_dropout = 0.0
        self.is_causal = True
        width, kv_width = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.q_norm = _qk_norm(self.arm, config.num_attention_heads, config.head_dim)
        self.k_norm = _qk_norm(self.arm, config.num_key_value_heads, config.head_dim)
        if self.arm.scale == "learned":
            self.log_temperature = nn.Parameter(torch.empty(config.num_attention_heads))

    def forward(
        self, hidden: Tensor, cos: Tensor, sin: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """One layer's attention: (batch, pos, hidden) to the same, and the weights where the kernel gives them."""
        batch, length, _ = hidden.shape
        q, k = self._prepared(self.q_proj(hidden), self.q_norm), self._prepared(self.k_proj(hidden), self.k_norm)
        v = self.v_proj(hidden).view(batch, length, -1, self.head_dim).transpose(1, 2)  # (batch, kv_head, pos, d)
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        if self.arm.order == "after_rope":
            q, k = self._normed(q, self.q_norm), self._normed(k, self.k_norm)
        if self.arm.scale == "learned":
            q = q * self.log_temperature.exp()[:, None, None]
        interface: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, _eager)
        out, weights = interface(self, q, k, v, attention_mask, dropout=0.0, scaling=self.scaling, **kwargs)
        return self.o_proj(out.reshape(batch, length, -1)), weights

    def _prepared(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """What a projection gives, normalised where the arm does so before RoPE: (batch, head, pos, head_dim)."""
        if self.arm.axis == "full":
            x = self._normed(x, norm)
        heads = x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)
        if self.arm.axis == "head" and self.arm.order == "before_rope":
            heads = self._normed(heads, norm)
        return heads

    def _normed(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """As precise as the weights: where products alone are in bfloat16, lengths are not rounded to it."""
        return x if norm is None else norm(x.to(self.q_proj.weight.dtype))


def _eager(  # noqa: PLR0913 (transformers gives these)
    module: LabAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attention step by step, with its weights."""
    groups = module.num_key_value_groups
    logits = query @ key.repeat_interleave(groups, dim=1).transpose(2, 3) * scaling  # (batch, q_head, row, key)
    if attention_mask is not None:
        logits = logits + attention_mask
    weights = functional.softmax(logits, dim=-1, dtype=torch.float32).to(query.dtype)
    out = weights @ value.repeat_interleave(groups, dim=1)
    return out.transpose(1, 2).contiguous(), weights


class LabMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: LabConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, pos, hidden) to the same."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LabLayer(nn.Module):
    """Attention and SwiGLU, each behind a norm and added to the stream."""

    def __init__(self, config: LabConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = LabAttention(config, layer_idx)
        self.mlp = LabMLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=EPS)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=EPS)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, **kwargs: Any) -> Tensor:
        """(batch, pos, hidden) to the same."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin, mask, **kwargs)[0]
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class LabPreTrainedModel(PreTrainedModel):
    """What transformers wants to know."""

    config_class = LabConfig
    base_model_prefix = "model"
    _no_split_modules: ClassVar = ["LabLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def _init_weights(self, module: nn.Module) -> None:
        """What a fresh model holds before `initialise`: nothing is left unset."""
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data.normal_(0.0, INITIAL_STD)
        elif isinstance(module, nn.RMSNorm) and module.weight is not None:
            module.weight.data.fill_(1.0)
        elif isinstance(module, LabAttention) and module.arm.scale == "learned":
            module.log_temperature.data.fill_(0.5 * torch.log(torch.tensor(float(module.head_dim))).item())


class LabModel(LabPreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config: LabConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([LabLayer(config, index) for index in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(config.hidden_size, eps=EPS)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,  # noqa: FBT001 (transformers' own name)
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """(batch, pos) ids to (batch, pos, hidden); `hidden_states`: what enters each layer, then the last norm's."""
        for name in ("use_cache", "return_dict", "output_attentions", "cache", "past_key_values"):
            kwargs.pop(name, None)
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        mask = create_causal_mask(self.config, hidden, attention_mask, None, position_ids)
        cos, sin = self._angles(position_ids, hidden.dtype)
        seen = []
        for layer in self.layers:
            seen.append(hidden)
            hidden = layer(hidden, cos, sin, mask, position_ids=position_ids, **kwargs)
        hidden = self.norm(hidden)
        states = (*seen, hidden) if output_hidden_states else None
        return BaseModelOutputWithPast(last_hidden_state=hidden, hidden_states=states)

    def _angles(self, position_ids: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        d = self.config.head_dim
        channel = torch.arange(0, d, 2, dtype=torch.float32, device=position_ids.device)
        # In the order in which transformers rounds it, so that an export gives the same logits far out too.
        turns = position_ids[:, None, :, None].float() * (1.0 / self.config.rope_theta ** (channel / d))
        angle = torch.cat((turns, turns), dim=-1)  # (batch, 1, pos, head_dim)
        return angle.cos().to(dtype), angle.sin().to(dtype)


class LabForCausalLM(LabPreTrainedModel, GenerationMixin):
    """The decoder with its head, which is the embedding."""

    _tied_weights_keys: ClassVar = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: LabConfig) -> None:
        super().__init__(config)
        self.model = LabModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits (batch, pos, vocabulary), and with labels their mean cross-entropy on the following token."""
        out = self.model(input_ids, attention_mask, position_ids, inputs_embeds, **kwargs)
        hidden = out.last_hidden_state[:, -logits_to_keep:] if logits_to_keep else out.last_hidden_state
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutputWithPast(loss=loss, logits=logits, hidden_states=out.hidden_states)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Without a cache, whatever is asked: the decoder reads the whole text each time."""
        return super().generate(*args, **{**kwargs, "use_cache": False})


def register() -> None:
    """Let transformers' Auto classes know the decoder, so that its checkpoints load by their folder."""
    AutoConfig.register(MODEL_TYPE, LabConfig, exist_ok=True)
    AutoModelForCausalLM.register(LabConfig, LabForCausalLM, exist_ok=True)


def initialise(model: LabForCausalLM, seed: int) -> None:
    """Draw every matrix anew, each from a generator of its own, so that a parameter is the same in every arm.

    Normal with standard deviation .02, those that write into the residual stream .02/√(2 layers) (GPT-2). Gains begin
    at 1, temperatures at √head_dim.

    Parameters
    ----------
    model : LabForCausalLM
    seed : int
        With the name of a parameter it decides its numbers, which do not depend on what other parameters there are.
    """
    small = INITIAL_STD / (2 * model.config.num_hidden_layers) ** 0.5
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                continue  # gains and temperatures, which `_init_weights` has set
            generator = torch.Generator().manual_seed(_number(f"{seed}:{name}"))
            std = small if name.endswith(("o_proj.weight", "down_proj.weight")) else INITIAL_STD
            drawn = torch.empty(parameter.shape, dtype=torch.float32).normal_(0.0, std, generator=generator)
            parameter.copy_(drawn)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
