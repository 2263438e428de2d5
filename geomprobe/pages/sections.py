"""The tables of a page: what a run's tables say, as text in cells."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from geomprobe import edit_tables, tables
from geomprobe.figures.drawing import scope, shading
from geomprobe.labels import WHOLE_MODEL
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import make_ledger
from geomprobe.ledger.writing import WORDS
from geomprobe.pages.wording import NOTHING, change, coded, isolated, number, percent, signed
from geomprobe.run.reading import Run
from geomprobe.tables import count

MOST_TOKENS = 25


@dataclass(frozen=True)
class PageTable:
    """A table as it is printed: every cell is text; the first column names the row, and all hold words in `prose`."""

    name: str
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    prose: bool = False


def page_tables(run: Run) -> list[PageTable]:
    """The tables of the page that this run has values for."""
    if tables.kind(run) == tables.INTERVENTION:
        return tables_of_edits(run)
    made = [*claims_tables(run), layer_table(run)]
    if tables.has(run, "sink_tokens"):
        made.append(token_table(run))
    if tables.of_text(run) and tables.has(run, "class_attention"):
        made.append(class_table(run))
    if tables.has(run, "word_neighbours"):
        made.append(neighbour_table(run))
    return made


def tables_of_edits(run: Run) -> list[PageTable]:
    """What edits cost, in all their layers at once and, where that was asked for, in each by itself."""
    joint = edit_tables.joint_costs(run)
    rows = [
        [
            coded(row["setting"]),
            change(row["delta_ce"]),
            _interval(row["low"], row["high"]),
            number(row["kl"]),
            change(row["delta_class_sink"]),
            percent(row["displacement"]),
            change(row["per_displacement"]),
        ]
        for row in joint.to_dict("records")
    ]
    read = f"{count(joint['n_tokens'].max(), 'predicted token')} of {count(joint['n_documents'].max(), 'document')}"
    most = joint["n_kept"].max()
    kept = f" ({count(most, 'pair')} or channels kept their scale, as they could not be balanced)" if most else ""
    caption = (
        f"Edited in {edit_tables.edited(run)} at once. loss: with the edit less without, nats a token predicted from "
        "positions ≥ 16; its 95% interval is over documents (– for fewer than five). KL: of the next-token "
        "distributions, without ‖ with, nats. Λ: of function words less that of content words, with the edit less "
        "without, nats. keys moved by: mean ‖k′ − k‖/‖k‖ in the gauge of the edit; loss per move: loss over that. "
        f"@balanced: made in the balanced gauge{kept}; sham: keys rewritten with themselves. n = {read}, from the "
        "second half of the windows. "
        f"{scope(run)}"
    )
    columns = ["edit", "loss", "95% interval", "KL", "Λ of function words", "keys moved by", "loss per move"]
    made = [PageTable("edits", "What edits cost", caption, columns, rows)]
    single = edit_tables.single_costs(run)
    if len(single):
        made.append(_single_table(run, single))
    return made


def _single_table(run: Run, single: pd.DataFrame) -> PageTable:
    settings = list(dict.fromkeys(single["setting"]))
    losses = single.pivot(index="layer", columns="setting", values="delta_ce")
    rows = [[str(layer), *(change(row[name]) for name in settings)] for layer, row in losses.iterrows()]
    caption = (
        "Loss with the edit in that layer alone, less the loss without, in nats a token predicted from positions ≥ 16. "
        f"n = {count(single['n_tokens'].max(), 'predicted token')}, from the second half of the windows. {scope(run)}"
    )
    return PageTable("edits-by-layer", "What edits of one layer cost", caption, ["layer", *settings], rows)


def _interval(low: float, high: float) -> str:
    return NOTHING if math.isnan(low) else f"{change(low)} to {change(high)}"


def claims_tables(run: Run) -> list[PageTable]:
    """The ledger of this run alone; none where the run has not what most claims need."""
    if not tables.of_text(run) or not tables.has(run, "split", "type_stats"):
        return []
    ledger = make_ledger(Checkpoint(run))
    rows = [
        [row["claim"], row["title"], WORDS[row["verdict"]], row["sentence"]] for row in ledger.claims.to_dict("records")
    ]
    caption = (
        "Claims about length, angle and sinks, each decided by a rule that was fixed before "
        f"({ledger.dated.isoformat()}), on this run alone; what needs edits is not tested here. {ledger.n_primary} "
        "primary endpoints share a level of 5% (Holm). A verdict is about this checkpoint. The command geomprobe "
        f"claims {run.path.name} --out FOLDER writes the evidence; docs/claims.md says how each is decided."
    )
    columns = ["row", "claim", "verdict", "what was seen"]
    return [PageTable("claims", "Which claims hold", caption, columns, rows, prose=True)]


def neighbour_table(run: Run) -> PageTable:
    """The ten nearest words of the rarest ones."""
    table = run.tables["word_neighbours"]
    rows = []
    for (word, space), near in table.groupby(["word", "space"], sort=False):
        row = near.iloc[0]
        where = {
            "content": f"key head {row['head']}, layer {row['layer']}",
            "residual": f"residual, layer {row['layer']}",
        }
        rows.append(
            [
                isolated(str(word)),
                number(float(row["zipf"])),
                where.get(str(space), "input embedding"),
                ", ".join(isolated(str(other)) for other in near.sort_values("rank")["neighbour"]),
            ]
        )
    rows.sort(key=lambda row: row[0])
    n = table["word"].nunique()
    caption = (
        f"The {count(n, 'word')} of the study that are rarest by Zipf frequency, each with its ten nearest words among "
        "all that were studied, nearest first (cosine of centred directions). The head is the one that separates the "
        f"categories best, the residual stream what enters its layer. {run.name} on {run.manifest['corpus']['name']}."
    )
    return PageTable(
        "neighbours", "Neighbours of rare words", caption, ["word", "Zipf", "where", "nearest words"], rows
    )


def layer_table(run: Run) -> PageTable:
    """Per layer: window, key length, first_mass, entropy, largest logit."""
    summary = tables.layer_summary(run)
    sinks: dict[Any, list[str]] = {}
    if tables.has(run, "sink_tokens"):
        sinks = {layer: tables.layer_sink_tokens(run, layer) for layer in tables.layers(run)}
    rows = [
        [
            str(layer),
            "all" if pd.isna(row["window"]) else f"{int(row['window']):,}",
            number(row["k_length"]),
            number(row["k_first"]),
            number(row["k_log_sd"]),
            percent(row["first_mass"]),
            f"{percent(row['first_mass_low'])} to {percent(row['first_mass_high'])}",
            percent(row["sink_rate"]),
            number(row["entropy"]),
            number(row["logit_max"]),
            ", ".join(isolated(token) for token in sinks.get(layer, [])) or NOTHING,
        ]
        for layer, row in summary.to_dict("index").items()
    ]
    shape = tables.anatomy(run)
    caption = (
        "Key length: median length of scored keys past position 0; log sd: standard deviation of their log length; key "
        "at position 0: median length; entropy in nats, queries t ≥ 16: each the median over the heads of the layer "
        f"({_heads(shape['kv_heads'])} for keys, {_heads(shape['q_heads'])} for attention). first_mass: attention on "
        "position 0, mean over the heads, with the smallest and the largest of them. Sink rate: share of windows × "
        f"heads with α₀ > {tables.SINK_EPSILON}. Largest logit: of all heads. Other sinks: tokens past "
        f"position 0 with α(k) > {tables.SINK_EPSILON}, the three most frequent. {shading(run)} {scope(run)}"
    )
    columns = ["layer", "sees", "key length", "key at position 0", "log sd of keys", "first_mass", "heads"]
    columns += ["sink rate", "entropy", "largest logit", "other sinks"]
    return PageTable("layers", "Layer by layer", caption, columns, rows)


def _heads(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return count(low, "head") if low == high else f"{low}–{high} heads"


def token_table(run: Run) -> PageTable:
    """Tokens that sink past position 0."""
    totals = tables.sink_token_totals(run)
    rows = [
        [
            isolated(str(row["token"])),
            str(row["token_id"]),
            str(row["token_class"]),
            f"{row['n_sink']:,}",
            f"{row['n_seen']:,}",
            percent(row["rate"]),
            percent(row["top_rate"]),
            f"{row['n_heads']:,}",
            tables.span((row["layer_low"], row["layer_high"])).split(" ")[1],
        ]
        for row in totals.head(MOST_TOKENS).to_dict("records")
    ]
    left = f", the {MOST_TOKENS} most frequent here" if len(totals) > MOST_TOKENS else ""
    caption = (
        f"{count(len(totals), 'token')}{left}: keys at k ≥ 1 with α(k) > {tables.SINK_EPSILON}. sinks and keys are "
        "summed over the heads where the token is a sink at least once (keys × heads); share = sinks ÷ keys; highest "
        f"share: of a single head; heads: how many, of all layers. {scope(run)}"
    )
    columns = ["token", "id", "class", "sinks", "keys", "share", "highest share", "heads", "layers"]
    return PageTable("tokens", "Tokens that sink past position 0", caption, columns, rows)


def class_table(run: Run) -> PageTable:
    """Token classes: how much attention, and how much more than content neighbours."""
    summary = tables.class_summary(run)
    spans = [tables.span(third) for third in tables.thirds(run)]
    rows = [
        [
            str(name),
            f"{int(row['n_tokens']):,}",
            f"{int(row['n_types']):,}",
            number(row["lift"]),
            f"{number(row['lift_q25'])} to {number(row['lift_q75'])}",
            *(signed(row[f"class_sink_{index}"]) for index in range(len(spans))),
            percent(row["coverage"]),
            signed(row["neighbour_offset"]),
        ]
        for name, row in summary.iterrows()
    ]
    heads = len(run.tables["class_attention"][["layer", "q_head"]].drop_duplicates())
    caption = (
        f"Medians over the heads ({heads:,}, all layers; class_sink: the heads of the layers named). types: those with "
        "at least five tokens behind a Λ. lift: attention received ÷ uniform share. class_sink: Λ of the class − Λ of "
        "content, in nats. coverage: part of the attention on the class that the pairs behind Λ hold. offset: mean "
        f"place of the content neighbours from the token, in tokens. {scope(run)}"
    )
    columns = ["class", "tokens", "types", "lift", "quartiles", *(f"class_sink, {span}" for span in spans)]
    return PageTable("classes", "Token classes", caption, [*columns, "coverage", "offset"], rows)


def parity_table(run: Run) -> PageTable | None:
    """The worst layer of each check, and the model's output."""
    if not tables.has(run, "parity"):
        return None
    table = run.tables["parity"]
    inner, whole = table[table["layer"] != WHOLE_MODEL], table[table["layer"] == WHOLE_MODEL]
    rows = []
    for column, said in (
        ("max_abs_attention", "attention weights against the model's eager weights"),
        ("max_abs_output", "attention × values against what the kernel returned"),
    ):
        worst = inner.dropna(subset=[column]).nlargest(1, column)
        rows += [_parity_row(said, str(row["layer"]), row, column) for row in worst.to_dict("records")]
    said = "the model's output with the capture against without"
    rows += [_parity_row(said, "output", row, "max_abs_output") for row in whole.to_dict("records")]
    caption = f"Largest absolute differences; the worst of {count(len(inner), 'layer')}. "
    caption += f"n = {count(run.manifest['parity']['n_tokens'], 'token')} of a probe text."
    return PageTable("parity", "Parity", caption, ["check", "layer", "difference", "tolerance", "verdict"], rows)


def _parity_row(said: str, where: str, row: dict[Any, Any], column: str) -> list[str]:
    verdict = "agrees" if row["ok"] else "DISAGREES"
    return [said, where, number(row[column]), number(row["tolerance"]), verdict]


def provenance(run: Run) -> list[tuple[str, str]]:
    """What it takes to get these numbers again, as pairs of name and text; entries that are not there are left out."""
    manifest = run.manifest
    model, corpus = manifest["model"], manifest["corpus"]
    pairs: list[tuple[str, Any]] = [
        ("model", model["name"]),
        ("id", model["id"]),
        ("source", model["source"]),
        ("revision", model["revision"]),
        ("sha256 of the weights", model["sha256"]),
        ("family", model["family"]),
        ("parameters", f"{model['parameters']:,}" if model["parameters"] else None),
        ("dtype", model["dtype"]),
        ("attention kernel", model["kernel"]),
        ("device", model["device"]),
        *(_of_text(corpus) if tables.of_text(run) else _of_images(corpus)),
        ("probes", "; ".join(f"{name}{_parameters(given)}" for name, given in manifest["probes"].items())),
        ("seed", manifest["seed"]),
        ("command", manifest["command"]),
        ("created", manifest["created"]),
        ("geomprobe", manifest["geomprobe"]),
        ("versions", ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())),
        ("seconds", ", ".join(f"{name} {number(float(took))}" for name, took in manifest["timings"].items())),
    ]
    return [(name, str(value)) for name, value in pairs if value not in (None, "", NOTHING)]


def _of_text(corpus: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        ("text", corpus["name"]),
        ("sha256 of the text", corpus["sha256"]),
        ("sha256 of the tokens", corpus["tokens_sha256"]),
        ("language", corpus["language"]),
        ("windows", f"{corpus['n_windows']:,} of {corpus['window']:,} tokens"),
        ("tokens, documents", f"{corpus['n_tokens']:,}, {corpus['n_documents']:,}"),
        ("BOS", "in front of each window" if corpus["bos"] else "none added"),
    ]


def _of_images(corpus: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        ("images", corpus["name"]),
        ("sha256 of the images", corpus["sha256"]),
        ("images, places each", f"{corpus['n_windows']:,}, {corpus['window']:,}"),
    ]


def _parameters(given: Any) -> str:
    if not isinstance(given, dict) or not given:
        return ""
    return f" ({', '.join(f'{name} = {value}' for name, value in given.items())})"
