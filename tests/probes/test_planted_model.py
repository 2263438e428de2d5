"""Attention that was planted in the weights of a real model class, and found again through the same capture.

A Llama of one layer whose projections make of every token the query and key that it is given. Its rotary base is so
large that all pairs but the first stand still, which holds nothing: nothing turns, so the pairs are named.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from halved import TYPES, tables_of, text_of
from transformers import AutoConfig, AutoModelForCausalLM

from geomprobe.labels import CLASS_INDEX, GAUGES

VOCABULARY, WIDTH, HEADS = 160, 8, 2
STILL = [1, 2, 3, 5, 6, 7]  # channels whose pairs do not turn
KIND = np.arange(VOCABULARY) % len(TYPES)  # of each token
ARTICLE = np.array([name == "article" for _, name in TYPES])[KIND]


def planted_model(query, key):
    """A Llama in which token t has the query query[t] in every head and the key key[t]: (token, channel) each."""
    config = AutoConfig.for_model(
        "llama",
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        head_dim=WIDTH,
        rope_parameters={"rope_type": "default", "rope_theta": 1e40},
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).double().eval()
    layer = model.model.layers[0]
    with torch.no_grad():
        torch.nn.init.normal_(model.model.embed_tokens.weight)
        seen = layer.input_layernorm(model.model.embed_tokens.weight)  # 160 rows of 192 channels: any map can be made
        attention = layer.self_attn
        for projection, wanted in ((attention.q_proj, np.tile(query, HEADS)), (attention.k_proj, key)):
            projection.weight.copy_(torch.linalg.lstsq(seen, torch.from_numpy(wanted)).solution.T)
    return model


def text():
    """Tokens by chance, each with the class of its number."""
    corpus = text_of()
    kind = KIND[corpus.ids]
    token_class = np.array([CLASS_INDEX[name] for _, name in TYPES])[kind]
    token_class[:, 0] = CLASS_INDEX["first"]
    return replace(corpus, token_class=token_class, token_text=np.array([n for n, _ in TYPES], dtype=object)[kind])


def measured(query, key):
    def named(layers):
        return [replace(layers[0], pairs=("half", tuple(range(WIDTH))))]

    return tables_of(planted_model(query, key), text(), change=named)


def queries(rng):
    made = np.zeros((VOCABULARY, WIDTH))
    made[:, STILL] = 2 * rng.normal(size=(VOCABULARY, len(STILL)))
    return made


def all_length(rng):
    """One direction, lengths by token."""
    axis = np.zeros(WIDTH)
    axis[STILL] = rng.normal(size=len(STILL))
    return axis * np.exp(rng.normal(0, 0.4, (VOCABULARY, 1)))


def all_angle(rng):
    """Each pair as long in every key, directions by token: as long in every gauge."""
    turn = rng.uniform(0, 2 * np.pi, (VOCABULARY, 3))
    made = np.zeros((VOCABULARY, WIDTH))
    made[:, 1:4], made[:, 5:8] = np.cos(turn) * (1.0, 2.0, 0.5), np.sin(turn) * (1.0, 2.0, 0.5)
    return made


@pytest.mark.parametrize(("keys", "share"), [(all_length, 1), (all_angle, 0)])
def test_all_length_and_all_angle(keys, share):
    rng = np.random.default_rng(0)
    table = measured(queries(rng), keys(rng))["split"]
    table = table[table["document"] == -1]
    assert set(table["gauge"]) == set(GAUGES)
    assert (table["phi_norm"] + table["phi_angle"] > 0.01).all()
    np.testing.assert_allclose(table["phi_norm"] / (table["phi_norm"] + table["phi_angle"]), share, atol=1e-6)


@pytest.mark.parametrize("by", ["length", "angle"])
def test_half_a_nat_for_a_class(by):
    """All keys have a logit of 1, articles 1.5, by longer keys or by keys nearer to the query."""
    query, key = np.zeros((VOCABULARY, WIDTH)), np.zeros((VOCABULARY, WIDTH))
    query[:, 1] = WIDTH**0.5  # takes the scale away
    length = np.where(ARTICLE, 3.0, 2.0) if by == "length" else np.full(VOCABULARY, 4.0)
    cos = np.full(VOCABULARY, 0.5) if by == "length" else np.where(ARTICLE, 0.375, 0.25)
    key[:, 1], key[:, 5] = length * cos, length * np.sqrt(1 - cos**2)
    tables = measured(query, key)
    rows = tables["class_split"]
    for gauge in GAUGES:
        for name, nats in (("article", 0.5), ("function", 0.5), ("punctuation", 0.0), ("content", 0.0)):
            got = rows[(rows["gauge"] == gauge) & (rows["token_class"] == name)]
            assert len(got) == HEADS
            np.testing.assert_allclose(got["class_sink"], nats, atol=1e-6)
            np.testing.assert_allclose(got["norm_part"], nats if by == "length" else 0, atol=1e-6)
            np.testing.assert_allclose(got["angle_part"], 0 if by == "length" else nats, atol=1e-6)
