"""The sections beside the claims: the noise floor, losses of all arms, Backcopy's sinks, a larger size."""

from collections.abc import Mapping

from geomprobe.evidence import tables
from geomprobe.evidence.blocks import Block, Section
from geomprobe.evidence.tables import MICRO, Evidence
from geomprobe.evidence.telling import noise_told, short
from geomprobe.evidence.twins import NORMED, PLAIN
from geomprobe.ledger.thresholds import of
from geomprobe.pages.parts import PageFigure
from geomprobe.pages.sections import PageTable
from geomprobe.pages.wording import NOTHING, change, coded, number
from geomprobe.tables import count


def noise_section(evidence: Evidence) -> Section:
    """How far two arms lie apart that are the same function."""
    noise = tables.noise_table(evidence.records)
    blocks: list[Block] = [noise_told(noise)]
    if noise["n_seeds"].any():
        rows = []
        for row in tables.rows_of(noise):
            cells = [change(row["mean"]), number(row["sd"]), number(row["largest"])]
            rows.append([short(row["quantity"]), str(row["n_seeds"]), *cells])
        caption = "A4 − A2 of the same seed; largest: the largest difference of a seed, without its sign."
        columns = ["quantity", "seeds", "mean", "sd", "largest"]
        blocks.append(PageTable("noise", "The noise floor", caption, columns, rows))
    return Section("noise", "The noise floor", blocks)


def losses_section(evidence: Evidence, figures: Mapping[str, PageFigure]) -> Section:
    """Losses of all arms, over training and at the end."""
    table = tables.loss_table(evidence.records)
    rows = []
    for row in tables.rows_of(table):
        cells = [
            text
            for name in tables.LOSSES
            for text in (_with_spread(row[name], row[f"{name}_sd"]), change(row[f"{name}_gap"]))
        ]
        rows.append([str(row["group"]), f"{row['rate']:g}", str(row["arm"]), str(row["n_seeds"]), *cells])
    columns = ["group", "rate", "arm", "seeds"]
    columns += [text for words in tables.LOSSES.values() for text in (words, f"{words}, less {PLAIN}")]
    gone = int(table["n_diverged"].sum())
    lost = f" {count(gone, 'run')} diverged and {'have' if gone > 1 else 'has'} no loss." if gone else ""
    caption = (
        "Final held-out loss in nats a token at one, two and four times the training length, and on another text (the "
        "State of the Union addresses): mean over seeds (sd over seeds), and the mean difference to "
        f"{PLAIN} of the same seeds.{lost}"
    )
    page = PageTable("losses", "Losses of all arms", caption, columns, rows)
    return Section("losses", "Losses of all arms", [figures["losses"], page])


def _with_spread(middle: float, sd: float) -> str:
    if middle != middle:
        return NOTHING
    return f"{middle:.4f}" if sd != sd else f"{middle:.4f} ({number(sd)})"


def idle_section(evidence: Evidence, figures: Mapping[str, PageFigure]) -> Section:
    """The sinks of Backcopy by arm."""
    table = tables.idle_table(evidence.records)
    blocks: list[Block] = [
        "In the Bigram–Backcopy task attention has work to do at a few trigger tokens and none at all others, so that "
        "it must rest somewhere there. Does it rest on the first position, and does that key draw it by its length or "
        "by its direction?"
    ]
    if not len(table):
        return Section("backcopy", "Where idle attention rests", [*blocks, figures["backcopy"]])
    rows = [
        [
            *(str(row[name]) for name in ("group", "arm", "layer", "n_seeds", "n_copying")),
            *(number(row[name]) for name in tables.OF_IDLE),
        ]
        for row in tables.rows_of(table)
    ]
    columns = ["group", "arm", "layer", "seeds", "that copy", "first, idle", "uniform", "first, at triggers"]
    columns += ["token before, at triggers", "key length", "value length", "cosine, first", "cosine, others"]
    columns += ["gap by length", "gap by angle"]
    caption = (
        "Means over seeds; that copy: seeds that learned the task, with more than .6 of the attention of trigger rows "
        "on the token that they must copy. Attention on the first position of idle rows, what uniform attention gives, "
        "the same of trigger rows, and these rows' attention on the token that they must copy; length of the first key "
        "and value over that of the others; cosine to the query; logit of the first key less the mean of the others', "
        "in its two parts."
    )
    page = PageTable("backcopy", "Sinks of idle rows", caption, columns, rows)
    return Section("backcopy", "Where idle attention rests", [*blocks, figures["backcopy"], page])


def sink_page(evidence: Evidence) -> list[Block]:
    """At which step, size and learning rate sinks appear in each arm."""
    table, rows = tables.sink_table(evidence.records), []
    if not len(table):
        return []
    for row in tables.rows_of(table):
        steps = {int(step) for step in (row["first_step"], row["last_step"]) if step == step}
        when = " to ".join(f"{step:,}" for step in sorted(steps)) or NOTHING
        rows.append(
            [
                str(row["group"]),
                f"{row['rate']:g}",
                str(row["arm"]),
                f"{row['n_sinks']} of {row['n_runs']}",
                number(row["first_mass"]),
                number(row["uniform"]),
                when,
                f"{row['n_steps']:,}",
            ]
        )
    caption = (
        f"A run has a sink where at its end the first position gets at least {of('H9', 'entry'):g} times what uniform "
        "attention gives it, on two held-out sequences of the training length, mean over rows from 16 on, heads and "
        "layers (the claim itself is decided in windows of 64 tokens, from the mean of its arm); from step: the first "
        "measured one from which on that is so, over the runs with a sink. Size and tokens of each group are in the "
        "table of groups. Runs that diverged are left out."
    )
    columns = ["group", "rate", "arm", "with a sink", "attention on the first", "uniform", "from step", "of steps"]
    return [PageTable("sinks", "Where and when sinks appear", caption, columns, rows)]


def temperature_page(evidence: Evidence) -> list[Block]:
    """By what number logits should be multiplied, by context length."""
    table = tables.temperature_table(evidence.records)
    if not len(table):
        return []
    rows = [
        [
            str(row["arm"]),
            str(row["n_seeds"]),
            *(_with_spread(row[f"best_beta_{factor}x"], row[f"best_beta_{factor}x_sd"]) for factor in tables.FACTORS),
            *(number(row[f"beta_gain_{factor}x"]) for factor in tables.FACTORS),
        ]
        for row in tables.rows_of(table)
    ]
    columns = ["arm", "seeds", *(f"β* at {factor}×" for factor in tables.FACTORS)]
    columns += [f"gain at {factor}×" for factor in tables.FACTORS]
    caption = (
        "β*: the number between 1/32 and 32 by which all logits of all layers must be multiplied for the least "
        "held-out loss, at one, two and four times the training length, on the same tokens (1: the model's own "
        "temperature is the best): geometric mean over seeds (sd of its log). Gain: what that takes off the loss on "
        "the tokens on which it was looked for, nats a token."
    )
    return [PageTable("temperature", "The best temperature by context length", caption, columns, rows)]


def length_section(evidence: Evidence) -> Section:
    """What the articles say first of all, that lengths make tokens loud: what twins have of it."""
    title = "Do lengths make tokens loud?"
    table = tables.length_table(evidence.records)
    told = (
        "The articles' first claims are that without a QK norm tokens become important by their length (C1), and that "
        "function words become sinks by it (C2). They are decided on any checkpoint, released ones too, by "
        f"{coded('geomprobe claims')}; here stands what twins have of them, and what the norm changes."
    )
    if not len(table):
        return Section("lengths", title, [f"There are no twins of {PLAIN} and {NORMED} that have these numbers yet."])
    rows = []
    for row in tables.rows_of(table):
        between = NOTHING if row["low"] != row["low"] else f"{change(row['low'])} to {change(row['high'])}"
        cells = [number(row["plain"]), number(row["normed"]), str(row["n_seeds"]), change(row["estimate"]), between]
        rows.append([str(row["group"]), short(str(row["quantity"])), *cells])
    columns = ["group", "quantity", PLAIN, NORMED, "seeds", f"{NORMED} − {PLAIN}", "95% interval"]
    caption = "Described, not decided: means over seeds, and the mean difference with an interval of Student's t."
    return Section("lengths", title, [told, PageTable("lengths", "What lengths tell", caption, columns, rows)])


def larger_section(evidence: Evidence) -> Section:
    """The two main arms at a larger size."""
    table = tables.larger_table(evidence.records)
    if not table["n_seeds"].any():
        missing = f"There are no twins of {PLAIN} and {NORMED} in the group {MICRO} yet."
        return Section("larger", "At a larger size", [missing])
    rows = []
    for row in tables.rows_of(table):
        between = NOTHING if row["low"] != row["low"] else f"{change(row['low'])} to {change(row['high'])}"
        cells = [number(row["plain"]), number(row["normed"]), str(row["n_seeds"]), change(row["estimate"]), between]
        rows.append([short(str(row["quantity"])), *cells])
    columns = ["quantity", PLAIN, NORMED, "seeds", f"{NORMED} − {PLAIN}", "95% interval"]
    caption = "Described, not decided: means over seeds, and the mean difference with an interval of Student's t."
    return Section("larger", "At a larger size", [PageTable("larger", "The group micro", caption, columns, rows)])
