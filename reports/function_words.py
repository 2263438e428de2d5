"""Judges the function words of each language on gold part-of-speech tags and prints what it finds as Markdown tables.

python reports/function_words.py FOLDER_OF_GOLD

The folder has XX_dev.tsv for each language XX: a line is a form, a tab and its tag of Universal Dependencies, the tags
of a token of several words joined by +.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from geomprobe.corpus.function_words import N_APPROXIMATE, function_words, languages, most_frequent

FUNCTION = frozenset({"ADP", "AUX", "CCONJ", "SCONJ", "DET", "PRON", "PART"})
LEFT_OUT = frozenset({"PUNCT", "SYM", "X", "NUM"})
SIZES = (80, 100, N_APPROXIMATE, 150, 200)

Gold = Counter[tuple[str, bool]]  # by form and whether it is a function word there


class Scores(NamedTuple):
    """How well words agree with gold tags."""

    precision: float
    recall: float
    n: int  # word forms judged


def read_gold(lines: Iterable[str]) -> Gold:
    """Word forms in lower case, with the straight apostrophe; blank lines between sentences are skipped."""
    gold: Gold = Counter()
    for line in filter(None, map(str.strip, lines)):
        form, _, tag = line.partition("\t")
        tags = frozenset(tag.split("+"))
        if not tags & LEFT_OUT:
            gold[form.lower().replace("’", "'"), tags <= FUNCTION] += 1
    return gold


def judge(words: Collection[str], gold: Gold) -> Scores:
    """Precision and recall of a set of words that is looked up form by form."""
    found = Counter[bool]()
    for (form, is_function), n in gold.items():
        if form in words:
            found[is_function] += n
    n_function = sum(n for (_, is_function), n in gold.items() if is_function)
    return Scores(found[True] / found.total(), found[True] / n_function, gold.total())


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([head, "|".join(["", *["---"] * (head.count("|") - 1), ""]), *rows]) + "\n"


def report(folder: Path) -> str:
    """Three tables: the lists, the most frequent words in place of a list, and how many of these to take."""
    gold = {}
    for language in languages():
        with (folder / f"{language}_dev.tsv").open(encoding="utf-8") as lines:
            gold[language] = read_gold(lines)
    lists, frequent = [], []
    for language, words in gold.items():
        own, other = (judge(chosen, words) for chosen in (function_words(language), most_frequent(language)))
        n_forms = len(function_words(language))
        lists.append(f"| {language} | {n_forms} | {own.precision:.3f} | {own.recall:.3f} | {own.n:,} |")
        frequent.append(f"| {language} | {other.precision:.3f} | {other.recall:.3f} |")
    sizes = []
    for size in SIZES:
        scores = [judge(most_frequent(language, size), words) for language, words in gold.items()]
        precision, recall = (sum(values) / len(scores) for values in list(zip(*scores, strict=True))[:2])
        sizes.append(f"| {size} | {precision:.3f} | {recall:.3f} |")
    parts = (
        _table("| language | forms | precision | recall | word forms judged |", lists),
        f"The {N_APPROXIMATE} most frequent words in place of a list:\n",
        _table("| language | precision | recall |", frequent),
        "How many to take, means over the languages:\n",
        _table("| words | precision | recall |", sizes),
    )
    return "\n".join(parts)


if __name__ == "__main__":
    print(report(Path(sys.argv[1])), end="")
