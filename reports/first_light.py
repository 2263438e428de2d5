"""Writes first-light.md out of run folders: what three analyses say, layer by layer.

python reports/first_light.py RUN [RUN …] > reports/first-light.md
"""

import sys

import pandas as pd

from geomprobe import open_run, tables
from geomprobe.run.reading import Run

HEADER = """# First light

What `geomprobe analyze` says of two checkpoints on its default text (State of the Union addresses), on a CPU in
float32. Made by `python reports/first_light.py` from the run folders of the commands below; every number is from their
tables.

- *key length*: median over heads of the median length of scored keys, position 0 apart; *position 0*: the same of the
  first key.
- *log_sd*: median over heads of the standard deviation of log key length, position 0 apart.
- *first_mass*: mean over heads of the mean attention on position 0 (queries t ≥ 1).
- *sinks after position 0*: keys with α > .3, at most three tokens a layer, and how many of all (head, key) pairs of
  that token sink.

These checkpoints differ in family, data, size, head width and quantisation as well as in QK norm; what differs between
them is described here and not explained.
"""


def _keys(run: Run) -> pd.DataFrame:
    norms = run.tables["norms"]
    keys = norms[(norms["vector"] == "k") & (norms["stage"] == "scored")]
    rest, first = (keys[keys["token_class"] == name].groupby("layer") for name in ("all", "first"))
    return pd.DataFrame(
        {"length": rest["p50"].median(), "first": first["p50"].median(), "log_sd": rest["log_sd"].median()}
    )


def _sinking(run: Run, layer: int) -> str:
    table = run.tables["sink_tokens"]
    table = table[table["layer"] == layer]
    total = table.groupby("token", sort=False)["n_sink"].sum().sort_values(ascending=False)
    heads = int((run.tables["sinks"]["layer"] == layer).sum())
    seen = table.groupby("token")["n_seen"].max()
    return ", ".join(f"`{tables.visible(token)}` {n} of {heads * seen[token]:,}" for token, n in total.head(3).items())


def section(run: Run) -> str:
    """One checkpoint's part."""
    model, corpus, parity = (run.manifest[name] for name in ("model", "corpus", "parity"))
    first_mass = run.tables["sinks"].groupby("layer")["first_mass"].mean()
    windows = {layer["layer"]: layer["window"] for layer in model["anatomy"]}
    norm = next((layer["k_norm"] for layer in model["anatomy"] if layer["k_norm"]), None)
    sliding = any(window is not None for window in windows.values())
    lines = [
        f"## {run.name}, {corpus['n_windows']} windows of {corpus['window']} tokens",
        "",
        f"`{run.manifest['command']}`",
        "",
        f"QK norm: {'none' if norm is None else norm['axis'] + ', ' + norm['order']}. Parity: attention rebuilt to "
        f"{parity['max_abs_attention']:.1e}, output with the capture off by {parity['max_abs_output']:.0f}. "
        f"BOS: {'yes' if corpus['bos'] else 'no'}. "
        f"Loss {_loss(run):.2f} nats a token. sink_rate (ε = .3, first 64 positions): {_rate(run)}.",
        "",
        f"| layer |{' window |' if sliding else ''} key length | position 0 | log_sd | first_mass | "
        "sinks after position 0 |",
        f"|---|{'---|' if sliding else ''}---|---|---|---|---|",
    ]
    for layer, row in _keys(run).iterrows():
        window = f" {windows[layer] or 'full'} |" if sliding else ""
        numbers = f"{row['length']:.1f} | {row['first']:.1f} | {row['log_sd']:.3f} | {first_mass[layer]:.3f}"
        lines.append(f"| {layer} |{window} {numbers} | {_sinking(run, layer)} |")
    return "\n".join(lines) + "\n"


def _loss(run: Run) -> float:
    table = run.tables["document_stats"]
    table = table[(table["layer"] == -1) & table["loss"].notna()]
    return float((table["loss"] * table["n_rows"]).sum() / table["n_rows"].sum())


def _rate(run: Run) -> str:
    table = run.tables["sink_rates"]
    row = table[(table["layer"] == -1) & (table["epsilon"] == 0.3)].iloc[0]
    return f"{row['rate']:.1%} of {int(row['n']):,} (window, head) pairs"


if __name__ == "__main__":
    print("\n".join([HEADER, *(section(open_run(path)) for path in sys.argv[1:])]), end="")
