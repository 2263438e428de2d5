"""How a single model type differs from what the generic shrinking makes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Special:
    """How one model type is built.

    Attributes
    ----------
    fields : Mapping
        Fields of the configuration by dotted path; they win over the generic sizes. A list that has one value a layer
        names each kind of layer once, and is repeated where another list is longer.
    start : Mapping
        Arguments without which the class has no default configuration to shrink.
    part : str
        The part of the configuration that the mapping's class is made from, where the auto class does not find it.
    inputs : Callable, optional
        ``inputs(model, config, seed, padded)``, where the mapping's own do not do.
    call : Mapping
        Further arguments of a call; None for one that is to be left out.
    around : Mapping
        The mean of random vectors by their own name, where a model makes no use of the number they start at.
    why : str
        Why the type cannot be built here; empty where it can.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    inputs: Callable[..., Any] | None = None
    call: Mapping[str, Any] = field(default_factory=dict)
    around: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


# A decoder of any type looks at what its encoder made only if it is told to.
CROSSING = {"decoder.is_decoder": True, "decoder.add_cross_attention": True}


def for_types(*model_types: str, **special: Any) -> dict[str, Special]:
    """The same entry for several types."""
    return dict.fromkeys(model_types, Special(**special))


def inside(part: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields of a part of the configuration."""
    return {f"{part}.{name}": value for name, value in fields.items()}
