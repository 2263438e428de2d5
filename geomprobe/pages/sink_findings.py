"""What a run says about where attention sinks."""

from collections.abc import Iterable

from geomprobe import tables
from geomprobe.labels import CLOSED_CLASSES, FIRST
from geomprobe.pages.finding import Finding, known
from geomprobe.pages.wording import isolated, listing, number, percent, ranges
from geomprobe.run.reading import Run
from geomprobe.tables import count

MOST_TOKENS = 4
MOST_CHANNELS = 8  # more are counted and not listed
PLURALS = {
    "function": "function words",
    "content": "content words",
    "subword": "pieces of words",
    "newline": "newlines",
    "number": "numbers",
    "special": "special tokens",
    "other": "other tokens",
}


def tell_first_mass(run: Run) -> Finding | None:
    """How much attention position 0 gets, over all heads and with an interval over documents."""
    if not tables.has(run, "sinks"):
        return None
    mass = run.tables["sinks"]["first_mass"].dropna()
    if not len(mass):
        return None
    values = {"mean": float(mass.mean()), "median": float(mass.median()), "n_heads": len(mass)}
    values |= {"q25": float(mass.quantile(0.25)), "q75": float(mass.quantile(0.75))}
    interval = ""
    if tables.has(run, "document_stats"):
        low, high, n = tables.document_interval(run, "first_mass")
        if known(low, high):
            values |= {"low": low, "high": high, "n_documents": n}
            interval = f"; 95% interval over {count(n, 'document')} {percent(low)} to {percent(high)}"
    text = (
        f"Queries give {percent(values['mean'])} of their attention to position 0 (first_mass, mean over "
        f"{count(len(mass), 'head')}; median head {percent(values['median'])}, quartiles {percent(values['q25'])} and "
        f"{percent(values['q75'])}{interval})."
    )
    return Finding("Where attention sinks", text, "sinks", values)


def tell_mass_by_depth(run: Run) -> Finding | None:
    """first_mass by third of the depth, and by kind of layer where some see a window."""
    if not tables.has(run, "sinks") or len(tables.thirds(run)) < 2:
        return None
    table = run.tables["sinks"]
    values: dict[str, float] = {}
    parts = []
    for index, third in enumerate(tables.thirds(run)):
        mass = table[table["layer"].isin(third)]["first_mass"].dropna()
        if len(mass):
            values |= {f"third_{index}": float(mass.mean()), f"n_{index}": len(mass)}
            parts.append(f"{percent(mass.mean())} in {tables.span(third)} ({count(len(mass), 'head')})")
    if not parts:
        return None
    by_layer = tables.over_heads(table, "first_mass").dropna()
    top = by_layer.reset_index().nlargest(1, "mean").to_dict("records")[0]
    values |= {"highest": float(top["mean"]), "n_highest": int(top["n"])}
    text = (
        f"By depth it is {listing(parts)}, highest in layer {int(top['layer'])} with {percent(values['highest'])} "
        f"({count(values['n_highest'], 'head')})"
    )
    full = tables.full_layers(run)
    kinds = [table[table["layer"].isin(full) == seen]["first_mass"].dropna() for seen in (True, False)]
    if full and all(len(kind) for kind in kinds):
        values |= {"full": float(kinds[0].mean()), "windowed": float(kinds[1].mean())}
        text += (
            f"; {percent(values['full'])} in the {count(len(full), 'layer')} with full attention "
            f"({count(len(kinds[0]), 'head')}) and {percent(values['windowed'])} in those with a window "
            f"({count(len(kinds[1]), 'head')}; queries past the window give it nothing)"
        )
    return Finding("Where attention sinks", text + ".", "sinks", values)


def tell_sink_rate(run: Run) -> Finding | None:
    """How often position 0 is a sink at ε = .3."""
    if not tables.has(run, "sink_rates"):
        return None
    rate, n = tables.sink_rate(run)
    if not known(rate):
        return None
    text = (
        f"Position 0 is a sink (α₀ > {tables.SINK_EPSILON} over the first 64 queries) in {percent(rate)} of {n:,} "
        "pairs of window and head."
    )
    return Finding("Where attention sinks", text, "sink_rates", {"rate": rate, "n": n})


def tell_learned_sink(run: Run) -> Finding | None:
    """What the model's own sink logit takes, where it has one."""
    if not tables.has(run, "sinks"):
        return None
    mass = run.tables["sinks"]["sink_logit_mass"].dropna()
    if not len(mass):
        return None
    text = (
        f"Its learned sink logit takes {percent(mass.mean())} of the attention (mean over {count(len(mass), 'head')}; "
        f"{percent(mass.min())} to {percent(mass.max())})."
    )
    return Finding("Where attention sinks", text, "sinks", {"mean": float(mass.mean()), "n_heads": len(mass)})


def tell_sink_tokens(run: Run) -> Finding | None:
    """Which tokens past position 0 sink."""
    if "sink_tokens" not in run.tables or not tables.looks_back(run):
        return None
    totals = tables.sink_token_totals(run)
    if not len(totals):
        text = f"Past position 0 no key draws more than {tables.SINK_EPSILON:.0%} of a head's attention."
        return Finding("Where attention sinks", text, "sink_tokens", {"n_tokens": 0})
    first = totals.head(MOST_TOKENS).to_dict("records")
    named = [
        f"{isolated(str(row['token']))} ({row['n_sink']:,} of {row['n_seen']:,} keys × heads, "
        f"{tables.span((row['layer_low'], row['layer_high']))})"
        for row in first
    ]
    text = (
        f"Past position 0, {count(len(totals), 'token')} {'draws' if len(totals) == 1 else 'draw'} more than "
        f"{tables.SINK_EPSILON:.0%} of a head's attention at least once (mean over the queries that see the key)"
        f"{':' if len(totals) <= MOST_TOKENS else ', most often'} {listing(named)}."
    )
    values = {"n_tokens": len(totals)} | {f"n_sink_{index}": int(row["n_sink"]) for index, row in enumerate(first)}
    return Finding("Where attention sinks", text, "sink_tokens", values)


def tell_massive(run: Run) -> Finding | None:
    """Which tokens have massive entries in the residual stream, in which channels and layers."""
    if "massive" not in run.tables:
        return None
    rule = f"|x| > {tables.MASSIVE_SIZE}, and at least {tables.MASSIVE_RATIO:,} × the median of its window and layer"
    table = run.tables["massive"]
    if not len(table):
        text = f"No entry of the residual stream is massive ({rule})."
        return Finding("Where attention sinks", text, "massive", {"n_pairs": 0})
    totals = tables.massive_totals(run)
    first = totals.head(MOST_TOKENS).to_dict("records")
    values: dict[str, float] = {"n_pairs": len(totals)}
    named = []
    for index, row in enumerate(first):
        values |= {f"{name}_{index}": float(row[name]) for name in ("n", "n_seen", "max_abs")}
        token = "position 0" if row["token_class"] == FIRST else isolated(str(row["token"]))
        named.append(
            f"{token} in channel {row['channel']} ({_numbered('layer', row['layers'])}, {row['n']:,} of "
            f"{row['n_seen']:,} tokens × layers, |x| up to {number(row['max_abs'])})"
        )
    channels = table["channel"].unique()
    many = len(channels) > MOST_CHANNELS
    values |= {"n_channels": len(channels)} if many else {}
    where = count(len(channels), "channel") if many else _numbered("channel", channels)
    dropped = int(table.groupby("layer")["n_dropped"].first().sum())
    values |= {"n_dropped": dropped} if dropped else {}
    text = (
        f"The residual stream that enters {_numbered('layer', table['layer'].unique())} has massive entries ({rule}), "
        f"{count(len(totals), 'pair')} of token and channel in {where}"
        f"{':' if len(totals) <= MOST_TOKENS else '; through the most layers'} {listing(named)}"
        f"{f'; {dropped:,} more are of rarer pairs, which the table leaves out' if dropped else ''}."
    )
    return Finding("Where attention sinks", text, "massive", values)


def _numbered(noun: str, numbers: Iterable[int]) -> str:
    """Things by their numbers: "layer 3", "channels 5, 7–9"."""
    numbers = [int(value) for value in numbers]
    return f"{noun}{'' if len(numbers) == 1 else 's'} {ranges(numbers)}"


def tell_sink_classes(run: Run) -> Finding | None:
    """To which classes the sinks past position 0 belong."""
    if not tables.has(run, "sink_tokens"):
        return None
    table = run.tables["sink_tokens"]
    group = table["token_class"].where(~table["token_class"].isin(CLOSED_CLASSES), "function")
    sums = table.groupby(group)["n_sink"].sum().sort_values(ascending=False)
    total = int(sums.sum())
    shares = {f"share_{name}": float(n / total) for name, n in sums.items()}
    named = [f"{percent(n / total)} {PLURALS.get(str(name), str(name))}" for name, n in sums.items()]
    text = f"By class, these sinks (n = {total:,} pairs of key and head) are {listing(named)}."
    if len(sums) == 1:
        text = f"All these sinks (n = {total:,} pairs of key and head) are {PLURALS.get(sums.index[0], sums.index[0])}."
        shares = {}
    return Finding("Where attention sinks", text, "sink_tokens", {"n": total, **shares})
