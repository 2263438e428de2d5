"""Checks that every probe must pass, geomprobe's own and other people's alike; and small models to try things on."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import QKBatch, Tokens
from geomprobe.attention.spec import CorpusSpec, LayerSpec, ModelSpec, NormSpec, Spec
from geomprobe.attention.visibility import causal
from geomprobe.errors import one_of
from geomprobe.labels import CLASS_INDEX, CLASS_ROWS, GAUGES, STAGES, VECTORS
from geomprobe.probes.assembly import summarise
from geomprobe.probes.base import OutputProbe, Probe, ResidualProbe, State, StaticProbe, observe, show

RTOL = 1e-9
LENGTH = 72
_STAGES = {"q": STAGES, "k": STAGES, "v": ("scored",)}
# Columns that tell where a row belongs and are there before anything is seen.
_KEYS = {"layer", "head", "q_head", "epsilon", "document", "zipf", "token_id", "edge_low", "edge_high"}


# ------------------------------------------------------------------ small models
def tiny_model(family: str, *, dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Any:
    """A model of a family with a few random weights, for exact tests.

    Parameters
    ----------
    family : {"llama", "qwen3", "gemma2", "gemma3", "gpt_oss"}
        gemma2 has a soft-cap, gemma3 a QK norm and sliding windows, gpt_oss learned sinks and sliding windows.
    dtype : torch.dtype
    seed : int
    **changes
        Fields of the configuration.

    Returns
    -------
    transformers.PreTrainedModel
        In eval mode. Gains, biases and sinks are random too, so that a step that is skipped shows.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    one_of("family", family, _FAMILIES)
    small = {
        "vocab_size": 160,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = AutoConfig.for_model(_FAMILIES[family][0], **{**small, **_FAMILIES[family][1], **changes})
    torch.manual_seed(seed)
    # The fused kernel for experts knows no float64.
    model = AutoModelForCausalLM.from_config(config, experts_implementation="eager").to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            # Steep attention: with the usual small weights every row is nearly uniform and hides mistakes.
            spread = 0.3 if parameter.dim() == 1 else 2.5 * parameter.shape[-1] ** -0.5
            parameter.copy_(random * spread + (0.8 if name.endswith("norm.weight") else 0))
    return model


_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen3": ("qwen3", {}),
    "gemma2": (
        "gemma2",
        {"attn_logit_softcapping": 4.0, "sliding_window": 40, "query_pre_attn_scalar": 16},
    ),
    "gemma3": (
        "gemma3_text",
        {
            "sliding_window": 40,
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 24,
        },
    ),
    "gpt_oss": (
        "gpt_oss",
        {
            "sliding_window": 40,
            "layer_types": ["sliding_attention", "full_attention"],
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
}


# ------------------------------------------------------------------ random batches
def _layer(index: int) -> LayerSpec:
    gain = np.random.default_rng(index).normal(1, 0.3, 8)
    norm = NormSpec(f"layers.{index}.norm", "head", "before_rope", gain)
    # The layers differ in heads, as those of real models may.
    return LayerSpec(
        layer=index,
        module=f"layers.{index}",
        q_heads=4 - 2 * index,
        kv_heads=2,
        head_dim=8,
        window=None,
        scale=0.3,
        softcap=None,
        learned_sinks=False,
        stages=dict(_STAGES),
        norms={"q": norm, "k": norm},
        rotary_width=8,
    )


_TYPES = tuple((f"{name}{i}", name) for name in ("article", "punctuation", "content") for i in range(3))
SPEC = Spec(
    ModelSpec((_layer(0), _layer(1))),
    CorpusSpec(
        documents=("a", "b", "c"),
        types=_TYPES,
        zipf=np.arange(9.0),
        cells=np.array([(kind, document) for kind in range(9) for document in range(3)]),
        tokens=tuple((10 + i, name, text) for i, (text, name) in enumerate(_TYPES)),
        window=LENGTH,
    ),
)


def make_batch(layer: int = 0, *, n: int = 2, seed: int = 0, padded: bool = True) -> QKBatch:
    """A random batch with padding, absent classes and a few keys far longer than the rest."""
    generator = torch.Generator().manual_seed(1000 * seed + layer)
    spec = SPEC.model.layers[layer]

    def draw(heads: int) -> Tensor:
        return torch.randn(n, heads, LENGTH, spec.head_dim, generator=generator, dtype=torch.float64) * 2.0**seed

    kind = torch.randint(len(_TYPES), (n, LENGTH), generator=generator)
    document = torch.randint(3, (n,), generator=generator)
    valid = torch.ones(n, LENGTH, dtype=torch.bool)
    if padded:
        for row in range(n):
            valid[row, : int(torch.randint(6, (1,), generator=generator))] = False
            valid[row, LENGTH - int(torch.randint(6, (1,), generator=generator)) :] = False
    first = valid & (valid.cumsum(1) == 1)
    token_class = torch.tensor([CLASS_INDEX[name] for _, name in _TYPES])[kind]
    tokens = Tokens(
        token_class=token_class.masked_fill(first, CLASS_INDEX["first"]),
        type_index=kind.masked_fill(first, -1),
        cell_index=(kind * 3 + document[:, None]).masked_fill(first, -1),
        token_index=kind.masked_fill(first, -1),
        document=document,
        valid=valid,
    )
    query, key, value = draw(spec.q_heads), draw(spec.kv_heads), draw(spec.kv_heads)
    key[:, :, 20] *= 50
    stages = {"q": {}, "k": {}, "v": {}}  # type: dict[str, dict[str, Tensor]]
    for vector, tensor in (("q", query), ("k", key), ("v", value)):
        for at, stage in enumerate(_STAGES[vector]):
            stages[vector][stage] = tensor * (1 + at) if stage != "scored" else tensor
    return QKBatch(layer, stages["q"], stages["k"], stages["v"], tokens, causal(LENGTH, LENGTH), spec.scale)


def _stream() -> list[QKBatch]:
    return [make_batch(layer, seed=seed) for seed in range(3) for layer in range(2)]


def feed(probe: Probe, batches: list[QKBatch], *, rows: int | None = None) -> State:
    """The state of a probe after batches, in that order; what is no vector or attention is made up from them."""
    state = probe.init(SPEC)
    for batch in batches:
        if isinstance(probe, OutputProbe):
            if batch.index == 0:
                probe.read(state, *_prediction(batch))
        elif isinstance(probe, ResidualProbe):
            show([(probe, state)], batch.index, _stream_of(batch), batch.tokens)
        else:
            observe([(probe, state)], batch, rows=rows)
    return state


def _stream_of(batch: QKBatch) -> Tensor:
    """A residual stream (batch, pos, channel) in which a channel is far larger at some positions than all others."""
    hidden = batch.q["scored"].transpose(1, 2).flatten(2).clone()
    hidden[:, 5::9, 3] *= 1e5
    return hidden


def _prediction(batch: QKBatch) -> tuple[Tensor, Tensor, Tokens]:
    logits = batch.q["scored"].transpose(1, 2).flatten(2)  # (batch, pos, "vocabulary")
    ids = batch.tokens.token_class % logits.shape[-1]
    return logits, ids, batch.tokens


def tables_of(probe: Probe, state: State) -> dict[str, pd.DataFrame]:
    """A probe's tables, in the form in which a run has them."""
    return summarise({"probe": (probe, state)}, SPEC)


def assert_same(actual: dict[str, pd.DataFrame], expected: dict[str, pd.DataFrame]) -> None:
    """Raise unless tables have the same rows and agree to float64 rounding."""
    assert actual.keys() == expected.keys()
    for name, table in expected.items():
        pd.testing.assert_frame_equal(actual[name], table, rtol=RTOL, atol=1e-12, obj=f"table {name}")


# ------------------------------------------------------------------ the contract
def check_merge_equals_one_pass(probe: Probe) -> None:
    """Splitting the stream in two, anywhere, changes nothing, whichever part comes first."""
    stream = _stream()
    whole = tables_of(probe, feed(probe, stream))
    for cut in (0, 1, 3, len(stream)):
        a, b = feed(probe, stream[:cut]), feed(probe, stream[cut:])
        tables_of(probe, a)  # what was computed before the merge must not be remembered after it
        assert_same(tables_of(probe, probe.merge(a, b)), whole)
        assert_same(tables_of(probe, probe.merge(b, a)), whole)


def check_order_is_irrelevant(probe: Probe) -> None:
    """A stream read backwards gives the same result."""
    stream = _stream()
    assert_same(tables_of(probe, feed(probe, stream[::-1])), tables_of(probe, feed(probe, stream)))


def check_batch_size_is_irrelevant(probe: Probe) -> None:
    """One sequence at a time gives what one batch of all gives, and so do other blocks of rows."""
    batch = make_batch(n=3, padded=False)
    every = torch.arange(LENGTH)
    rows = [batch.select(item, every) for item in range(3)]
    whole = tables_of(probe, feed(probe, [batch]))
    assert_same(tables_of(probe, feed(probe, rows)), whole)
    assert_same(tables_of(probe, feed(probe, [batch], rows=7)), whole)


def check_padding_is_ignored(probe: Probe) -> None:
    """Whatever stands at padding, NaN included, leaves no trace."""
    batch = make_batch()
    hole = ~batch.tokens.valid[:, None, :, None]
    clean = tables_of(probe, feed(probe, [batch]))
    for junk in (1e4, float("nan")):
        q, k, v = (
            {stage: x.masked_fill(hole, junk) for stage, x in vector.items()} for vector in (batch.q, batch.k, batch.v)
        )
        dirty = replace(batch, q=q, k=k, v=v)
        assert_same(tables_of(probe, feed(probe, [dirty])), clean)


def check_unseen_is_nan(probe: Probe) -> None:
    """A statistic of nothing is NaN, and only counts are 0."""
    if isinstance(probe, StaticProbe):
        return  # it reads the specification, which is always there
    for name, table in tables_of(probe, probe.init(SPEC)).items():
        for column in table.columns.difference(list(_KEYS)):
            values = table[column]
            if values.dtype.kind == "i":
                assert not values.any(), f"{name}.{column} of an empty stream is not 0"
            elif values.dtype.kind == "f":
                assert values.isna().all(), f"{name}.{column} of an empty stream is not NaN"


def check_summarise_is_pure(probe: Probe) -> None:
    """Summarising midway, twice, leaves the state and the final result alone."""
    stream = _stream()
    state = feed(probe, stream)
    before = {name: value.clone() for name, value in state.items()}
    first, second = tables_of(probe, state), tables_of(probe, state)
    assert_same(first, second)
    assert all(torch.equal(state[name], before[name]) for name in state), "summarise changed the state"


def check_merge_leaves_inputs_alone(probe: Probe) -> None:
    """Merging reads both states and writes neither."""
    states = feed(probe, _stream()[:3]), feed(probe, _stream()[3:])
    before = [{name: value.clone() for name, value in state.items()} for state in states]
    merged = probe.merge(*states)
    for value in merged.values():
        value.zero_()
    for state, old in zip(states, before, strict=True):
        assert all(torch.equal(state[name], old[name]) for name in state), "merge changed or shares its input"


def check_vectors_are_left_alone(probe: Probe) -> None:
    """Looking at vectors does not write into them: they are the model's own."""
    batch = make_batch(padded=False)
    copies = [x.clone() for vector in (batch.q, batch.k, batch.v) for x in vector.values()]
    feed(probe, [batch])
    after = [x for vector in (batch.q, batch.k, batch.v) for x in vector.values()]
    assert all(torch.equal(a, b) for a, b in zip(after, copies, strict=True)), "update wrote into the model's tensors"


def check_state_is_plain_tensors(probe: Probe) -> None:
    """A state survives a trip through numpy, hence through a file."""
    state = feed(probe, _stream())
    assert all(isinstance(x, Tensor) and x.dtype in (torch.float64, torch.int64) for x in state.values())
    reloaded = {name: torch.from_numpy(value.numpy().copy()) for name, value in state.items()}
    assert_same(tables_of(probe, reloaded), tables_of(probe, state))


def check_labels_are_known(probe: Probe) -> None:
    """Classes, stages, vectors and gauges come from geomprobe.labels."""
    known = {"token_class": CLASS_ROWS, "stage": STAGES, "vector": VECTORS, "gauge": GAUGES}
    for name, table in tables_of(probe, feed(probe, _stream())).items():
        for column, values in known.items():
            if column in table:
                strange = set(table[column]) - set(values)
                assert not strange, f"{name}.{column} holds {strange}, which geomprobe.labels does not know"


def check_parameters_are_frozen(probe: Probe) -> None:
    """Probes are values: immutable, comparable, usable as keys."""
    assert type(probe).__dataclass_params__.frozen, "a probe is a frozen dataclass"  # type: ignore[attr-defined]
    assert type(probe)() == type(probe)()
    assert hash(type(probe)()) == hash(type(probe)())


def checks() -> Iterator[Callable[[Probe], None]]:
    """Every check of the contract."""
    yield from (f for name, f in sorted(globals().items()) if name.startswith("check_") and name != "check_probe")


def check_probe(probe: Probe) -> None:
    """Run every check of the contract on a probe.

    Raises
    ------
    AssertionError
        Says which promise is broken.
    """
    for check in checks():
        check(probe)


# ------------------------------------------------------------------ planted attention
def planted_contrast(nats: float, *, length: int = 256, seed: int = 0) -> QKBatch:
    """Attention in which articles draw `nats` more than content words, and punctuation nothing more.

    The logit of a key is its class's bonus plus noise plus a slope that falls with distance, so that a contrast which
    ignores position is misled.

    Returns
    -------
    QKBatch
        One sequence, one head; token classes article, punctuation and content.
    """
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(len(_TYPES), (1, length), generator=generator)
    token_class = torch.tensor([CLASS_INDEX[name] for _, name in _TYPES])[kind]
    bonus = torch.where(token_class == CLASS_INDEX["article"], nats, 0.0).double()
    place = torch.arange(length, dtype=torch.float64) / 16
    one = torch.ones(1, length, dtype=torch.float64)
    # x = bonus_k − slope·(t − k) + noise, written as a product: [1, −t, 1, noise] · [bonus, 1, k, noise]
    noise = 0.05 * torch.randn(2, 1, length, 4, generator=generator, dtype=torch.float64)
    query = torch.cat([torch.stack([one, -place * one, one], -1), noise[0]], -1)[:, None]
    key = torch.cat([torch.stack([bonus, one, place * one], -1), noise[1]], -1)[:, None]
    index = kind.clone()
    index[:, 0] = -1
    token_class = token_class.clone()
    token_class[:, 0] = CLASS_INDEX["first"]
    document = torch.zeros(1, dtype=torch.int64)
    tokens = Tokens(token_class, index, index * 3, index, document, torch.ones_like(kind, dtype=torch.bool))
    return QKBatch(0, {"scored": query}, {"scored": key}, {"scored": key}, tokens, causal(length, length), 1.0)
