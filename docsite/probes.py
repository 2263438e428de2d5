"""Pages of probes: parameters, tables and figures from the registry, under what docs/probes/ says of each."""

import dataclasses
import inspect
import re
from functools import cache
from typing import Any, Final

from docsite.figures import figures_of
from docsite.markdown import code, plain, table
from docsite.schema import TableText, anchor, schema_tables

KINDS: Final = {
    "VectorProbe": "looks at queries, keys and values",
    "AttentionProbe": "looks at attention, block of query rows by block",
    "HalvedProbe": "fixes something on the first half of the windows and measures on the second",
    "OutputProbe": "looks at what the model predicts",
    "ResidualProbe": "looks at the residual stream",
    "StaticProbe": "needs no text: reads the model alone",
    "TypeProbe": "looks at chosen words in context, in a second pass; only with `--probes`",
}
# Tables that the second pass writes for its probes besides theirs (geomprobe/words.py).
OF_WORDS: Final = {"clusters": ("map",), "neighbours": ("word_neighbours", "hubs")}
OF_BOTH: Final = ("types", "contexts")
# Tables that no probe writes.
OTHERS: Final = {
    "parity": "the self-check at the start of every run",
    "interventions": "`geomprobe intervene`",
    "types": "the second pass, which words were chosen",
    "contexts": "the second pass, where they stand",
}


@cache
def registered() -> dict[str, type]:
    """Every probe by name, in the order in which they run."""
    from geomprobe.probes.base import PROBES
    from geomprobe.probes.typed import TYPE_PROBES

    return {name: registry[name] for registry in (PROBES, TYPE_PROBES) for name in registry}


@cache
def written() -> dict[str, dict[str, list[str] | None]]:
    """By probe, the tables that it writes and their columns; None where it takes words in context to know them."""
    from geomprobe.probes.base import Probe
    from geomprobe.testing import SPEC, feed, make_batch

    found: dict[str, dict[str, list[str] | None]] = {}
    for name, kind in registered().items():
        if issubclass(kind, Probe):
            probe = kind()
            made = probe.summarise(probe.init(SPEC), SPEC)
            if not made:  # a table that is there only where something was found
                made = probe.summarise(feed(probe, [make_batch()]), SPEC)
            found[name] = {title: list(made[title].columns) for title in made}
        else:
            found[name] = {name: None, **dict.fromkeys((*OF_WORDS[name], *OF_BOTH))}
    return found


def probe_list() -> str:
    """A table of all probes."""
    rows = []
    for name, kind in registered().items():
        tables = ", ".join(code(title) for title in written()[name])
        rows.append([f"[{name}]({name}.md)", plain(_question(kind)), tables])
    return table(["probe", "asks", "writes"], rows)


def schema_map() -> str:
    """A table of all tables of a run, with the probe or command that writes each."""
    rows = []
    for name, said in schema_tables().items():
        writers = [probe for probe in registered() if name in written()[probe]]
        links = ", ".join(f"[{probe}]({probe}.md)" for probe in writers)
        who = OTHERS.get(name) or links
        rows.append([_schema_link(said), who])
    return table(["table", "written by"], rows)


def probe_details(name: str) -> str:
    """The made part of a probe's page."""
    if name not in registered():
        raise KeyError(f"docs/probes/{name}.md is the page of no registered probe.")
    kind = registered()[name]
    parts = ["## Kind", f"{_kinds(kind)} Registered as {code(name)}; the class is {code(_path(kind))}.", _doc(kind)]
    parts += ["## Parameters", _parameters(kind), "## Tables"]
    tables = schema_tables()
    told: set[str] = set()
    for title, columns in written()[name].items():
        parts.append(_table_text(tables[title], columns, again=tables[title].section in told))
        told.add(tables[title].section)
    if listed := figures_of(name):
        parts += ["## Figures", listed]
    return "\n\n".join(part for part in parts if part)


def _question(kind: type) -> str:
    """The first line of the module that a probe is in."""
    return (inspect.getdoc(inspect.getmodule(kind)) or "").split("\n")[0].rstrip(".")


def _kinds(kind: type) -> str:
    names = [one.__name__ for one in kind.__mro__ if one.__name__ in KINDS]
    said = "; ".join(KINDS[name] for name in names)
    return f"{' and '.join(code(name) for name in names)}: {said}."


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def _doc(kind: type) -> str:
    """What a class says of itself, without its list of parameters."""
    said = (inspect.getdoc(kind) or "").split("\nParameters\n")[0].split("\nAttributes\n")[0]
    said = re.sub(r" \(docs/schema\.md[^)]*\)", "", said)  # its tables are below
    return "\n\n".join(plain(part) for part in said.strip().split("\n\n")[:4])


def _parameters(kind: Any) -> str:
    fields = dataclasses.fields(kind)
    if not fields:
        return "None."
    said = _parameter_texts(inspect.getdoc(kind) or "")
    rows = [[code(one.name), code(repr(one.default)), plain(said.get(one.name, ""))] for one in fields]
    return table(["parameter", "default", "is"], rows)


def _parameter_texts(doc: str) -> dict[str, str]:
    """The numpydoc entries of a docstring: name → text."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in doc.split("\n"):
        if " : " in line and not line.startswith(" "):
            names = [name.strip() for name in line.split(" : ")[0].split(",")]
        elif line.startswith("    ") and names:
            for name in names:
                found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found


def _schema_link(said: TableText) -> str:
    return f"[`{said.name}`](../schema.md#{anchor(said.section) if said.section else 'tables'})"


def _table_text(said: TableText, columns: list[str] | None, *, again: bool) -> str:
    parts = [f"### {said.name}", f"Key columns: {plain(said.keys)}."]
    shared = said.name in ("document_stats", "type_stats")
    if columns is not None and shared:
        keys = {"layer", "document", "cell", "type", "token_class"}
        own = ", ".join(code(name) for name in columns if name not in keys)
        parts.append(f"Of this probe in a table that several write: {own}.")
    else:
        parts.append(f"Value columns: {plain(said.values)}.")
    if said.text and not again:
        parts.append(said.text.replace("\n", " \n"))
    parts.append(f"Definition: {_schema_link(said)}.")
    return "\n\n".join(parts)
