"""Writes words.md out of run folders: clusters of meaning and neighbours of rare words, space by space.

python reports/words.py RUN [RUN …] > reports/words.md
python reports/words.py RUN --pictures reports/words-novels > reports/words-novels.md
"""

import argparse
import shutil
from pathlib import Path

from geomprobe import open_run, tables
from geomprobe.figures.catalogue import FIGURES
from geomprobe.run.reading import Run

HEADER = """# Words: clusters and neighbours

What `geomprobe analyze --probes all` says about directions, on {text}
and its packaged nouns, on a CPU in float32. Made by `python reports/words.py` from the run folders of the commands
below; every number is from their tables.

- *AUC*: how often two nouns of one category point more alike than two of different ones (centred; .5 is chance), with a
  95 % interval from drawing nouns; keys and queries: mean over the heads of a layer. *shuffled*: the same with the
  categories reassigned. *contexts alone*: a random vector for each token before the noun, averaged: what a model
  without any knowledge makes of the windows. *PR*: participation ratio, beside that of a round cloud of as many nouns.
- *neighbours*: overlap (Jaccard) of the ten nearest words from two halves of a word's contexts, and share of neighbours
  above the median frequency; median head of the keys past layer 0, by decile of frequency.
"""
SEVERAL = """
These checkpoints differ in family, data, size, head width and quantisation as well as in QK norm; what differs between
them is described here and not explained.
"""
TEXTS = {
    "sotu": "its default text (State of the Union addresses: narrow, politics over two centuries)",
    "corpus": "98 English novels of 1719 to 1930 (docs/training.md says which; here they lie in a folder `corpus`)",
}
PICTURES = ("cluster_auc", "word_map", "neighbour_quality", "hubs")
SPACES = {
    "k": "keys",
    "q": "queries",
    "k_balanced": "keys, balanced gauge",
    "residual": "residual stream",
    "embedding": "input embedding",
    "context": "contexts alone",
}
STEP = 4  # layers between two that are shown


def section(run: Run) -> str:
    """One checkpoint's part."""
    words = run.manifest["words"]
    left_out = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in words["left_out"].items())
    first = run.tables["clusters"].iloc[0]
    lines = [
        f"## {run.name}",
        "",
        f"`{_command(run)}`",
        "",
        f"{int(first['n_types'])} nouns in {int(first['n_categories'])} categories, {int(first['m'])} contexts each; "
        f"{_contrasted(run)} words of all frequencies, 16 contexts each; windows of {words['context']} tokens. "
        f"Left out: {left_out}.",
        "",
        "| space | layer | AUC | 95 % | shuffled | silhouette z | PR | PR, round |",
        "|---|---|---|---|---|---|---|---|",
        *_clusters(run),
        "",
        "| decile | neighbours last | above the median |",
        "|---|---|---|",
        *_neighbours(run),
        "",
    ]
    return "\n".join(lines)


def _command(run: Run) -> str:
    """As a person would type it, wherever the run was put."""
    words = run.manifest["command"].split()
    if "--text" in words:
        place = words.index("--text") + 1
        words[place] = Path(words[place]).name
    at = words.index("--out") if "--out" in words else len(words)
    return " ".join(["geomprobe", *words[1:at], *words[at + 2 :]])


def _contrasted(run: Run) -> int:
    table = run.tables["neighbours"]
    return int(table[table["frequency_band"] == tables.ALL_BANDS]["n_types"].max())


def _clusters(run: Run) -> list[str]:
    rows = []
    for name, line in tables.cluster_lines(run).items():
        last = int(line["layer"].max())
        for row in line.to_dict("records"):
            if int(row["layer"]) % STEP and int(row["layer"]) != last:
                continue
            layer = "–" if name in ("embedding", "context") else str(int(row["layer"]))
            rows.append(
                f"| {SPACES[name]} | {layer} | {row['auc']:.3f} | {row['auc_low']:.3f} to {row['auc_high']:.3f} | "
                f"{row['auc_shuffled']:.3f} | {row['silhouette_z']:.0f} | {row['participation_ratio']:.1f} | "
                f"{row['participation_ratio_null']:.1f} |"
            )
    return rows


def _neighbours(run: Run) -> list[str]:
    stable, frequent = (
        tables.neighbour_bands(run, column, "k")["median"] for column in ("stability", "rare_neighbour_share")
    )
    return [f"| {band + 1} | {stable[band]:.3f} | {frequent[band]:.3f} |" for band in stable.index]


def pictures(run: Run, folder: Path) -> str:
    """The run's figures of words, copied into a folder beside the report."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name in PICTURES:
        drawing = FIGURES[name]
        shutil.copyfile(run.path / "figures" / f"{name}.png", folder / f"{name}.png")
        lines += [
            f"### {drawing.title}",
            "",
            f"![{drawing.alt}]({folder.name}/{name}.png)",
            "",
            drawing.caption(run),
            "",
        ]
    return "\n".join(lines)


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--pictures", type=Path, help="a folder for the figures of words")
    given = parser.parse_args()
    runs = [open_run(path) for path in given.runs]
    print(HEADER.format(text=TEXTS[runs[0].manifest["corpus"]["name"]]) + (SEVERAL if len(runs) > 1 else ""))
    for run in runs:
        print(section(run))
        if given.pictures is not None:
            print(pictures(run, given.pictures))


if __name__ == "__main__":
    main()
