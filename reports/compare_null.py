"""Do intervals of `compare` hold 0 where there is nothing? One model on two random halves of the same documents.

    python -m reports.compare_null [--model plain] [--windows 32] [--window 256] [--seeds 8]

Of each State of the Union address, paragraphs go to one of two halves by the seed; a half is a text of the same name.
So both runs read the same documents, by the same speaker on the same day, and differ in which paragraphs. What is said
about 95 % of the intervals of one comparison depends on its statistics together, as they are of one text: hence several
seeds. Printed: for each seed, and for all, how many intervals hold 0, and how many rows are beyond the joint band.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import geomprobe
from geomprobe.comparison.comparison import compare_runs
from geomprobe.corpus.sources import sotu


def halves(folder: Path, documents: int, seed: int) -> tuple[Path, Path]:
    """Write the two texts of a seed."""
    rng = np.random.default_rng(seed)
    folders = folder / f"{seed}-a", folder / f"{seed}-b"
    for one in folders:
        one.mkdir()
    for document in sotu().documents[:documents]:
        paragraphs = [part for part in document.text.split("\n\n") if part.strip()]
        side = rng.permutation(np.arange(len(paragraphs)) % 2)
        for which, one in enumerate(folders):
            text = "\n\n".join(p for p, s in zip(paragraphs, side, strict=True) if s == which)
            (one / f"{document.name}.txt").write_text(text, encoding="utf-8")
    return folders


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="plain")
    parser.add_argument("--windows", type=int, default=32)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    held, known, joint = [], [], 0
    with tempfile.TemporaryDirectory() as name:
        for seed in range(given.seeds):
            texts = halves(Path(name), given.windows, seed)
            runs = [
                geomprobe.analyze(
                    given.model,
                    text=text,
                    windows=given.windows,
                    window=given.window,
                    allow_short=True,
                    out=Path(name) / f"run-{seed}-{side}",
                    page=False,
                    quiet=True,
                )
                for side, text in zip("ab", texts, strict=True)
            ]
            table = compare_runs(runs).differences
            rows = table[table["low"].notna() & (table["quantity"] != "sink_rate")]  # 0 on both sides in small models
            inside = int(((rows["low"] <= 0) & (rows["high"] >= 0)).sum())
            beyond = int(rows["beyond"].sum())
            held.append(inside)
            known.append(len(rows))
            joint += beyond > 0
            n = int(rows["n_documents"].max())
            print(f"seed {seed}: {inside} of {len(rows)} intervals hold 0, {beyond} beyond; {n} documents", flush=True)
    shares = np.array(held) / np.array(known)
    error = shares.std(ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else float("nan")
    print(
        f"all: {sum(held) / sum(known):.3f} of {sum(known)} intervals hold 0 (± {error:.3f}, s.e. over seeds); a row "
        f"is beyond the joint band in {joint} of {given.seeds} comparisons"
    )


if __name__ == "__main__":
    main()
