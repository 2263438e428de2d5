"""One attention product as the kernel was called: what went in, in one layout, and how it is to be read."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.visibility import HIDDEN_BELOW, Visibility, causal, everything, from_dense
from geomprobe.errors import UnsupportedModel

_POSITIONAL = ("query", "key", "value", "attention_mask")
# Kernels whose masks and causality are read here. Others are refused rather than guessed at.
READABLE_KERNELS = ("eager", "sdpa")


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of the attention kernel.

    Attributes
    ----------
    name : str
        Name of the module that called.
    layer : int
    query : Tensor (batch, q_head, query, head_dim)
    key, value : Tensor (batch, kv_head, key, head_dim)
    mask : Tensor (batch or 1, q_head or 1, query, key) or None
    scale : float
        What the product is multiplied by; head_dim^-½ where the model passes none.
    softcap : float or None
    sinks : Tensor (batch or 1, q_head, query or 1) or None
        Learned sink logits; of each query where they depend on the input.
    bias : Tensor (batch or 1, q_head, query, key) or None
        A bias that is added to the logits apart from the mask.
    is_causal : bool
        Whether a missing mask means causal.
    kernel : str
    window : int or None
        The sliding window that the kernel was told, which a mask may not show on a short text.
    """

    module: Module
    name: str
    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    softcap: float | None
    sinks: Tensor | None
    bias: Tensor | None
    is_causal: bool
    kernel: str
    window: int | None = None

    @property
    def mask_is_boolean_keep(self) -> bool:
        """A boolean mask means "keep" to sdpa; eager functions add whatever they get."""
        return self.mask is not None and self.mask.dtype == torch.bool and self.kernel != "eager"

    def visible(self) -> Tensor | None:
        """Which keys each query sees by the mask: (batch or 1, head or 1, query, key) bool; None without a mask."""
        if self.mask is None:
            return None
        mask = self.mask[..., : self.key.shape[2]]
        return mask if self.mask_is_boolean_keep else mask > HIDDEN_BELOW

    def additive(self) -> Tensor | None:
        """The part of mask and bias that shifts visible logits: (batch or 1, head or 1, query, key); None where 0."""
        parts = [] if self.bias is None else [self.bias]
        if self.mask is not None and not self.mask_is_boolean_keep:
            mask = self.mask[..., : self.key.shape[2]]
            shift = torch.where(mask > HIDDEN_BELOW, mask, 0)
            if bool(shift.any()):
                parts.append(shift)
        return sum(parts[1:], parts[0]) if parts else None

    def visibility(self, valid: Tensor | None = None) -> Visibility:
        """Intervals of visible keys.

        Parameters
        ----------
        valid : Tensor (batch, pos), bool, optional
            Where the text is, as against padding.

        Raises
        ------
        UnsupportedModel
            Where the mask differs between heads or is not made of intervals.
        """
        n_queries, n_keys = self.query.shape[2], self.key.shape[2]
        visible = self.visible()
        if visible is None:
            plain = causal if self.is_causal and n_queries > 1 else everything
            return plain(n_queries, n_keys, device=self.query.device)
        if visible.shape[1] > 1 and bool((visible != visible[:, :1]).any()):
            raise UnsupportedModel(
                f"Layer {self.layer} ({self.name}) masks its heads differently; geomprobe cannot read it."
            )
        return from_dense(visible[:, 0], valid)


def _softcap(kwargs: dict[str, Any]) -> float | None:
    cap = kwargs.get("softcap")
    return None if cap is None else float(cap)


def _sinks(kwargs: dict[str, Any]) -> Tensor | None:
    sinks = kwargs.get("s_aux")
    if sinks is None:
        sinks = kwargs.get("sinks")
    if sinks is None:
        return None
    sinks = sinks.detach()
    if sinks.dim() == 4 and sinks.shape[3] == 1:
        return sinks[..., 0]
    if sinks.dim() != 1:
        raise UnsupportedModel(
            f"This model's learned sinks have the shape {tuple(sinks.shape)}; "
            "geomprobe reads one logit a head, or one a query and head."
        )
    return sinks[None, :, None]


def read_call(
    where: tuple[str, int], module: Module, kernel: str, args: tuple, kwargs: dict[str, Any]
) -> AttentionCall:
    """The call in one layout, from the arguments that the kernel was given; `where` is (name, layer).

    Raises
    ------
    UnsupportedModel
        Where the kernel is one whose mask geomprobe does not read.
    """
    name, layer = where
    kernel = kernel or "eager"
    if kernel not in READABLE_KERNELS:
        raise UnsupportedModel(
            f"The attention kernel {kernel!r} hides its mask; "
            "load the model with attn_implementation='sdpa' or 'eager'."
        )
    given = dict(zip(_POSITIONAL, args, strict=False))
    if len(args) > len(_POSITIONAL):
        raise UnsupportedModel(
            f"{type(module).__name__} calls its attention kernel in a way that geomprobe does not know."
        )
    given.update({key: kwargs[key] for key in _POSITIONAL if key in kwargs})
    query, key, value = given["query"].detach(), given["key"].detach(), given["value"].detach()
    scale = kwargs.get("scaling")
    is_causal = kwargs.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    bias = kwargs.get("position_bias")
    return AttentionCall(
        module=module,
        name=name,
        layer=layer,
        query=query,
        key=key,
        value=value,
        mask=given.get("attention_mask"),
        scale=float(query.shape[-1] ** -0.5 if scale is None else scale),
        softcap=_softcap(kwargs),
        sinks=_sinks(kwargs),
        bias=None if bias is None else bias.detach(),
        # eager takes a missing mask at its word: nothing is hidden.
        is_causal=bool(is_causal) and kernel != "eager",
        kernel=kernel,
        window=kwargs.get("sliding_window"),
    )
