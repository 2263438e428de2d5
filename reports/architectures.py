"""Writes docs/architectures.md: what became of every model type that transformers has.

    python -m reports.architectures [mapping …] > docs/architectures.md

Every type is built as a tiny model with random weights and checked as the tests check it (verifying.py).
"""

import sys
import time
from dataclasses import dataclass

import torch
import transformers

from geomprobe.errors import GeomprobeError
from geomprobe.inspection import inspect
from tests.architectures.building import MAPPINGS, CannotBuild, build, types_of
from tests.architectures.verifying import Outcome, verify

STATES = {
    "verified": "verified",
    "refused": "refused",
    "failed": "not verified",
    "cannot_build": "cannot be built here",
}
HEADER = """# Architectures

What geomprobe makes of every model type of transformers {version}. Made by `make architectures`, which builds each type
from its configuration as a tiny model with random weights (gains, biases and learned sinks random too, every kind of
layer forced, texts longer than every window), and asks, with padding and without, on the model's own kernel and on
eager attention: is attention rebuilt from what was captured the model's own, to 1e-5? Is the output bit for bit the
same with and without the capture? Is nothing left behind, also after an exception?

- *verified*: yes to all.
- *refused*: the model is refused in a sentence, and no number is given.
- *not verified*: a question was answered with no; such a type is not to be trusted.
- *cannot be built here*: no tiny model could be made.

*Stages* says in how many of the attention products of one pass queries and keys were followed back through norm and
rotation to their projections (`projected`, `content`, `scored`); elsewhere only `scored` is given. *QK norm* is what
`geomprobe inspect` finds by tampering with the model, on the tiny configuration of the table; many families have a flag
for it.

A type that stands in several of transformers' mappings is listed once, under the first.
"""


@dataclass(frozen=True)
class Row:
    """One model type."""

    outcome: Outcome
    norms: str


def rows(mapping: str, *, known: set[str]) -> list[Row]:
    """A row for each type of a mapping that is not known yet."""
    found = []
    for model_type in types_of(mapping):
        if model_type not in known:
            begun = time.perf_counter()
            outcome = verify(model_type, mapping)
            norms = _norms(model_type, mapping) if outcome.state == "verified" else ""
            print(f"{mapping} {model_type} {outcome.state} {time.perf_counter() - begun:.1f} s", file=sys.stderr)
            found.append(Row(outcome, norms))
    return found


def _norms(model_type: str, mapping: str) -> str:
    try:
        built = build(model_type, mapping)
        inputs = {name: x[:1] if isinstance(x, torch.Tensor) else x for name, x in built.plain.items()}
        anatomy = inspect(built.model, inputs=inputs)
    except (GeomprobeError, CannotBuild, RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return "?"  # one sequence alone is not what every model can be called with
    said = dict.fromkeys(_said(layer) for layer in anatomy.layers if layer.kind == "softmax")
    return "; ".join(said)


def _said(layer) -> str:  # type: ignore[no-untyped-def]
    words = []
    for vector in ("q", "k"):
        norm, verdict = getattr(layer, f"{vector}_norm"), layer.verdict[vector]
        if norm is not None:
            words.append(f"{norm.kind}, {norm.axis}, {norm.order.replace('_', ' ')}")
        else:
            words.append(verdict.replace("_", " "))
    return words[0] if words[0] == words[1] else f"q {words[0]}, k {words[1]}"


def _stages(outcome: Outcome) -> str:
    if not outcome.stages:
        return ""
    whole = min(outcome.stages[vector].get("p+c+s", 0) for vector in ("q", "k"))
    return f"{whole} of {outcome.products}"


def table(found: list[Row]) -> str:
    """Markdown of some rows."""
    lines = ["| model type | | attention products | stages | off by | QK norm | why |", "|---|---|---|---|---|---|---|"]
    for row in found:
        o = row.outcome
        worst = f"{o.worst:.0e}" if o.state == "verified" else ""
        why = o.why.replace("|", "\\|")
        products = o.products or ""
        lines.append(
            f"| {o.model_type} | {STATES[o.state]} | {products} | {_stages(o)} | {worst} | {row.norms} | {why} |"
        )
    return "\n".join(lines)


def counts(by_mapping: dict[str, list[Row]]) -> str:
    """Markdown of how many there are of each outcome."""
    lines = ["| mapping | types | " + " | ".join(STATES.values()) + " |", "|---" * (len(STATES) + 2) + "|"]
    total = dict.fromkeys(STATES, 0)
    for mapping, found in by_mapping.items():
        n = {state: sum(row.outcome.state == state for row in found) for state in STATES}
        total = {state: total[state] + n[state] for state in STATES}
        lines.append(f"| {mapping} | {len(found)} | " + " | ".join(str(n[state]) for state in STATES) + " |")
    lines.append(f"| all | {sum(total.values())} | " + " | ".join(str(total[state]) for state in STATES) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the page."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    known: set[str] = set()
    by_mapping: dict[str, list[Row]] = {}
    for mapping in sys.argv[1:] or MAPPINGS:
        by_mapping[mapping] = rows(mapping, known=known)
        known |= {row.outcome.model_type for row in by_mapping[mapping]}
    print(HEADER.format(version=transformers.__version__))
    print(counts(by_mapping))
    for mapping, found in by_mapping.items():
        print(f"\n## {mapping}\n\n{table(found)}")


if __name__ == "__main__":
    main()
