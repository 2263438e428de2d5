"""What the map of heads can show: a number a head, and for some a class."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import pandas as pd

from geomprobe import tables
from geomprobe.run.reading import Run

AMOUNT, LOG, SIGNED = LOOKS = ("amount", "log", "signed")  # from little to much, by factors around 1, around 0
QUERY, KEY = "query head", "key head"


@dataclass(frozen=True)
class HeadQuantity:
    """A number that every head has.

    Attributes
    ----------
    name : str
        As in docs/schema.md.
    title : str
    said : str
        What it is, in a sentence.
    rows : callable
        ``(run) -> DataFrame``: layer, head, value, n and, where it has classes, token_class.
    of : tuple of str
        The noun that n counts, and its plural.
    look : str
        How it is coloured: one of LOOKS.
    head : str
        Whose heads they are.
    table : str
        The table that it needs.
    classed : bool
        Whether it has a value a token class.
    """

    name: str
    title: str
    said: str
    rows: Callable[[Run], pd.DataFrame]
    of: tuple[str, str]
    look: str = AMOUNT
    head: str = QUERY
    table: str = ""
    classed: bool = False


def _named(frame: pd.DataFrame, value: str, n: str, head: str = "q_head") -> pd.DataFrame:
    columns = {"layer": "layer", head: "head", value: "value", n: "n"}
    kept = [*columns, "token_class"] if "token_class" in frame else [*columns]
    return frame[kept].rename(columns=columns)


def _plain(run: Run, table: str, value: str, n: str) -> pd.DataFrame:
    return _named(run.tables[table], value, n)


def _logits(run: Run, value: str, n: str) -> pd.DataFrame:
    return _named(tables.final_logits(run), value, n)


def _keys(run: Run, value: str) -> pd.DataFrame:
    return _named(tables.lengths(run, "k"), value, "n", "head").drop(columns="token_class")


def _first_length(run: Run) -> pd.DataFrame:
    return _named(tables.first_ratio(run), "ratio", "n", "head")


def _split(run: Run, value: str, gauge: str = "raw") -> pd.DataFrame:
    return _named(tables.norm_shares(run, gauge, "out"), value, "n_rows")


def _lift(run: Run) -> pd.DataFrame:
    table = run.tables["norm_lift"]
    return _named(table[table["gauge"] == "raw"], "norm_lift", "n_types", "head")


def _clusters(run: Run) -> pd.DataFrame:
    return _named(tables.word_heads(run, "clusters"), "auc", "n_types", "head")


_QUERIES, _ROWS, _TOKENS = ("query", "queries"), ("row", "rows"), ("token", "tokens")
_TYPES, _WINDOWS, _NOUNS = ("type", "types"), ("window", "windows"), ("noun", "nouns")

QUANTITIES: Final = (
    HeadQuantity(
        "first_mass",
        "Attention on position 0 (first_mass)",
        "Mean attention of the queries t ≥ 1 on position 0 of their window.",
        partial(_plain, table="sinks", value="first_mass", n="n_rows"),
        _QUERIES,
        table="sinks",
    ),
    HeadQuantity(
        "entropy_no_first",
        "Entropy without position 0",
        "Entropy of a query's attention in nats, position 0 left out and the rest renormalised; mean over t ≥ 16.",
        partial(_logits, value="entropy_no_first", n="n_late"),
        _QUERIES,
        table="logits",
    ),
    HeadQuantity(
        "entropy",
        "Entropy over all keys",
        "Entropy of a query's attention over all keys that it sees, in nats; mean over queries t ≥ 16.",
        partial(_logits, value="entropy", n="n_late"),
        _QUERIES,
        table="logits",
    ),
    HeadQuantity(
        "max",
        "Largest logit",
        "The largest logit that enters the softmax, over all queries and keys, in nats.",
        partial(_logits, value="max", n="n_rows"),
        _QUERIES,
        table="logits",
    ),
    HeadQuantity(
        "row_sd",
        "Spread of a query's logits",
        "Standard deviation of the logits of a query, in nats; mean over queries t ≥ 16.",
        partial(_logits, value="row_sd", n="n_late"),
        _QUERIES,
        table="logits",
    ),
    HeadQuantity(
        "geo_mean",
        "Key length",
        "Geometric mean length ‖k‖₂ of the keys as they enter the dot product, position 0 left out.",
        partial(_keys, value="geo_mean"),
        _TOKENS,
        head=KEY,
        table="norms",
    ),
    HeadQuantity(
        "log_sd",
        "Spread of log key length",
        "Standard deviation of log ‖k‖ over the tokens but position 0.",
        partial(_keys, value="log_sd"),
        _TOKENS,
        head=KEY,
        table="norms",
    ),
    HeadQuantity(
        "first_ratio",
        "Key length at position 0 ÷ others",
        "Geometric mean key length at position 0 over that of all other tokens; 1 is no difference.",
        _first_length,
        _WINDOWS,
        look=LOG,
        head=KEY,
        table="norms",
    ),
    HeadQuantity(
        "tv",
        "Distance from a softmax of cosines (tv)",
        "Total variation between the attention and softmax(β·cos), the part that would have to move if all keys had "
        "one length; raw gauge, position 0 left out, mean over rows.",
        partial(_split, value="tv"),
        _ROWS,
        table="split",
    ),
    HeadQuantity(
        "norm_share",
        "Share told by lengths, raw gauge",
        "What key lengths explain of a query's attention, over what lengths and angles explain together (Shapley's "
        "rule); raw gauge, position 0 left out.",
        partial(_split, value="share"),
        _ROWS,
        look=SIGNED,
        table="split",
    ),
    HeadQuantity(
        "norm_share_balanced",
        "Share told by lengths, balanced gauge",
        "The same in the balanced gauge, which scales keys against queries so that both are alike and changes no "
        "attention.",
        partial(_split, value="share", gauge="balanced"),
        _ROWS,
        look=SIGNED,
        table="split",
    ),
    HeadQuantity(
        "norm_attention_rho",
        "Do longer keys get more? (ρ)",
        "Spearman correlation of a key's length with the mean attention of the queries behind it, at like positions.",
        partial(_split, value="norm_attention_rho"),
        _ROWS,
        look=SIGNED,
        table="split",
    ),
    HeadQuantity(
        "auc",
        "How well keys separate categories (AUC)",
        "How often the cosine of two nouns of one category is larger than that of two of different ones; .5 is chance. "
        "Raw gauge.",
        _clusters,
        _NOUNS,
        head=KEY,
        table="clusters",
    ),
    HeadQuantity(
        "class_sink",
        "Logit over content neighbours, by class (class_sink)",
        "Λ of the class less Λ of content words, in nats: how much more a token of the class draws than the content "
        "words within 8 tokens of it.",
        partial(_plain, table="class_attention", value="class_sink", n="n_types"),
        _TYPES,
        look=SIGNED,
        table="class_attention",
        classed=True,
    ),
    HeadQuantity(
        "lift",
        "Attention ÷ uniform share, by class (lift)",
        "The attention that tokens of the class receive over what they would get if every query looked at all that it "
        "sees alike; 1 is no preference.",
        partial(_plain, table="class_attention", value="lift", n="n_tokens"),
        _TOKENS,
        look=LOG,
        table="class_attention",
        classed=True,
    ),
    HeadQuantity(
        "value_weighted",
        "Attention weighted by value length, by class",
        "Share of the attention on the class when each weight counts by the length of its value vector.",
        partial(_plain, table="values", value="value_weighted", n="n_tokens"),
        _TOKENS,
        table="values",
        classed=True,
    ),
    HeadQuantity(
        "norm_lift",
        "Key length beyond rarity and place, by class (norm_lift)",
        "Mean log key length of the class's types less what their frequency and positions lead to expect; raw gauge.",
        _lift,
        _TYPES,
        look=SIGNED,
        head=KEY,
        table="norm_lift",
        classed=True,
    ),
)
