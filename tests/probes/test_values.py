"""Attention weighted by value lengths, against a slow oracle; and a sink that is parked."""

import math

import numpy as np
import pytest
import torch
from watched import watched

from geomprobe.labels import TOKEN_CLASSES, UNIONS

FAMILIES = ["llama", "gemma2", "gemma3", "gpt_oss"]
ROWS = {name: [name] for name in TOKEN_CLASSES} | {name: list(members) for name, members in UNIONS.items()}


def expected(sequences, head, members):
    """Share, weighted share and the ratio of lengths, token by token."""
    group = len(sequences[0].q) // len(sequences[0].k)
    mass, weighted, logs, every, rest = [], [], [], [[], []], []
    for seq in sequences:
        lengths = np.linalg.norm(seq.v[head // group], axis=1)
        for j in range(seq.length):
            received = sum(seq.probability(head, t, j) for t in range(seq.length) if j in set(seq.visible(t)))
            every[0].append(received)
            every[1].append(received * lengths[j])
            if seq.classes[j] != "first":
                rest.append(math.log(lengths[j]))
            if seq.classes[j] in members:
                mass.append(received)
                weighted.append(received * lengths[j])
                logs.append(math.log(lengths[j]))
    if not logs:
        return 0, math.nan, math.nan, math.nan
    ratio = math.exp(np.mean(logs) - np.mean(rest))
    return len(logs), sum(mass) / sum(every[0]), sum(weighted) / sum(every[1]), ratio


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_the_oracle(family):
    tables, layers, *_ = watched(family, torch.float64)
    table = tables["values"]
    for layer, sequences in layers.items():
        for name in ("first", "content", "function", "number"):
            row = table[(table["layer"] == layer) & (table["q_head"] == 1) & (table["token_class"] == name)].iloc[0]
            due = expected(sequences, 1, ROWS[name])
            got = (row["n_tokens"], row["share"], row["value_weighted"], row["v_norm_ratio"])
            assert got == pytest.approx(due, rel=1e-9, nan_ok=True)


def test_shares_are_of_one_whole():
    table = watched("llama", torch.float64)[0]["values"]
    both = table[table["token_class"].isin(["first", "all"])].groupby(["layer", "q_head"])
    assert both[["share", "value_weighted"]].sum().to_numpy() == pytest.approx(1)


def test_a_parked_sink_has_attention_and_no_weight():
    """Short values at position 0 take its weighted share away and leave its attention: seen by shrinking them."""
    from dataclasses import replace

    from watched import SPEC, make_tokens

    from geomprobe.attention.anatomy import examine
    from geomprobe.attention.batch import Tokens, Visibilities, make_batch
    from geomprobe.attention.seam import watching
    from geomprobe.attention.spec import Spec
    from geomprobe.probes.base import observe
    from geomprobe.probes.values import Values
    from geomprobe.testing import tiny_model

    model = tiny_model("llama", dtype=torch.float64)
    _, kind = make_tokens()
    ids = kind[:1] + 3
    tokens, _ = make_tokens()
    one = Tokens(
        *(
            getattr(tokens, name)[:1]
            for name in ("token_class", "type_index", "cell_index", "token_index", "document", "valid")
        )
    )
    spec = Spec(examine(model, ids[:, :20]), SPEC)
    probe, shares = Values(), []
    for factor in (1.0, 1e-3):
        state, seen_by = probe.init(spec), Visibilities()

        def see(seen, state=state, seen_by=seen_by, factor=factor):
            batch = make_batch(seen, seen.call.layer, one, seen_by.of(seen.call, one.valid))
            value = batch.v["scored"].clone()
            value[:, :, 0] *= factor
            observe([(probe, state)], replace(batch, v={"scored": value}))

        with torch.no_grad(), watching(model, see):
            model(input_ids=ids, use_cache=False)
        table = probe.summarise(state, spec)["values"]
        shares.append(table[table["token_class"] == "first"][["share", "value_weighted"]].to_numpy())
    assert shares[0][:, 0] == pytest.approx(shares[1][:, 0])
    assert (shares[1][:, 1] < 0.01 * shares[0][:, 1] + 1e-3).all()
