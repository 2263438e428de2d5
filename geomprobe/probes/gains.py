"""The gains of QK norms: how far they are from one number for all channels."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import kurtosis

from geomprobe.attention.spec import LayerSpec, Spec
from geomprobe.labels import ALL_HEADS
from geomprobe.probes.base import PROBES, State, StaticProbe


def pair_asymmetry(gain: NDArray[np.float64], width: int) -> tuple[float, int]:
    """Mean |log(|g_p| / |g_p'|)| over rotary pairs, and how many pairs were dropped for a gain of 0.

    Parameters
    ----------
    gain : ndarray (channel,)
        One or several heads one after the other.
    width : int
        Channels of a head that rotate; channel i pairs with i + width / 2, as in the half-split layout that
        transformers' rotate_half uses.
    """
    if width < 2:
        return float("nan"), 0
    heads = np.abs(gain.reshape(-1, width))
    one, other = heads[:, : width // 2].ravel(), heads[:, width // 2 :].ravel()
    alive = (one > 0) & (other > 0)
    if not alive.any():
        return float("nan"), int((~alive).sum())
    return float(np.abs(np.log(one[alive] / other[alive])).mean()), int((~alive).sum())


@PROBES.register("gains")
@dataclass(frozen=True)
class Gains(StaticProbe):
    """The gain table (docs/schema.md: gains); empty where queries and keys are not normed."""

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """One row a layer and vector that is normed."""
        rows = [self._row(layer, vector) for layer in spec.model.layers for vector in sorted(layer.norms)]
        return {"gains": pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)}

    def _row(self, layer: LayerSpec, vector: str) -> dict[str, object]:
        norm = layer.norms[vector]
        gain = norm.gain
        mean, median = gain.mean(), np.median(np.abs(gain))
        whole_heads = layer.rotary_width == layer.head_dim
        asymmetry, dropped = pair_asymmetry(gain, layer.rotary_width) if whole_heads else (float("nan"), 0)
        varies = bool(gain.std() > 1e-6 * np.abs(mean))
        return {
            "layer": layer.layer,
            "vector": vector,
            "head": ALL_HEADS,
            "axis": norm.axis,
            "order": norm.order,
            "n": len(gain),
            "mean": mean,
            "cv": gain.std() / mean if mean != 0 else np.nan,
            "max_over_median": np.abs(gain).max() / median if median > 0 else np.nan,
            "kurtosis": float(kurtosis(gain)) if varies else np.nan,
            "pair_asymmetry": asymmetry,
            "n_zero": int((gain == 0).sum()),
            "n_negative": int((gain < 0).sum()),
            "n_pairs_dropped": dropped,
        }


COLUMNS = {
    "layer": "int64",
    "vector": "object",
    "head": "int64",
    "axis": "object",
    "order": "object",
    "n": "int64",
    "mean": "float64",
    "cv": "float64",
    "max_over_median": "float64",
    "kurtosis": "float64",
    "pair_asymmetry": "float64",
    "n_zero": "int64",
    "n_negative": "int64",
    "n_pairs_dropped": "int64",
}
