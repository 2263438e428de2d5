"""Following a query or key back from the kernel, channel by channel, through what happened in its module.

Nothing here knows a family or a class. A channel that enters the kernel is an output column of the rotary function,
whose input is an output column of a norm, whose input is an output column of a projection, in whatever order the model
has them. Where no column has its values, it may be one of them scaled, or normed by a few lines of code without a
module.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from geomprobe.attention.columns import Layout, Match, as_vectors, columns, fingerprints, layouts, match, match_whole
from geomprobe.attention.relation import Relation, relate

Kind = Literal["projection", "norm", "rotation", "scale", "other"]


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happened inside an attention module before its kernel ran."""

    kind: Kind
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    versions: tuple[int, ...] = ()

    def overwritten(self, index: int) -> bool:
        """Whether an output has been written into since (`clamp_`): then it no longer is what came out."""
        return index < len(self.versions) and self.versions[index] != version_of(self.outputs[index])


def version_of(tensor: Tensor) -> int:
    """How often a tensor has been written into; tensors of inference mode do not count, and say 0."""
    return 0 if tensor.is_inference() else tensor._version


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a trace.

    Attributes
    ----------
    kind, name : str
        Of what happened; the name is empty where it was no module and no function that could be watched.
    event : int
        The event that put the channels out. For a step without a name, the event whose output it was made of.
    index : int
        Which of its outputs (and, for a norm or a rotation, inputs).
    layout : Layout
    found : Match
        Which columns they are.
    relation : Relation or None
        For a step without a name: how the channels were made of those columns.
    """

    kind: Kind
    name: str
    event: int
    index: int
    layout: Layout
    found: Match
    relation: Relation | None = None


@dataclass(frozen=True, eq=False)
class Path:
    """How a vector came about, from the kernel back.

    Attributes
    ----------
    steps : tuple of Step
        Last step first.
    complete : bool
        Whether every channel ends at a projection.
    sure : bool
        Whether no column could have been mistaken for another; only then does the path hold for other texts too.
    """

    steps: tuple[Step, ...]
    complete: bool
    sure: bool = True

    @property
    def norm(self) -> Step | None:
        """The norm on the way, or None."""
        return next((step for step in self.steps if step.kind == "norm"), None)

    @property
    def order(self) -> str:
        """Where the norm stands: before_rope, after_rope, no_rope, or unknown."""
        kinds = [step.kind for step in self.steps]
        if "norm" not in kinds or not self.complete:
            return "unknown"
        if "rotation" not in kinds:
            return "no_rope"
        return "after_rope" if kinds.index("norm") < kinds.index("rotation") else "before_rope"


class _Tracer:
    """The channels of one vector, as far back as they have been followed."""

    def __init__(self, scored: Tensor, events: list[Event]) -> None:
        self.batch, self.heads, self.length, _ = scored.shape
        self.events = events
        self.now = scored.transpose(1, 2).flatten(2).clone()  # (batch, pos, channel)
        self.prints = fingerprints(self.now)
        self.open = torch.ones(self.now.shape[2], dtype=torch.bool, device=scored.device)
        self.ended = ~self.open
        self.steps: list[Step] = []

    def run(self) -> Path:
        """Follow every channel as far as it goes."""
        before = untried = len(self.events)
        while bool(self.open.any()):
            # Whole vectors first: a dead channel, all 0, looks like any other dead channel.
            for place in reversed(range(before)):
                self._through(place, whole=True)
            self._set_empty_aside()
            for place in reversed(range(before)):
                self._through(place, whole=False)
            source = self._made_of(untried) if bool(self.open.any()) else None
            if source is None:
                break
            before, untried = source + 1, source
        return Path(tuple(self.steps), bool(self.ended.all()), all(step.found.sure for step in self.steps))

    def _columns(self, tensor: Tensor, layout: Layout) -> Tensor | None:
        found = columns(tensor, layout, self.batch, self.length)
        return None if found is None else found.to(self.now.dtype)

    def _set_empty_aside(self) -> None:
        """Channels that hold nothing but 0 came from anywhere; they count as followed."""
        empty = self.open & (self.now == 0).flatten(0, 1).all(0)
        if bool(empty.any()) and not bool(empty.all()):
            self.open &= ~empty
            self.ended |= empty

    def _through(self, place: int, *, whole: bool) -> None:
        """Follow the channels that an event put out to what it made them of; the whole vector, or what is found."""
        if not bool(self.open.any()) or (whole and not bool(self.open.all())):
            return
        event = self.events[place]
        for index, output in enumerate(event.outputs):
            if not output.is_floating_point():
                continue
            for layout in layouts(output, self.batch, self.length):
                have = self._columns(output, layout)
                if have is None or (whole and not self._may_be_whole(have)):
                    continue
                find = match_whole if whole else match
                found = find(self.prints, self.open, fingerprints(have))
                if found is not None and self._step(event, (place, index), layout, found):
                    break

    def _may_be_whole(self, have: Tensor) -> bool:
        """A look at one token, before the columns of all of them are compared."""
        n, token = self.now.shape[2], self.now[-1, -1]
        if have.shape[2] % n:
            return False
        return any(torch.equal(have[-1, -1, start : start + n], token) for start in range(0, have.shape[2], n))

    def _step(self, event: Event, where: tuple[int, int], layout: Layout, found: Match) -> bool:
        place, index = where
        source = event.inputs[index] if index < len(event.inputs) else None
        # What comes out of a norm or a rotation is laid out as what went in.
        fits = source is not None and source.shape == event.outputs[index].shape and event.kind != "projection"
        given = self._columns(source, layout) if fits and source is not None else None
        if given is not None:
            given = given[..., found.columns]
            if event.kind == "norm" and torch.equal(given, self.now[..., found.channels]):
                return False  # it let them pass as they were: an identity, a dropout at rest
        self.steps.append(Step(event.kind, event.name, place, index, layout, found))
        if given is None:
            self.open[found.channels] = False
            self.ended[found.channels] = event.kind == "projection"
        else:
            self.now[..., found.channels] = given
            self.prints[found.channels] = fingerprints(given)
        return True

    def _made_of(self, before: int) -> int | None:
        """Which earlier event the whole vector is an output of, scaled or normed; None where of none.

        Channels that a clamp did not touch have been found in the projection already; they are taken back, to go the
        way of the others.
        """
        n = self.now.shape[2]
        everything = torch.arange(n, device=self.now.device)
        for place in reversed(range(before)):
            for index, output in enumerate(self.events[place].outputs):
                if not output.is_floating_point():
                    continue
                for layout in layouts(output, self.batch, self.length):
                    have = self._columns(output, layout)
                    if have is None or have.shape[2] % n:
                        continue
                    for start in range(0, have.shape[2], n):
                        source = have[..., start : start + n]
                        relation = relate(as_vectors(self.now, self.heads), as_vectors(source, self.heads))
                        if relation is None:
                            continue
                        found = Match(everything, everything + start, start, sure=True)
                        kind: Kind = "scale" if relation.kind in ("scale", "clamp") else "norm"
                        self.steps = [step for step in self.steps if step.kind != "projection"]
                        self.open[:], self.ended[:] = True, False
                        self.steps.append(Step(kind, "", place, index, layout, found, relation))
                        self.now = source.clone()
                        self.prints = fingerprints(self.now)
                        return place
        return None


def trace(scored: Tensor, events: list[Event]) -> Path:
    """Follow `scored` back through `events`.

    Parameters
    ----------
    scored : Tensor (batch, head, pos, head_dim)
        A query or key as the kernel got it.
    events : list of Event
        In the order in which they happened.
    """
    return _Tracer(scored, events).run()


def _pick(step: Step, tensor: Tensor, like: Tensor) -> Tensor | None:
    """The columns of a step in a tensor: (batch, pos, channel of the step)."""
    batch, _, length, _ = like.shape
    found = columns(tensor, step.layout, batch, length)
    if found is None or found.shape[2] <= int(step.found.columns.max()):
        return None
    if step.found.start is not None:
        return found.narrow(2, step.found.start, step.found.width)
    return found[..., step.found.columns.to(found.device)]


def _whole(step: Step, tensor: Tensor, like: Tensor) -> Tensor | None:
    """All channels of a vector from one tensor, (batch, head, pos, head_dim); without a copy where that can be."""
    if step.layout == Layout("split", 2) and tensor.shape == like.shape and step.found.start == 0:
        return tensor
    found = _pick(step, tensor, like)
    return None if found is None else as_vectors(found, like.shape[1])


def _put_together(parts: list[tuple[Step, Tensor]], like: Tensor, base: Tensor | None) -> Tensor | None:
    """A vector from parts of several tensors; channels that no part has are those of `base`."""
    if len(parts) == 1 and parts[0][0].found.width == like.shape[1] * like.shape[3]:
        return _whole(*parts[0], like)
    batch, heads, length, width = like.shape
    if base is None:
        whole = torch.zeros(batch, length, heads * width, dtype=like.dtype, device=like.device)
    else:
        whole = base.transpose(1, 2).flatten(2).clone()
    for step, tensor in parts:
        found = _pick(step, tensor, like)
        if found is None:
            return None
        whole[..., step.found.channels.to(whole.device)] = found.to(whole.dtype)
    return as_vectors(whole, heads)


def projected_of(scored: Tensor, path: Path, events: list[Event]) -> Tensor | None:
    """What left the projections, as it is now."""
    ends = [step for step in path.steps if step.kind == "projection"]
    if not path.complete or any(step.event >= len(events) for step in path.steps):
        return None
    return _put_together([(step, events[step.event].outputs[step.index]) for step in ends], scored, None)


def stages_of(scored: Tensor, path: Path, events: list[Event]) -> dict[str, Tensor]:
    """The stages that the path shows, each (batch, head, pos, head_dim); `scored` is always there."""
    stages = {"scored": scored}
    if not path.complete or any(step.event >= len(events) for step in path.steps):
        return stages
    ends = [step for step in path.steps if step.kind == "projection"]
    lost = any(events[step.event].overwritten(step.index) for step in ends)
    found = {
        "projected": None if lost else projected_of(scored, path, events),
        "content": _content(scored, path, events),
    }
    # A path found in one call may not hold in another: where a cache lends keys, they are longer than the projection.
    return stages | {name: tensor.detach() for name, tensor in found.items() if tensor is not None}


def _content(scored: Tensor, path: Path, events: list[Event]) -> Tensor | None:
    """The vector before its rotation; a step that comes after one is undone, also for channels that do not turn."""
    turns = [step for step in path.steps if step.kind == "rotation"]
    if not turns:
        return scored
    first = min(step.event for step in turns)
    parts = []
    for step in path.steps:
        if step.event >= first and step.kind in ("norm", "scale", "rotation"):
            source = events[step.event].outputs if step.relation is not None else events[step.event].inputs
            parts.append((step, source[step.index]))
    # In the order of the path, so that what lies further back is written last.
    whole = [part for part in parts if part[0].found.width == scored.shape[1] * scored.shape[3]]
    if whole and parts[-1] is whole[-1]:
        parts = [parts[-1]]
    return _put_together(parts, scored, scored)
