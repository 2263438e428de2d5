"""Edits of queries and keys on their way to the kernel: one function an edit, and what each needs to know."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from geomprobe.attention.seam import Seen
from geomprobe.errors import InvalidParameter, unknown_name
from geomprobe.labels import CLASS_INDEX, CLASS_ROWS, FIRST, UNIONS
from geomprobe.registry import Registry
from geomprobe.stats.gauge import Pairing
from geomprobe.stats.turning import pairs_of, turned, turns

STEPS: Final = 24  # of the search for a dose: 2⁻²⁴ of the whole


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
    """

    key: Tensor
    query: Tensor
    by_class: Tensor
    pairing: Pairing | None = None
    gain: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Scene:
    """One layer of one batch, as an edit finds it.

    Attributes
    ----------
    seen : Seen
    known : Known
    token_class : Tensor (batch, pos), int64
    seed : int
        Of what is drawn at random: the same for a layer and batch whatever else is edited.
    """

    seen: Seen
    known: Known
    token_class: Tensor
    seed: int

    @property
    def query(self) -> Tensor:
        """(batch, q_head, pos, head_dim)."""
        return self.seen.call.query

    @property
    def key(self) -> Tensor:
        """(batch, kv_head, pos, head_dim)."""
        return self.seen.call.key

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
        Meaning by edit: the dose of swap_angle (NaN: as far as neutral_norm moves the keys), β of temperature, δ of
        scale_class; 1 elsewhere.
    token_class : str
        Of scale_class and equalise_class.
    """

    edit: str
    strength: float = 1.0
    token_class: str = ""

    def __str__(self) -> str:
        parts = [self.token_class] if self.token_class else []
        plain = self.edit not in ("temperature", "scale_class", "swap_angle")
        if not plain:
            parts.append("matched" if self.strength != self.strength else f"{self.strength:.15g}")
        return f"{self.edit}({', '.join(parts)})" if parts else self.edit


def parse_edit(text: str) -> Setting:
    """Read "neutral_norm", "temperature:0.5", "scale_class:function:0.5", "swap_angle:matched".

    Raises
    ------
    InvalidParameter
        For an unknown edit or class, or a strength that is no number.
    """
    name, *rest = text.split(":")
    if name not in list(EDITS):
        raise InvalidParameter(unknown_name("edit", name, EDITS))
    chosen = Setting(name)
    if name in ("scale_class", "equalise_class"):
        token_class = rest.pop(0) if rest else ""
        if token_class not in CLASS_ROWS or token_class == FIRST:
            raise InvalidParameter(f"{name} needs a token class behind it, as in {name}:function; got {text!r}.")
        chosen = replace(chosen, token_class=token_class)
    if name == "scale_class" and not rest:
        raise InvalidParameter(f"scale_class needs a strength, as in scale_class:function:0.5; got {text!r}.")
    if name in ("temperature", "scale_class", "swap_angle") and rest:
        if len(rest) > 1:
            raise InvalidParameter(f"{name} takes one strength; got {text!r}.")
        return replace(chosen, strength=_strength(name, rest[0]))
    if rest:
        raise InvalidParameter(f"{name} takes no strength; got {text!r}.")
    return chosen


def _strength(name: str, text: str) -> float:
    if name == "swap_angle" and text == "matched":
        return math.nan
    try:
        strength = float(text)
    except ValueError as error:
        raise InvalidParameter(f"The strength of {name} must be a number; got {text!r}.") from error
    if name == "swap_angle" and not 0 <= strength <= 1:
        raise InvalidParameter(f"The dose of swap_angle must be between 0 and 1, or matched; got {text!r}.")
    if name == "temperature" and not strength > 0:
        raise InvalidParameter(f"temperature must be above 0; got {text!r}.")
    if not math.isfinite(strength):
        raise InvalidParameter(f"The strength of {name} must be finite; got {text!r}.")
    return strength


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


@EDITS.register("neutral_norm")
def neutral_norm(scene: Scene, setting: Setting) -> Change:
    """Every key at its head's geometric mean length."""
    middle = scene.known.key.to(scene.key.device)[None, :, None, None]
    return scene.query, _but_first(scene.key, scene.key.double() * (middle / _length(scene.key)))


@EDITS.register("permute_norm")
def permute_norm(scene: Scene, setting: Setting) -> Change:
    """Key lengths shuffled among the positions of a window."""
    length = _length(scene.key)
    return scene.query, _but_first(
        scene.key, scene.key.double() * (length[:, :, scene.drawn(scene.key.shape[2])] / length)
    )


@EDITS.register("swap_angle")
def swap_angle(scene: Scene, setting: Setting) -> Change:
    """Key directions mixed with those of other tokens' content vectors, turned to the key's own place; lengths stay."""
    key, content, pairing = scene.key, scene.seen.stages("k").get("content"), scene.known.pairing
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
    length = _length(key)
    own, other = key.double() / length, other / _length(other)
    if setting.strength == setting.strength:
        return scene.query, _but_first(key, _mixed(own, other, setting.strength) * length)
    target = displacement(key, neutral_norm(scene, setting)[1])
    low, high = 0.0, 1.0
    for _ in range(STEPS):  # further towards the other direction is further away
        dose = (low + high) / 2
        moved = displacement(key, _but_first(key, _mixed(own, other, dose) * length))
        low, high = (dose, high) if moved < target else (low, dose)
    return scene.query, _but_first(key, _mixed(own, other, low) * length)


def _mixed(own: Tensor, other: Tensor, dose: float) -> Tensor:
    mixed = (1 - dose) * own + dose * other
    return mixed / _length(mixed)


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
    factor = torch.where(inside & torch.isfinite(usual), usual / _length(scene.key), 1)
    return scene.query, (scene.key.double() * factor).to(scene.key.dtype)


@EDITS.register("scalar_gain")
def scalar_gain(scene: Scene, setting: Setting) -> Change:
    """The gain of the key norm replaced by its root mean square, one number for all channels."""
    key, content, known = scene.key, scene.seen.stages("k").get("content"), scene.known
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


def displacement(old: Tensor, new: Tensor) -> float:
    """Mean ‖k' − k‖/‖k‖ over heads and positions past 0."""
    away = (new.double() - old.double()).norm(dim=-1, keepdim=True) / _length(old)
    return float(away[:, :, 1:].mean())
