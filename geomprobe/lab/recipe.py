"""All that decides what a training makes, and the sizes that have a name."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from math import cos, pi
from typing import Any, Final

from geomprobe.errors import InvalidParameter, at_least, between, one_of, unknown_name
from geomprobe.lab.arms import Arm

TASKS: Final = ("text", "backcopy")
POSITIONS: Final = 4  # a model has so many times the positions that it is trained on
VERSION: Final = 1  # of the training: another one makes other weights


@dataclass(frozen=True, kw_only=True)
class Size:
    """Widths and counts of a decoder.

    Raises
    ------
    InvalidParameter
        Where a number is below 1, heads are no multiple of key heads, or head_dim is odd (RoPE turns pairs).
    """

    vocab_size: int = 4096
    hidden: int = 128
    intermediate: int = 384
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            at_least(name, value, 1)
        between("vocab_size", self.vocab_size, 4, 65536)  # tokens are kept in 16 bits
        if self.heads % self.kv_heads:
            raise InvalidParameter(f"heads must be a multiple of kv_heads, {self.kv_heads}; got {self.heads}.")
        if self.head_dim % 2:
            raise InvalidParameter(f"head_dim must be even, as RoPE turns pairs of channels; got {self.head_dim}.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides the weights of a training, but for the machine.

    Attributes
    ----------
    arm : Arm
        The one factor in which twins differ.
    seed : int
        Of the initial weights and of the order of the data.
    task : {"text", "backcopy"}
    size : Size
    tokens : int
        Seen in training; rounded up to whole steps.
    length : int
        Tokens of a sequence; the model has four times as many positions.
    batch : int
        Sequences a step.
    rate : float
        The highest learning rate: reached after `warmup`, then along a cosine down to a tenth.
    warmup : float
        Share of the steps.
    decay : float
        Weight decay of matrices (AdamW).
    clip : float
        Greatest norm of the gradient; 0 for none.
    renamed : int
        How many frequent words get a second token; texts only.
    bos : bool
        Whether the token that ends documents stands in place of the first of each sequence, as a BOS that tells where
        a sequence begins; texts only. What is predicted stays the same.
    dtype : {"float32", "bfloat16"}
        Of the products; weights are float32.

    Raises
    ------
    InvalidParameter
        For a value outside its domain.
    """

    arm: Arm = field(default_factory=Arm)
    seed: int = 0
    task: str = "text"
    size: Size = field(default_factory=Size)
    tokens: int = 3_000_000
    length: int = 512
    batch: int = 8
    rate: float = 2e-3
    warmup: float = 0.05
    decay: float = 0.1
    clip: float = 1.0
    renamed: int = 0
    bos: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        one_of("task", self.task, TASKS)
        one_of("dtype", self.dtype, ("float32", "bfloat16"))
        between("seed", self.seed, 0, 2**31 - 1)
        at_least("length", self.length, 8)
        at_least("batch", self.batch, 1)
        at_least("tokens", self.tokens, 1)
        at_least("renamed", self.renamed, 0)
        at_least("decay", self.decay, 0)
        at_least("clip", self.clip, 0)
        between("warmup", self.warmup, 0, 1)
        if not 0 < self.rate < 10:
            raise InvalidParameter(f"rate must be between 0 and 10; got {self.rate!r}.")
        if self.task == "backcopy" and self.renamed:
            raise InvalidParameter("renamed is about texts; leave it out with the task backcopy.")
        if self.task == "backcopy" and self.bos:
            raise InvalidParameter("bos is about texts; leave it out with the task backcopy.")

    @property
    def n_steps(self) -> int:
        """Updates."""
        return -(-self.tokens // (self.batch * self.length))

    def rate_at(self, step: int) -> float:
        """The learning rate of an update, counted from 0: linear warm-up, then a cosine to a tenth."""
        warm = max(1, round(self.warmup * self.n_steps))
        if step < warm:
            return self.rate * (step + 1) / warm
        along = (step - warm) / max(1, self.n_steps - 1 - warm)
        return self.rate * (0.1 + 0.9 * 0.5 * (1 + cos(pi * along)))

    @property
    def described(self) -> dict[str, Any]:
        """Its fields, for a manifest.

        `bos` stands there where there is one alone: so trainings from before there was the field keep their hash.
        """
        described = asdict(self)
        if not self.bos:
            del described["bos"]
        return described

    def fingerprint(self, data_sha256: str) -> str:
        """The sha256 of the recipe and its data, in hex."""
        return _sha256({"version": VERSION, "data": data_sha256, **self.described})

    def pair(self, data_sha256: str) -> str:
        """The same without the arm: twins have it in common."""
        return _sha256({"version": VERSION, "data": data_sha256, **self.described, "arm": None})


def read_recipe(described: dict[str, Any]) -> Recipe:
    """The recipe that `described` gave."""
    return Recipe(**{**described, "arm": Arm(**described["arm"]), "size": Size(**described["size"])})


def _sha256(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


PRESETS: Final[dict[str, Recipe]] = {
    "nano": Recipe(),
    "micro": Recipe(
        size=Size(vocab_size=8192, hidden=192, intermediate=512, layers=6, heads=6, kv_heads=3), tokens=8_000_000
    ),
    "small": Recipe(
        size=Size(vocab_size=32768, hidden=512, intermediate=1408, layers=12, heads=8, kv_heads=4, head_dim=64),
        tokens=1_000_000_000,
        batch=64,
        rate=1e-3,
        dtype="bfloat16",
    ),
}
BACKCOPY: Final = Recipe(
    task="backcopy",
    size=Size(vocab_size=64, hidden=64, intermediate=128, layers=1, heads=1, kv_heads=1, head_dim=64),
    length=64,
    batch=64,
    tokens=2000 * 64 * 64,
    rate=1e-3,
)


def preset(name: str, **changes: Any) -> Recipe:
    """A preset with some fields changed.

    Raises
    ------
    InvalidParameter
        For an unknown preset, or a value outside its domain.
    """
    known = {**PRESETS, "backcopy": BACKCOPY}
    if name not in known:
        raise InvalidParameter(unknown_name("preset", name, known))
    return replace(known[name], **changes)
