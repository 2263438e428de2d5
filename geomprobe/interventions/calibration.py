"""What edits may know: lengths in the first half of the windows, in the raw gauge and in the balanced one."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from geomprobe.attention.seam import Seen
from geomprobe.attention.spec import LayerSpec, ModelSpec
from geomprobe.interventions.edits import Known, Setting
from geomprobe.labels import BALANCED, FIRST, TOKEN_CLASSES
from geomprobe.stats import gauge as gauges
from geomprobe.stats.gauge import Gauge, Pairing

_REST = [index for index, name in enumerate(TOKEN_CLASSES) if name != FIRST]


class _Lengths:
    """Sums of log lengths of one layer, position 0 out; vectors of length 0 have none."""

    def __init__(self, layer: LayerSpec) -> None:
        self.key = torch.zeros(layer.kv_heads, len(TOKEN_CLASSES), 2, dtype=torch.float64)  # how many, and their sum
        self.query = torch.zeros(layer.q_heads, 2, dtype=torch.float64)

    def add(self, query: Tensor, key: Tensor, token_class: Tensor) -> None:
        """Add vectors (batch, head, pos, head_dim) in place."""
        self.query += _logs(query).sum((0, 2))
        one_hot = torch.nn.functional.one_hot(token_class[:, 1:].cpu(), len(TOKEN_CLASSES)).double()
        self.key += torch.einsum("bhpx,bpc->hcx", _logs(key), one_hot)

    def known(self, pairing: Pairing | None, gain: Tensor | None, gauge: Gauge | None) -> Known:
        """Their means."""
        key, counts = self.key[:, _REST].sum(1), self.key[..., 0]
        return Known(
            key=(key[:, 1] / key[:, 0]).exp(),
            query=(self.query[:, 1] / self.query[:, 0]).exp(),
            by_class=self.key[..., 1] / torch.where(counts > 0, counts, torch.nan),
            pairing=pairing,
            gain=gain,
            gauge=gauge,
        )


def _logs(x: Tensor) -> Tensor:
    """Of positions past 0, 1 and the log length; twice 0 where a length is 0: (batch, head, pos, 2), float64."""
    length = x[:, :, 1:].double().norm(dim=-1).cpu()  # (batch, head, pos)
    alive = length > 0
    return torch.stack([alive.double(), torch.where(alive, length, 1).log()], -1)


class Calibration:
    """Reads the first half of the windows: once, or twice where an edit is made in the balanced gauge.

    What lengths are usual in that gauge shows only once the gauge is known, which takes all of those windows.

    Parameters
    ----------
    spec : ModelSpec
    settings : sequence of Setting
        The edits to come.
    """

    def __init__(self, spec: ModelSpec, settings: Sequence[Setting] = ()) -> None:
        self._layers = {layer.module: layer for layer in spec.layers}
        self._raw = {name: _Lengths(layer) for name, layer in self._layers.items()}
        self._balanced: dict[str, _Lengths] = {}
        self._moments: dict[str, gauges.Moments] = {}
        self._gauges: dict[str, Gauge] = {}
        if any(setting.gauge == BALANCED for setting in settings):
            paired = {name: layer for name, layer in self._layers.items() if layer.pairs is not None}
            self._balanced = {name: _Lengths(layer) for name, layer in paired.items()}
            self._moments = {name: gauges.empty(layer.kv_heads, layer.head_dim) for name, layer in paired.items()}

    @property
    def passes(self) -> int:
        """How often the windows must be read, `settle` called after each."""
        return 2 if self._moments else 1

    def add(self, seen: Seen, token_class: Tensor) -> None:
        """Add one layer of one batch."""
        name, query, key = seen.call.name, seen.call.query, seen.call.key
        if name in self._gauges:
            self._balanced[name].add(*self._gauges[name].apply(query.double(), key.double()), token_class)
        elif name in self._raw and not self._gauges:
            self._raw[name].add(query, key, token_class)
            if name in self._moments:
                gauges.add(self._moments[name], query, key)

    def settle(self) -> None:
        """Fix the gauges, after the first pass."""
        for name, moments in self._moments.items():
            if name not in self._gauges:
                layer, pairing = self._layers[name], _pairing(self._layers[name])
                assert pairing is not None
                centred = layer.softcap is None and not layer.learned_sinks
                self._gauges[name] = gauges.balanced(moments, pairing, centred=centred)

    def known(self) -> dict[str, Known]:
        """By module."""
        made = {}
        for name, layer in self._layers.items():
            norm = layer.norms.get("k")
            usable = norm is not None and norm.axis == "head" and norm.order == "before_rope"
            gain = torch.from_numpy(norm.gain) if usable and norm is not None else None
            pairing, balanced = _pairing(layer), None
            if name in self._gauges:
                balanced = self._balanced[name].known(pairing, None, self._gauges[name])
            made[name] = replace(self._raw[name].known(pairing, gain, None), balanced=balanced)
        return made


def _pairing(layer: LayerSpec) -> Pairing | None:
    return None if layer.pairs is None else Pairing.of(layer.head_dim, layer.pairs[1], layer.pairs[0])
