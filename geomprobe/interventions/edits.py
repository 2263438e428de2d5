"""Edits of queries and keys on their way to the kernel: one function an edit, and what each needs to know."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

from geomprobe.attention.seam import Seen
from geomprobe.errors import InvalidParameter, unknown_name
from geomprobe.labels import BALANCED, CLASS_INDEX, CLASS_ROWS, FIRST, GAUGES, RAW, UNIONS
from geomprobe.registry import Registry
from geomprobe.stats.gauge import Gauge, Pairing
from geomprobe.stats.turning import pairs_of, turned, turns

DOSE_ERROR: Final = 1e-9  # of the search for a dose between 0 and 1
# Edits of lengths alone, against which a swap of directions can be set.
LENGTH_EDITS: Final = ("neutral_norm", "permute_norm")
_STRONG: Final = ("temperature", "scale_class", "swap_angle")  # edits that take a number


@dataclass(frozen=True, eq=False)
class Known:
    """What an edit may use of one layer, from the half of the windows that is not tested.

    Attributes
    ----------
    key, query : Tensor (kv_head,) and (q_head,), float64
        Geometric mean lengths, position 0 out.
    by_class : Tensor (kv_head, class), float64
        Mean log key length by token class; NaN where there was none.
    pairing : Pairing or None
        Which channels turn together; None where that is not known.
    gain : Tensor (channel,) or None
        Of a key norm before the rotation.
    gauge : Gauge or None
        In which the lengths are; None for that of the model, the raw one.
    balanced : Known or None
        The same in the balanced gauge; None where no edit asks for it, or the pairing is not known.
    """

    key: Tensor
    query: Tensor
    by_class: Tensor
    pairing: Pairing | None = None
    gain: Tensor | None = None
    gauge: Gauge | None = None
    balanced: "Known | None" = None


@dataclass(frozen=True, eq=False)
class Scene:
    """One layer of one batch as an edit finds it, in the gauge of what is known.

    Attributes
    ----------
    seen : Seen
        Raw, as the model made it.
    known : Known
    token_class : Tensor (batch, pos), int64
    seed : int
        Of what is drawn at random: the same for a layer and batch whatever else is edited.
    """

    seen: Seen
    known: Known
    token_class: Tensor
    seed: int

    @cached_property
    def _vectors(self) -> tuple[Tensor, Tensor]:
        query, key = self.seen.call.query, self.seen.call.key
        gauge = self.known.gauge  # rounded to bfloat16 it would be none, so float64
        return (query, key) if gauge is None else gauge.apply(query.double(), key.double())

    @property
    def query(self) -> Tensor:
        """(batch, q_head, pos, head_dim)."""
        return self._vectors[0]

    @property
    def key(self) -> Tensor:
        """(batch, kv_head, pos, head_dim)."""
        return self._vectors[1]

    @cached_property
    def content(self) -> Tensor | None:
        """Keys before the rotation, shaped alike; None where they are not known.

        One number a rotary pair commutes with the rotation, and what does not turn is its own content: so this stage is
        in a gauge what the keys are.
        """
        found, gauge = self.seen.stages("k").get("content"), self.known.gauge
        return found if found is None or gauge is None else gauge.keys(found.double())

    @cached_property
    def norm(self) -> Tensor:
        """Lengths of the keys: (batch, kv_head, pos, 1), float64."""
        return self.key.double().norm(dim=-1, keepdim=True)

    @cached_property
    def length(self) -> Tensor:
        """The same, 1 where a key is 0, to divide by."""
        return torch.where(self.norm > 0, self.norm, 1)

    def drawn(self, length: int) -> Tensor:
        """A permutation of the positions past 0, which stays: (pos,), int64."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(length - 1, generator=generator)])


Change = tuple[Tensor, Tensor]
EDITS: Registry[Callable[[Scene, "Setting"], Change]] = Registry("edit")


@dataclass(frozen=True)
class Setting:
    """An edit with its strength.

    Attributes
    ----------
    edit : str
    strength : float
        Meaning by edit: the dose of swap_angle, β of temperature, δ of scale_class; 1 elsewhere.
    token_class : str
        Of scale_class and equalise_class.
    against : str
        Of swap_angle: the edit of lengths that moves keys as far; its dose is then found layer by layer, and `strength`
        is the most that it can be.
    gauge : str
        In which the edit is made.
    """

    edit: str
    strength: float = 1.0
    token_class: str = ""
    against: str = ""
    gauge: str = RAW

    def __str__(self) -> str:
        parts = [part for part in (self.token_class, self.against) if part]
        if self.edit in _STRONG and not self.against:
            parts.append(f"{self.strength:.15g}")
        shown = f"{self.edit}({', '.join(parts)})" if parts else self.edit
        return shown if self.gauge == RAW else f"{shown}@{self.gauge}"


def parse_edit(text: str) -> Setting:
    """Read "neutral_norm", "temperature:0.5", "scale_class:function:0.5@balanced", "swap_angle:permute_norm".

    Raises
    ------
    InvalidParameter
        For an unknown edit, class or gauge, or a strength that is no number.
    """
    words, at, gauge = text.partition("@")
    name, *rest = words.split(":")
    if name not in list(EDITS):
        raise InvalidParameter(unknown_name("edit", name, EDITS))
    if at and gauge not in GAUGES:
        known = " or ".join(GAUGES)
        raise InvalidParameter(f"The gauge of an edit must be {known}, as in permute_norm@balanced; got {text!r}.")
    if name == "scalar_gain" and gauge == BALANCED:
        raise InvalidParameter("scalar_gain replaces a gain, which the norm has in the raw gauge; leave out @balanced.")
    chosen = Setting(name, gauge=gauge or RAW)
    if name in ("scale_class", "equalise_class"):
        token_class = rest.pop(0) if rest else ""
        if token_class not in CLASS_ROWS or token_class == FIRST:
            raise InvalidParameter(f"{name} needs a token class behind it, as in {name}:function; got {text!r}.")
        chosen = replace(chosen, token_class=token_class)
    if name == "scale_class" and not rest:
        raise InvalidParameter(f"scale_class needs a strength, as in scale_class:function:0.5; got {text!r}.")
    if rest and name not in _STRONG:
        raise InvalidParameter(f"{name} takes no strength; got {text!r}.")
    if len(rest) > 1:
        raise InvalidParameter(f"{name} takes one strength; got {text!r}.")
    if rest and name == "swap_angle" and rest[0] in LENGTH_EDITS:
        return replace(chosen, against=rest[0])
    return replace(chosen, strength=_strength(name, rest[0])) if rest else chosen


def _strength(name: str, text: str) -> float:
    dose = f"The dose of swap_angle must be between 0 and 1, or {' or '.join(LENGTH_EDITS)}; got {text!r}."
    try:
        strength = float(text)
    except ValueError as error:
        said = dose if name == "swap_angle" else f"The strength of {name} must be a number; got {text!r}."
        raise InvalidParameter(said) from error
    if name == "swap_angle" and not 0 <= strength <= 1:
        raise InvalidParameter(dose)
    if name == "temperature" and not strength > 0:
        raise InvalidParameter(f"temperature must be above 0; got {text!r}.")
    if not math.isfinite(strength):
        raise InvalidParameter(f"The strength of {name} must be finite; got {text!r}.")
    return strength


class Made(NamedTuple):
    """What an edit hands to the kernel, and how far it moved the keys in its own gauge."""

    query: Tensor
    key: Tensor
    displacement: float


def make(scene: Scene, setting: Setting) -> Made:
    """Edit the vectors of a layer in the edit's gauge: transform, edit, transform back.

    Parameters
    ----------
    scene : Scene
        In the raw gauge.
    setting : Setting

    Raises
    ------
    InvalidParameter
        Where the layer cannot have this edit.
    """
    edit = EDITS[setting.edit]
    if setting.gauge == RAW:
        query, key = edit(scene, setting)
        return Made(query, key, displacement(scene, key))
    if scene.known.balanced is None:
        raise InvalidParameter(
            f"{setting} needs to know in what pairs layer {scene.seen.call.layer} turns its channels, and that is not "
            "known; leave the layer out with --layers."
        )
    other = replace(scene, known=scene.known.balanced)
    query, key = edit(other, setting)
    assert other.known.gauge is not None
    back_query, back_key = other.known.gauge.undo(query, key)
    # What an edit leaves alone stays as it was, to the last bit.
    return Made(
        scene.query if query is other.query else back_query.to(scene.query.dtype),
        scene.key if key is other.key else _but_first(scene.key, back_key),
        displacement(other, key),
    )


def _length(x: Tensor) -> Tensor:
    """Lengths, 1 where a vector is 0 (it has no direction and stays): (…, pos, 1), float64."""
    length = x.double().norm(dim=-1, keepdim=True)
    return torch.where(length > 0, length, 1)


def _but_first(old: Tensor, new: Tensor) -> Tensor:
    """`new`, position 0 as it was, in the dtype of `old`."""
    made = new.to(old.dtype)
    return torch.cat([old[:, :, :1], made[:, :, 1:]], dim=2)


def member(token_class: Tensor, name: str) -> Tensor:
    """Which tokens are of a class or union of classes, position 0 apart: (batch, pos), bool."""
    names = UNIONS.get(name, (name,))
    inside = torch.isin(token_class, torch.tensor([CLASS_INDEX[part] for part in names], device=token_class.device))
    return inside & (torch.arange(token_class.shape[1], device=token_class.device) > 0)


@EDITS.register("sham")
def sham(scene: Scene, setting: Setting) -> Change:
    """Keys rewritten with themselves."""
    return scene.query.clone(), scene.key.clone()


def _factor(scene: Scene, name: str) -> Tensor:
    """What an edit of lengths multiplies keys by: (batch, kv_head, pos, 1), float64."""
    if name == "neutral_norm":
        middle = scene.known.key.to(scene.key.device)[None, :, None, None]
        return middle / scene.length
    return scene.norm[:, :, scene.drawn(scene.key.shape[2])] / scene.length


@EDITS.register("neutral_norm")
def neutral_norm(scene: Scene, setting: Setting) -> Change:
    """Every key at its head's geometric mean length."""
    return scene.query, _but_first(scene.key, scene.key.double() * _factor(scene, "neutral_norm"))


@EDITS.register("permute_norm")
def permute_norm(scene: Scene, setting: Setting) -> Change:
    """Key lengths shuffled among the positions of a window."""
    return scene.query, _but_first(scene.key, scene.key.double() * _factor(scene, "permute_norm"))


@EDITS.register("swap_angle")
def swap_angle(scene: Scene, setting: Setting) -> Change:
    """Key directions mixed with those of other tokens' content vectors, turned to the key's own place; lengths stay."""
    key, content, pairing = scene.key, scene.content, scene.known.pairing
    if content is None or pairing is None:
        raise InvalidParameter(
            f"swap_angle needs to know how layer {scene.seen.call.layer} rotates its keys, and that is not known; "
            "leave the layer out with --layers."
        )
    other = content[:, :, scene.drawn(key.shape[2])].double()
    first, second = pairing.first, pairing.second
    if len(first):
        turn = turns(pairs_of(content, first, second), pairs_of(key, first, second))
        other = turned(other, torch.nan_to_num(turn, nan=1.0), first, second)
    own, other = key.double() / scene.length, other / _length(other)
    dose = _dose(own, other, _factor(scene, setting.against)) if setting.against else setting.strength
    mixed = (1 - dose) * own + dose * other
    return scene.query, _but_first(key, mixed * (scene.norm / _length(mixed)))


def _dose(own: Tensor, other: Tensor, factor: Tensor) -> float:
    """How far directions must be mixed with others to move keys, on the mean, as far as other lengths do.

    How far a key is moved depends on its cosine with the other direction alone, so the search needs no vectors.

    Parameters
    ----------
    own, other : Tensor (batch, kv_head, pos, channel), float64
        Of length 1, or 0.
    factor : Tensor (batch, kv_head, pos, 1), float64
        Lengths that keys would have, over those they have.
    """
    own, other = own[:, :, 1:], other[:, :, 1:]
    here, there, cosine = own.square().sum(-1), other.square().sum(-1), (own * other).sum(-1)  # (batch, kv_head, pos)
    here = here.round()  # 1, or 0 for a key that has no length to be changed
    target = float((here * (factor[:, :, 1:, 0] - 1).abs()).mean())

    def moved(dose: float) -> float:
        rest = 1 - dose
        square = rest**2 * here + 2 * rest * dose * cosine + dose**2 * there  # of the mixed direction's length
        whole = torch.where(square > 0, square, 1)
        away = square / whole + here - 2 * (rest * here + dose * cosine) / whole.sqrt()
        return float((here * away).clamp(min=0).sqrt().mean())

    # Further towards the other direction is further away, as far as that goes.
    if target <= moved(0.0) or moved(1.0) <= target:
        return float(target > moved(0.0))
    return float(brentq(lambda dose: moved(dose) - target, 0.0, 1.0, xtol=DOSE_ERROR))


@EDITS.register("neutral_query")
def neutral_query(scene: Scene, setting: Setting) -> Change:
    """Every query at its head's geometric mean length."""
    middle = scene.known.query.to(scene.query.device)[None, :, None, None]
    return _but_first(scene.query, scene.query.double() * (middle / _length(scene.query))), scene.key


@EDITS.register("temperature")
def temperature(scene: Scene, setting: Setting) -> Change:
    """All logits times β (before a soft-cap), by the queries."""
    return (scene.query.double() * setting.strength).to(scene.query.dtype), scene.key


@EDITS.register("scale_class")
def scale_class(scene: Scene, setting: Setting) -> Change:
    """Keys of a class e^δ times as long."""
    inside = member(scene.token_class, setting.token_class)[:, None, :, None]
    factor = torch.where(inside, torch.tensor(setting.strength, dtype=torch.float64).exp().to(inside.device), 1)
    return scene.query, (scene.key.double() * factor).to(scene.key.dtype)


@EDITS.register("equalise_class")
def equalise_class(scene: Scene, setting: Setting) -> Change:
    """Keys of a class at the geometric mean length of content words."""
    inside = member(scene.token_class, setting.token_class)[:, None, :, None]
    usual = scene.known.by_class[:, CLASS_INDEX["content"]].exp().to(scene.key.device)[None, :, None, None]
    factor = torch.where(inside & torch.isfinite(usual), usual / scene.length, 1)
    return scene.query, (scene.key.double() * factor).to(scene.key.dtype)


@EDITS.register("scalar_gain")
def scalar_gain(scene: Scene, setting: Setting) -> Change:
    """The gain of the key norm replaced by its root mean square, one number for all channels."""
    key, content, known = scene.key, scene.content, scene.known
    if known.gain is None or content is None or known.pairing is None:
        raise InvalidParameter(
            f"scalar_gain needs a key norm with a gain before the rotation, and layer {scene.seen.call.layer} has "
            "none that is known; leave the layer out with --layers."
        )
    gain = known.gain.to(key.device)
    level = gain.square().mean().sqrt() * torch.sign(gain)
    factor = torch.where(gain != 0, level / torch.where(gain != 0, gain, 1), 0)
    first, second = known.pairing.first, known.pairing.second
    made = content.double() * factor
    if len(first):
        turn = turns(pairs_of(content, first, second), pairs_of(key, first, second))
        made = turned(made, torch.nan_to_num(turn, nan=1.0), first, second)
    return scene.query, _but_first(key, made)


def displacement(scene: Scene, key: Tensor) -> float:
    """Mean ‖k' − k‖/‖k‖ over heads and positions past 0."""
    if key is scene.key:
        return 0.0
    away = (key.double() - scene.key.double()).norm(dim=-1, keepdim=True) / scene.length
    return float(away[:, :, 1:].mean())
