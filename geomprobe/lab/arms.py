"""The arms of the controlled training: what happens to queries and keys, and nothing else."""

from dataclasses import asdict, dataclass
from typing import Final, Literal

from geomprobe.errors import InvalidParameter, one_of, unknown_name

QkNorm = Literal["none", "rms", "rms_gainless", "l2"]
Axis = Literal["head", "full"]
Order = Literal["before_rope", "after_rope"]
Scale = Literal["rsqrt_d", "one", "learned"]

QK_NORMS: Final = ("none", "rms", "rms_gainless", "l2")
AXES: Final = ("head", "full")
ORDERS: Final = ("before_rope", "after_rope")
SCALES: Final = ("rsqrt_d", "one", "learned")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to treat queries and keys before their product.

    Attributes
    ----------
    qk_norm : {"none", "rms", "rms_gainless", "l2"}
        What normalises them: an RMS norm with a gain a channel, shared by the heads; one without; length 1.
    axis : {"head", "full"}
        Over what: each head by itself, or all heads of a token at once.
    order : {"before_rope", "after_rope"}
        Where the norm stands.
    scale : {"rsqrt_d", "one", "learned"}
        What the product is multiplied with: 1/√head_dim, 1, or exp(t) with one t a query head, which begins at
        √head_dim: so L2 norm with a learned scale begins as the RMS norm without a gain.

    Raises
    ------
    InvalidParameter
        For an unknown name, or a norm over all heads behind RoPE, which turns each head by itself.
    """

    qk_norm: QkNorm = "none"
    axis: Axis = "head"
    order: Order = "before_rope"
    scale: Scale = "rsqrt_d"

    def __post_init__(self) -> None:
        one_of("qk_norm", self.qk_norm, QK_NORMS)
        one_of("axis", self.axis, AXES)
        one_of("order", self.order, ORDERS)
        one_of("scale", self.scale, SCALES)
        if self.axis == "full" and self.order == "after_rope":
            raise InvalidParameter("order must be 'before_rope' where the axis is 'full'; got 'after_rope'.")

    @property
    def fields(self) -> dict[str, str]:
        """The fields by name, as the configuration of a model has them."""
        return asdict(self)


ARMS: Final[dict[str, Arm]] = {
    "A0": Arm(),
    "A1": Arm(qk_norm="rms"),
    "A2": Arm(qk_norm="rms_gainless"),
    "A3": Arm(qk_norm="rms", order="after_rope"),
    "A4": Arm(qk_norm="rms_gainless", order="after_rope"),
    "A5": Arm(qk_norm="rms", axis="full"),
    "A6": Arm(qk_norm="l2", scale="learned"),
    "A7": Arm(qk_norm="rms", scale="one"),
    "A8": Arm(qk_norm="l2", scale="one"),
    "A9": Arm(scale="one"),
}
IN_WORDS: Final[dict[str, str]] = {
    "A0": "no QK norm",
    "A1": "RMS norm with gain, before RoPE",
    "A2": "RMS norm without gain, before RoPE",
    "A3": "RMS norm with gain, after RoPE",
    "A4": "RMS norm without gain, after RoPE",
    "A5": "RMS norm with gain over all heads, before RoPE",
    "A6": "L2 norm, learned temperature a head",
    "A7": "RMS norm with gain, no 1/√d",
    "A8": "L2 norm, no gain, no scale",
    "A9": "no QK norm, no 1/√d",
}


def find_arm(name: str) -> Arm:
    """The arm of that name, in whatever case.

    Raises
    ------
    InvalidParameter
        Where none goes by it; the sentence names them all.
    """
    arm = ARMS.get(name.upper())
    if arm is None:
        raise InvalidParameter(unknown_name("arm", name, ARMS))
    return arm


def name_of(arm: Arm) -> str:
    """The arm's name, or its fields in words where it is none of the table."""
    named = {held: name for name, held in ARMS.items()}
    return named.get(arm, "-".join(arm.fields.values()))
