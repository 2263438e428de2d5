"""The loss of a decoder with a large vocabulary, a slice of positions at a time, so that logits stay in the cache."""

from typing import Any, Final

import torch
from torch import Tensor

ROWS: Final = 256  # positions whose logits are held at once


class _Head(torch.autograd.Function):
    """Cross-entropy behind a linear head; its gradients are made on the way, as logits are not kept."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        n = len(target)
        total = hidden.new_zeros((), dtype=torch.float64 if hidden.device.type == "cpu" else torch.float32)
        need = hidden.requires_grad or weight.requires_grad
        d_hidden = torch.empty_like(hidden) if need else None
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if need else None
        for begin in range(0, n, ROWS):
            rows = slice(begin, begin + ROWS)
            logits = (hidden[rows] @ weight.T).float()  # (row, vocabulary)
            wanted = target[rows, None]
            top = logits.amax(-1, keepdim=True)
            logits.sub_(top)
            score = logits.gather(1, wanted)  # (row, 1)
            logits.exp_()
            mass = logits.sum(-1, keepdim=True)
            total += (mass.log() - score).sum()
            if d_hidden is not None and d_weight is not None:
                # d loss / d logits = (softmax − one-hot) / n
                logits.div_(mass * n)
                logits.scatter_add_(1, wanted, torch.full_like(score, -1.0 / n))
                slope = logits.to(hidden.dtype)
                d_hidden[rows] = slope @ weight
                d_weight.addmm_(slope.T.float(), hidden[rows].float())
        ctx.save_for_backward(d_hidden, d_weight)
        ctx.weight_dtype = weight.dtype
        return (total / n).float()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        d_hidden, d_weight = ctx.saved_tensors
        (slope,) = slopes
        return d_hidden * slope, (d_weight * slope).to(ctx.weight_dtype), None


def head_loss(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of the tokens that follow.

    Parameters
    ----------
    hidden : Tensor (n, hidden)
        What the decoder makes of each position.
    weight : Tensor (vocabulary, hidden)
    target : Tensor (n,) int64
        The token that follows each.

    Returns
    -------
    Tensor
        A scalar in float32, with gradients for hidden and weight.
    """
    # Gradients are made on the way, so they must not be where nobody asks for them.
    return _Head.apply(hidden, weight if torch.is_grad_enabled() else weight.detach(), target)
