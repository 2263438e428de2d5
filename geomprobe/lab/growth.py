"""What is measured while a model is trained: lengths, logits and sinks on the same few texts, and how updates point."""

from typing import Any, Final

import torch
from torch import Tensor

from geomprobe.attention.seam import Seen, watching
from geomprobe.attention.stages import Notebook
from geomprobe.lab.model import LabForCausalLM
from geomprobe.labels import FROM_ROW

VECTORS: Final = ("q", "k")


def measure(
    model: LabForCausalLM, ids: Tensor, before: dict[str, Tensor], notebook: Notebook
) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Lengths and attention on some sequences.

    Parameters
    ----------
    model : LabForCausalLM
    ids : Tensor (sequence, pos)
    before : dict
        The scored vectors of an earlier call, to see how far the same tokens' vectors turned; empty the first time.
    notebook : Notebook
        Of this model, kept between calls.

    Returns
    -------
    list of dict
        A row a layer: `log_length_q`, `log_length_k` (mean over heads and positions but the first, as scored),
        `log_projected_q`, `log_projected_k` (before a norm), `turn_q`, `turn_k` (mean angle to the vectors `before`, in
        radians; NaN the first time), `max_logit` (greatest |logit| that a query sees), `entropy` (mean over rows past
        the sixteenth, in nats), `first_mass` (mean attention to position 0 of the same rows).
    dict
        The scored vectors.
    """
    rows: list[dict[str, Any]] = []
    now: dict[str, Tensor] = {}

    def see(seen: Seen) -> None:
        layer = len(rows)
        row: dict[str, Any] = {"layer": layer}
        for vector in VECTORS:
            stages = seen.stages(vector)
            scored, projected = stages["scored"][:, :, 1:], stages["projected"][:, :, 1:]
            row[f"log_length_{vector}"] = _log_length(scored)
            row[f"log_projected_{vector}"] = _log_length(projected)
            row[f"turn_{vector}"] = _turn(scored, before.get(f"{vector}{layer}"))
            now[f"{vector}{layer}"] = scored.detach().clone()
        rows.append({**row, **_attention(seen)})

    training = model.training
    model.eval()
    with torch.no_grad(), watching(model, see, stages=notebook):
        model.model(ids)
    model.train(training)
    return rows, now


def _log_length(x: Tensor) -> float:
    return float(x.double().norm(dim=-1).log().mean())


def _turn(x: Tensor, before: Tensor | None) -> float:
    if before is None:
        return float("nan")
    cosine = torch.nn.functional.cosine_similarity(x.double(), before.double(), dim=-1)
    return float(cosine.clamp(-1, 1).arccos().mean())


def first_masses(model: LabForCausalLM, ids: Tensor, notebook: Notebook) -> list[float]:
    """Attention to position 0, by layer: mean over sequences, heads and rows from 1 on (the probes' `first_mass`).

    Parameters
    ----------
    model : LabForCausalLM
    ids : Tensor (sequence, pos)
    notebook : Notebook
        Of this model.
    """
    found: list[float] = []

    def see(seen: Seen) -> None:
        logits, hidden = _logits(seen)
        share = logits.masked_fill(hidden, -torch.inf).softmax(-1)[:, :, 1:]
        found.append(float(share[..., 0].double().mean()))

    with torch.no_grad(), watching(model, see, stages=notebook):
        model.model(ids)
    return found


def _logits(seen: Seen) -> tuple[Tensor, Tensor]:
    """The logits of one layer (sequence, q_head, row, key), and which of them no row sees (row, key)."""
    call = seen.call
    groups = call.query.shape[1] // call.key.shape[1]
    key = call.key.float().repeat_interleave(groups, dim=1)
    logits = call.query.float() @ key.transpose(2, 3) * call.scale
    length = logits.shape[-1]
    return logits, torch.ones(length, length, dtype=torch.bool, device=logits.device).triu(1)


def _attention(seen: Seen) -> dict[str, float]:
    """Of one layer: the greatest logit, mean entropy and mean attention to the first position."""
    logits, hidden = _logits(seen)
    largest = float(logits.masked_fill(hidden, 0).abs().max())
    share = logits.masked_fill(hidden, -torch.inf).softmax(-1)[:, :, FROM_ROW:]
    return {
        "max_logit": largest,
        "entropy": float(-torch.special.xlogy(share, share).sum(-1).double().mean()),
        "first_mass": float(share[..., 0].double().mean()),
    }


def projections(model: LabForCausalLM) -> dict[tuple[int, str], torch.nn.Parameter]:
    """The weights that make queries and keys, by layer and vector."""
    return {
        (index, vector): getattr(layer.self_attn, f"{vector}_proj").weight
        for index, layer in enumerate(model.model.layers)
        for vector in VECTORS
    }


def step_geometry(weight: Tensor, before: Tensor, *, shrunk: float, head_dim: int) -> dict[str, float]:
    """How an update of a projection points: along the weights of a head, or across.

    Parameters
    ----------
    weight, before : Tensor (head · head_dim, hidden)
        After and before.
    shrunk : float
        Learning rate × weight decay: what decay alone took is given back, so that the gradient's part is left.
    head_dim : int

    Returns
    -------
    dict
        `cosine`: of step and weights, mean over heads (positive: longer); `radial` and `tangential`: the step's parts
        along the weights and across them, over the weights' length, mean over heads; `radial_share`: the squared
        cosine, mean over heads, which a random step has at 1/n for n = head_dim · hidden; `radial_null`: that 1/n;
        `log_growth`: mean over heads of the change of log length, decay included.
    """
    blocks = before.double().unflatten(0, (-1, head_dim)).flatten(1)  # (head, head_dim · hidden)
    after = weight.double().unflatten(0, (-1, head_dim)).flatten(1)
    step = after - blocks * (1 - shrunk)
    cosine = torch.nn.functional.cosine_similarity(step, blocks, dim=-1)
    size = step.norm(dim=-1) / blocks.norm(dim=-1)
    return {
        "cosine": float(cosine.mean()),
        "radial": float((size * cosine).mean()),
        "tangential": float((size * (1 - cosine.square()).clamp(min=0).sqrt()).mean()),
        "radial_share": float(cosine.square().mean()),
        "radial_null": 1 / blocks.shape[1],
        "log_growth": float((after.norm(dim=-1) / blocks.norm(dim=-1)).log().mean()),
    }
