"""Does what geomprobe captures from a model equal what the model computes? Asked of a tiny model of any type.

The model's own attention is whatever its eager code puts through softmax, noted here by torch's function mode, which
shares no code with the package.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, PreTrainedConfig

from geomprobe.attention.seam import Record, capture
from geomprobe.errors import GeomprobeError
from geomprobe.labels import STAGES
from tests.architectures.building import Built, CannotBuild, build

BOUND = 1e-5
_SOFTMAX = (torch.nn.functional.softmax, torch.softmax, torch.Tensor.softmax)


class OwnWeights(TorchFunctionMode):
    """Notes what every softmax puts out, and what scaled_dot_product_attention must have had inside."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.totals: list[Tensor] = []  # log-sum-exp of what entered each, for a sink that is applied afterwards

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        """Run the function; keep the result of a softmax."""
        output = func(*args, **(kwargs or {}))
        if func in _SOFTMAX:
            self.seen.append(output.detach().clone())
            entered = args[0] if args else (kwargs or {})["input"]
            self.totals.append(entered.detach().double().logsumexp(-1, keepdim=True))
        elif func is torch.nn.functional.scaled_dot_product_attention:
            logits = as_documented(*args, **(kwargs or {}))
            self.seen.append(logits.softmax(-1))
            self.totals.append(logits.logsumexp(-1, keepdim=True))
        return output


def as_documented(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
    """The logits of attention as torch's documentation of scaled_dot_product_attention has them."""
    if key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scale = query.shape[-1] ** -0.5 if options.get("scale") is None else options["scale"]
    logits = query.double() @ key.double().transpose(-2, -1) * scale
    if options.get("is_causal"):
        logits = logits.masked_fill(~torch.ones(logits.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        logits = logits + attn_mask.double()
    return logits


@dataclass
class Outcome:
    """What came of a type.

    Attributes
    ----------
    state : str
        verified, refused, failed, or cannot_build.
    why : str
        In words, where it is not verified.
    products : int
        Attention products that were captured.
    worst : float
        How far a rebuilt probability is off, at most.
    stages : dict from vector to dict from stages to int
        How many products show which stages.
    missed : int
        Softmaxes as large as attention's, over four axes, that no record accounts for.
    """

    model_type: str
    mapping: str
    state: str = "verified"
    why: str = ""
    products: int = 0
    worst: float = 0.0
    stages: dict[str, dict[str, int]] = field(default_factory=dict)
    missed: int = 0


def tensors(value: Any) -> list[Tensor]:
    """Every floating tensor in an output, in order."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        return [x for part in value.values() for x in tensors(part)]
    if isinstance(value, list | tuple):
        return [x for part in value for x in tensors(part)]
    return []


def run(built: Built, inputs: dict[str, Any]) -> list[Tensor]:
    """The tensors that a model puts out."""
    torch.manual_seed(0)
    with torch.no_grad():
        return [x.clone() for x in tensors(dict(built.model(**inputs, **built.call_kwargs)))]


@contextlib.contextmanager
def eager(model: Any) -> Iterator[None]:
    """The model on its eager attention, and back on what it had."""
    configs = {
        id(m.config): m.config for m in model.modules() if isinstance(getattr(m, "config", None), PreTrainedConfig)
    }
    before = [(c, getattr(c, "_attn_implementation_internal", None)) for c in configs.values()]
    with contextlib.suppress(ValueError, NotImplementedError):
        model.set_attn_implementation("eager")
    try:
        yield
    finally:
        for config, name in before:
            config._attn_implementation_internal = name


def footprint(model: Module) -> tuple:
    """What a watched model and transformers must look like again afterwards."""
    hooks = tuple(
        (name, len(m._forward_hooks), len(m._forward_pre_hooks), len(m._forward_hooks_always_called))
        for name, m in model.named_modules()
    )
    names = [getattr(c, "_attn_implementation_internal", None) for c in _configs(model)]
    modelling = {
        cls.__module__: tuple(id(x) for x in vars(__import__("sys").modules[cls.__module__]).values() if callable(x))
        for cls in {type(m) for m in model.modules()}
    }
    own = AttentionInterface.get_interface, AttentionInterface.__getitem__
    return hooks, tuple(names), tuple(sorted(modelling.items())), own


def _configs(model: Module) -> list[Any]:
    return list(
        {
            id(m.config): m.config for m in model.modules() if isinstance(getattr(m, "config", None), PreTrainedConfig)
        }.values()
    )


def off_by(record: Record, own: list[Tensor]) -> float:
    """How far a record's attention is from the nearest of the model's own, on rows that see something."""
    made = record.attention().double()
    return min((_difference(made, weights) for weights in own), default=float("inf"))


def _difference(made: Tensor, weights: Tensor) -> float:
    batch, heads, rows, keys = made.shape
    for extra in (0, 1):  # a learned sink stands as a last column
        if weights.numel() == batch * heads * rows * (keys + extra) and weights.shape[-1] == keys + extra:
            theirs = weights.reshape(batch, heads, rows, keys + extra)[..., :keys].double()
            alive = torch.isfinite(made).all(-1) & torch.isfinite(theirs).all(-1)
            if not bool(alive.any()):
                return float("inf")
            return float((made - theirs).abs().amax(-1)[alive].max())
    return float("inf")


def check(built: Built, *, watch: Callable[..., Any] = capture) -> tuple[float, list[Record]]:
    """Capture a model with and without padding, on its own kernel and on eager, and compare.

    Raises
    ------
    AssertionError
        Where an output changes, something is left behind, or attention is not the model's own.
    """
    model, records, worst = built.model, [], 0.0
    run(built, built.plain)  # BigBird changes its layers when it meets a short text
    before = footprint(model)
    for inputs in (built.plain, built.inputs):
        clean = run(built, inputs)
        with watch(model, stages=STAGES) as seen:
            watched = run(built, inputs)
        assert footprint(model) == before, "something is left behind"
        assert len(clean) == len(watched), "the output has other parts when watched"
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(clean, watched, strict=True)), (
            "the output changes when watched"
        )
        assert len(seen) > 0, "no attention was captured"
        with OwnWeights() as own:
            run(built, inputs)
        worst = max(worst, compare(model, seen, own, "its own kernel"))
        with eager(model):
            with OwnWeights() as own:
                run(built, inputs)
            with watch(model, stages=STAGES) as plain:
                run(built, inputs)
        worst = max(worst, compare(model, plain, own, "eager"))
        records = records or list(seen)
    raises(built, watch)
    assert footprint(model) == before, "something is left behind after an exception"
    return worst, records


def compare(model: Module, records: Iterable[Record], own: OwnWeights, kernel: str) -> float:
    """The worst difference; raises AssertionError where one is beyond the bound."""
    worst = 0.0
    for record in records:
        off = off_by(record, own.seen)
        sinks = getattr(model.get_submodule(record.module), "sinks", None)
        if off > BOUND and isinstance(sinks, Tensor) and sinks.dim() == 1:
            # Granite's sliding layers shrink what attention puts out instead, by as much as a sink would have taken.
            left = [
                (total - sinks.detach().double().view(-1, 1, 1)).sigmoid() for total in own.totals if total.dim() == 4
            ]
            whole = [weights for weights in own.seen if weights.dim() == 4]
            off = off_by(record, [w.double() * part for w, part in zip(whole, left, strict=True)])
        assert off <= BOUND, f"attention of {record.module} under {kernel} is off by {off:.2g}"
        worst = max(worst, off)
    return worst


def missed(built: Built) -> tuple[int, str]:
    """How many softmaxes over four axes or more no record accounts for, by shape; and what capture says of them."""
    with capture(built.model) as seen:
        run(built, built.plain)
    with OwnWeights() as own:
        run(built, built.plain)
    due = Counter((w.shape[-1], w.numel()) for w in own.seen if w.dim() > 3)
    made: Counter = Counter()
    for record in seen:
        batch, heads, rows, keys = record.attention().shape
        for width in (keys, keys + 1):  # a learned sink stands as a last column
            if made[width, batch * heads * rows * width] < due[width, batch * heads * rows * width]:
                made[width, batch * heads * rows * width] += 1
                break
    kinds = sorted({type(built.model.get_submodule(name)).__name__ for name in seen.unread})
    count = sum((due - made).values())
    if not count:
        return 0, ""
    said = f", those of {', '.join(kinds)} (attention that capture names as unread)" if kinds else ""
    return count, f"not captured: {count} softmaxes over four axes{said}"


def raises(built: Built, watch: Callable[..., Any]) -> None:
    """An exception in the middle of a watched pass."""

    def stop(_module: Module, _args: Any) -> None:
        raise KeyError("on purpose")

    last = list(built.model.modules())[-1]
    handle = last.register_forward_pre_hook(stop)
    with contextlib.suppress(KeyError), watch(built.model, stages=STAGES):
        run(built, built.plain)
    handle.remove()


def verify(model_type: str, mapping: str = "causal", **variant: Any) -> Outcome:
    """Build a type and check it; says what came of it, and raises nothing."""
    outcome = Outcome(model_type, mapping)
    try:
        built = build(model_type, mapping, variant=variant or None)
    except CannotBuild as error:
        outcome.state, outcome.why = "cannot_build", error.why
        return outcome
    except Exception as error:  # noqa: BLE001 (whatever goes wrong is what came of the type)
        outcome.state, outcome.why = "failed", _in_words(error, "while building: ")
        return outcome
    try:
        outcome.worst, records = check(built)
    except GeomprobeError as error:
        outcome.state, outcome.why = "refused", str(error)
    except Exception as error:  # noqa: BLE001 (whatever goes wrong is what came of the type)
        outcome.state, outcome.why = "failed", _in_words(error)
    else:
        outcome.products = len(records)
        outcome.missed, outcome.why = missed(built)
        for vector in ("q", "k", "v"):
            counted: dict[str, int] = {}
            for record in records:
                shown = "+".join(stage[0] for stage in STAGES if stage in getattr(record, vector))
                counted[shown] = counted.get(shown, 0) + 1
            outcome.stages[vector] = counted
    return outcome


def _in_words(error: Exception, before: str = "") -> str:
    return f"{before}{type(error).__name__}: {error}".splitlines()[0][:300]
