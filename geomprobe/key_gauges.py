"""The balanced gauge of each layer's keys, for vectors that are looked at before the rotation.

Its moments are those of the first half of a run's windows, as in the probe `split`: one run has one balanced gauge,
whichever probes ask, and it is not fitted on the vectors that it is applied to.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.seam import Seen, watching
from geomprobe.attention.spec import LayerSpec, ModelSpec
from geomprobe.attention.stages import Notebook
from geomprobe.models.calling import run as call
from geomprobe.models.calling import text_inputs
from geomprobe.stats import gauge as gauges

# Layer → (kv_head, d, d), float64: a key, as a row, times that of its head.
KeyGauges = dict[int, NDArray[np.float64]]

_TURNED: Final = 1e-2  # of a vector's length, that rounding to bfloat16 may be off


def key_gauges(
    model: Module, spec: ModelSpec, ids: NDArray[np.int64], notebook: Notebook, *, batch_size: int
) -> KeyGauges:
    """Fit the gauges on windows of text.

    Parameters
    ----------
    model : Module
        Its head, which predicts tokens, does not run.
    spec : ModelSpec
    ids : ndarray (window, token)
        Position 0 of each is left out; without windows there are no gauges.
    notebook : Notebook
        That of `examine`.
    batch_size : int
        Windows a forward pass.

    Returns
    -------
    dict from layer to ndarray (kv_head, d, d), float64
        Layers whose channels turn in pairs that are known, or not at all, and whose scored keys are those of the stage
        content, turned and made longer or shorter as a whole. Elsewhere something else stands between (the gain of a
        norm behind the rotation), and a gauge of what is scored is none of the content.
    """
    layers = {layer.module: layer for layer in spec.layers if layer.pairs is not None}
    moments: dict[str, gauges.Moments] = {}
    looked_at: set[str] = set()

    def see(seen: Seen) -> None:
        layer = layers.get(seen.call.name)
        if layer is None:
            return
        query, key = (x.cpu() for x in (seen.call.query, seen.call.key))  # not every device has float64
        if layer.module not in looked_at:
            looked_at.add(layer.module)
            content = seen.stages("k").get("content")
            if content is not None and turned(content.cpu(), key, _pairing(layer)):
                moments[layer.module] = gauges.empty(key.shape[1], key.shape[3])
        if layer.module in moments:
            gauges.add(moments[layer.module], query, key)

    body: Any = getattr(model, "base_model", model)
    device = next(model.parameters()).device
    with torch.no_grad(), watching(model, see, stages=notebook):
        for begin in range(0, len(ids), batch_size):
            call(body, text_inputs(model, torch.from_numpy(ids[begin : begin + batch_size]).to(device)))
    made = {}
    for name, own in moments.items():
        layer = layers[name]
        centred = layer.softcap is None and not layer.learned_sinks
        made[layer.layer] = gauges.balanced(own, _pairing(layer), centred=centred).key.numpy()
    return made


def kept_gauges(file: Path, fit: Any) -> KeyGauges:
    """The gauges in a file; where there is none, those that `fit` makes, written there by rename."""
    if not file.exists():
        made: KeyGauges = fit()
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.part")
        save_file({str(layer): np.ascontiguousarray(matrix) for layer, matrix in made.items()}, part)
        part.replace(file)
    return {int(layer): matrix for layer, matrix in load_file(file).items()}


def _pairing(layer: LayerSpec) -> gauges.Pairing:
    assert layer.pairs is not None
    return gauges.Pairing.of(layer.head_dim, layer.pairs[1], layer.pairs[0])


def turned(content: Tensor, scored: Tensor, pairing: gauges.Pairing) -> bool:
    """Whether vectors are turned in their pairs, and made longer or shorter as a whole, and nothing else.

    Parameters
    ----------
    content, scored : Tensor (batch, head, pos, channel)
    pairing : Pairing
    """
    if content.shape != scored.shape:
        return False
    before, after = (_unturned(x.double(), pairing) for x in (content, scored))
    length = after.norm(dim=-1, keepdim=True)
    factor = length / before.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return bool(((after - factor * before).norm(dim=-1, keepdim=True) <= _TURNED * length).all())


def _unturned(x: Tensor, pairing: gauges.Pairing) -> Tensor:
    """What a rotation leaves as it is: the length of each pair, and the channels that do not turn."""
    pairs = torch.stack([x[..., pairing.first], x[..., pairing.second]], -1).norm(dim=-1)
    return torch.cat([pairs, x[..., pairing.free]], -1)
