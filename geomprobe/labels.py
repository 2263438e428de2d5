"""The vocabulary: the names that columns, classes, stages and vectors have in code, tables and reports."""

from typing import Final

# Every token has exactly one class: the first that applies, in this order (docs/schema.md defines each).
FIRST: Final = "first"
CLOSED_CLASSES: Final = (
    "article",
    "preposition",
    "pronoun",
    "conjunction",
    "auxiliary",
    "determiner",
    "particle",
)
TOKEN_CLASSES: Final = (
    FIRST,
    "special",
    "newline",
    "punctuation",
    "number",
    "subword",
    *CLOSED_CLASSES,
    "content",
    "other",
)
CLASS_INDEX: Final = {name: index for index, name in enumerate(TOKEN_CLASSES)}

# Rows that pool classes: the closed ones together, and every valid token but the first.
UNIONS: Final = {
    "function": CLOSED_CLASSES,
    "all": tuple(name for name in TOKEN_CLASSES if name != FIRST),
}
CLASS_ROWS: Final = (*TOKEN_CLASSES, *UNIONS)

VECTORS: Final = ("q", "k", "v")
STAGES: Final = ("projected", "content", "scored")
RAW: Final = "raw"
BALANCED: Final = "balanced"
GAUGES: Final = (RAW, BALANCED)
RARITY_BANDS: Final = ("rare", "mid", "frequent")

# The parts of a model that reads one text and writes another; a model of one stack has none.
ENCODER: Final = "encoder"
DECODER: Final = "decoder"
CROSS: Final = "cross-attention"
PARTS: Final = ("", ENCODER, DECODER, CROSS)

WHOLE_MODEL: Final = -1  # the value of `layer` in a row about the whole model
ALL_HEADS: Final = -1  # the value of `head` where a row is not about one head

FROM_ROW: Final = 16  # rows before this see too few keys to say much; statistics of a row drop them
APP: Final = "geomprobe"
