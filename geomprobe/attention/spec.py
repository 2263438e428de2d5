"""What is known before the pass: the attention layers of the model, and what the corpus holds."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class NormSpec:
    """A norm on queries or keys, as it acts.

    Attributes
    ----------
    module : str
    axis : str
        "head" where each head is normed by itself, "full" where all heads are normed together.
    order : str
        before_rope, after_rope, no_rope or unknown.
    gain : ndarray (channel,), float64
        What the norm multiplies each channel by; measured, so a (1 + w) gain is 1 + w.
    """

    module: str
    axis: str
    order: str
    gain: NDArray[np.float64] = field(repr=False)

    def described(self) -> dict[str, str]:
        """What the manifest says of it."""
        return {"module": self.module, "axis": self.axis, "order": self.order}


@dataclass(frozen=True, eq=False)
class LayerSpec:
    """One attention layer.

    Attributes
    ----------
    layer : int
    module : str
    q_heads, kv_heads, head_dim : int
    window : int or None
        Keys that a late query sees, itself included, where that is less than all.
    scale : float
    softcap : float or None
    learned_sinks : bool
    stages : dict from vector to tuple of str
        The stages that were found.
    norms : dict from vector to NormSpec
        Empty where q and k are not normed.
    rotary_width : int
        Channels that a rotation may mix; 0 without one.
    causal : bool
        Whether no query sees a key behind it; never so where keys are of another stack.
    pairs : (str, tuple of int) or None
        How channels turn in pairs ("half", "interleaved"; "none" where none does) and which; None where not known.
    part : str
        encoder, decoder or cross-attention, in a model of two stacks (labels.PARTS).
    """

    layer: int
    module: str
    q_heads: int
    kv_heads: int
    head_dim: int
    window: int | None
    scale: float
    softcap: float | None
    learned_sinks: bool
    stages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    norms: dict[str, NormSpec] = field(default_factory=dict)
    rotary_width: int = 0
    causal: bool = True
    part: str = ""
    pairs: tuple[str, tuple[int, ...]] | None = ("none", ())

    def described(self) -> dict[str, Any]:
        """What the manifest says of it."""
        norms = {f"{v}_norm": self.norms[v].described() if v in self.norms else None for v in ("q", "k")}
        return {
            "layer": self.layer,
            "module": self.module,
            "q_heads": self.q_heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "window": self.window,
            "scale": self.scale,
            "softcap": self.softcap,
            "learned_sinks": self.learned_sinks,
            "causal": self.causal,
            "part": self.part,
            "stages": {vector: list(stages) for vector, stages in self.stages.items()},
            **norms,
        }


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """The attention layers of a model, in the order in which they run.

    Attributes
    ----------
    layers : tuple of LayerSpec
    skipped : tuple of (str, str)
        Attention modules that an analysis cannot take, and why, in a sentence.
    """

    layers: tuple[LayerSpec, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def n_layers(self) -> int:
        """Number of attention layers."""
        return len(self.layers)

    @property
    def q_heads(self) -> int:
        """The most query heads that a layer has; states are as wide, tables are not."""
        return max(layer.q_heads for layer in self.layers)

    @property
    def kv_heads(self) -> int:
        """The most key heads that a layer has."""
        return max(layer.kv_heads for layer in self.layers)

    @property
    def causal(self) -> bool:
        """Whether all layers are causal."""
        return all(layer.causal for layer in self.layers)

    @property
    def softcapped(self) -> bool:
        """Whether any layer caps its logits."""
        return any(layer.softcap is not None for layer in self.layers)


@dataclass(frozen=True, eq=False)
class CorpusSpec:
    """What the corpus holds, by number, so that states have a fixed shape and merge.

    Attributes
    ----------
    documents : tuple of str
        Names.
    types : tuple of (str, str)
        (lower-cased stripped string, token class).
    zipf : ndarray (type,), float64
    cells : ndarray (cell, 2), int64
        The (type, document) pairs that occur.
    tokens : tuple of (int, str, str)
        The (token id, token class, text) that occur.
    window : int
    """

    documents: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    zipf: NDArray[np.float64]
    cells: NDArray[np.int64]
    tokens: tuple[tuple[int, str, str], ...]
    window: int


@dataclass(frozen=True, eq=False)
class Spec:
    """Everything that shapes a probe's state."""

    model: ModelSpec
    corpus: CorpusSpec
