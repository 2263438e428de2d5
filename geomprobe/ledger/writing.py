"""A ledger as Markdown and CSV."""

import math
import shlex
from pathlib import Path
from typing import Any, Final

import pandas as pd

from geomprobe.ledger.ledger import Ledger
from geomprobe.ledger.thresholds import thresholds

# How the code's verdicts read.
WORDS: Final = {
    "supported": "supported",
    "refuted": "refuted",
    "inconclusive": "inconclusive",
    "not_identified": "not identified",
    "not_tested": "not tested",
}
# What quantities are, for a reader who has only this page.
MEANINGS: Final = {
    "norm_share": "share of the attention that key lengths tell (Shapley, position 0 out)",
    "norm_attention_rho": "rank correlation of key length and attention received, median head",
    "edit_ratio": "cost of shuffled lengths over that and the cost of directions moved as far",
    "norm_lift": "log length of keys less what content words of that frequency and place have",
    "class_sink": "logit above the content words beside it, less that of content words (nats)",
    "norm_part_share": "part of class_sink that lies in lengths",
    "k_log_mean": "log key length less that of content words",
    "k_log_sd": "standard deviation of log key length, median head, position 0 out",
    "tv": "total variation between attention and a softmax of cosines, median head, position 0 out",
    "r2": "R² of logits on cosines, median head",
    "neutral_norm": "loss with every key at its head's usual length, less without (nats a token)",
    "scalar_gain": "loss with the key norm's gain replaced by one number, less without (nats a token)",
    "delta_class_sink": "change of class_sink of function words",
    "commutation_error": "change of logits where norm and rotation change places, over their size, median head",
    "shift_error": "change of logits 777 places on with the norm behind the rotation, over their size, median head",
    "folding_error": "change of logits where the gain holds the scale, over their size, largest head",
    "one_hot_rate_weighted": "rows with over 95 % on one key, position 0 out, weighted by 1 − A_t0",
}


def number(value: float) -> str:
    """Three digits; – for nothing."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.1e}" if value != 0 and abs(value) < 1e-3 else f"{value:.3f}"


def behind(row: dict[str, Any]) -> str:
    """What is behind a number: types, documents, layers, heads."""
    parts = [(row["n_types"], "types"), (row["n_documents"], "documents"), (row["n_layers"], "layers")]
    parts.append((row["n_heads"], "heads"))
    return ", ".join(f"{int(n):,} {word if n != 1 else word[:-1]}" for n, word in parts if n)


def markdown(ledger: Ledger) -> str:
    """The ledger as a page of Markdown."""
    model = ledger.manifest
    settings = thresholds()["statistics"]
    lines = [
        f"# Which claims hold in {ledger.name}",
        "",
        f"{model['family']}, {int(model['parameters']):,} parameters, {model['dtype']}. Thresholds of "
        f"{ledger.dated.isoformat()} (`geomprobe/data/thresholds.toml`), fixed before any run was read. A verdict is "
        "about this checkpoint alone: what released checkpoints differ in besides is not controlled.",
        "",
        "| | claim | verdict | |",
        "|---|---|---|---|",
        *(
            f"| {row['claim']} | {row['title']} | **{WORDS[row['verdict']]}** | {_cell(row['sentence'])} |"
            for row in ledger.claims.to_dict("records")
        ),
        "",
        "## What was measured",
        "",
        f"Primary endpoints: m = {ledger.n_primary}. Together they err by {1 - settings['confidence']:.0%} (Holm): the "
        "column *interval* shows each one's own level. Intervals are bootstraps of "
        f"{settings['draws']:,} draws, over types and documents where types are named, else over documents; p is of "
        f"{settings['permutations']:,} permutations over types (the smallest that can come is "
        f"{1 / (1 + settings['permutations']):.4f}). Rows without a rule decide nothing.",
        "",
    ]
    for claim, rows in ledger.evidence.groupby("claim", sort=False):
        records: list[Any] = rows.to_dict("records")
        lines += [
            f"### {claim}",
            "",
            "| quantity | gauge | where | class | value | interval | p | behind it | says |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_evidence_row(row) for row in records),
            "",
            *_rules(rows),
        ]
    names = [name for name in MEANINGS if (ledger.evidence["quantity"] == name).any()]
    lines += ["## Words", "", *(f"- `{name}`: {MEANINGS[name]}" for name in names), ""]
    lines += ["## Commands", "", "```", *(command(one) for one in ledger.commands), "```", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _evidence_row(row: dict[str, Any]) -> str:
    low, high, level = row["low"], row["high"], row["level"]
    between = "–" if math.isnan(low) else f"{number(low)} to {number(high)} ({1 - level:.1%})"
    says = WORDS.get(row["verdict"], "")
    return (
        f"| {row['quantity']} | {row['gauge']} | {_cell(row['where'])} | {_cell(row['token_class'])} | "
        f"{number(row['estimate'])} | {between} | {number(row['p'])} | {behind(row)} | {says} |"
    )


def _rules(rows: pd.DataFrame) -> list[str]:
    rules = rows[rows["rule"] != ""].drop_duplicates(["quantity", "rule"])
    made = [f"Rule for `{row['quantity']}`: {row['rule']}." for row in rules.to_dict("records")]
    return [line for rule in made for line in (rule, "")]


def command(given: str) -> str:
    """A run's command as a person would type it, wherever the run was put."""
    words = shlex.split(given)
    while "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    words = [word for word in words if word not in ("--overwrite", "--quiet", "-q")]
    return shlex.join(["geomprobe", *words[1:]]) if words[:1] else given


def write(ledger: Ledger, folder: Path, slug: str) -> list[Path]:
    """Write ledger as Markdown and CSV, each by rename; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        f"{slug}.md": markdown(ledger),
        f"{slug}.claims.csv": ledger.claims.to_csv(index=False),
        f"{slug}.evidence.csv": ledger.evidence.to_csv(
            index=False, float_format="%.9g"
        ),  # digits that rounding leaves alone,
    }
    made = []
    for name, text in texts.items():
        part = folder / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        made.append(part.replace(folder / name))
    return made
