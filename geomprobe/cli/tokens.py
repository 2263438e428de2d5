"""`geomprobe tokens`: shows how a text is classed, so that a person can check it."""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.text import Text

    from geomprobe.corpus.tokenizing import TokenizedText

# One look a class: hue by kind, so that the closed classes stand together; none rests on red against green.
STYLES = {
    "special": "bold white on magenta",
    "newline": "dim",
    "punctuation": "bold yellow",
    "number": "cyan",
    "subword": "dim underline",
    "article": "bold bright_blue",
    "preposition": "bright_blue",
    "pronoun": "bold magenta",
    "conjunction": "magenta",
    "auxiliary": "bold bright_cyan",
    "determiner": "italic bright_blue",
    "particle": "italic magenta",
    "content": "default",
    "other": "black on yellow",
}


class Format(StrEnum):
    """What is printed."""

    colors = "colors"
    table = "table"


def tokens(
    model: Annotated[str, typer.Option("--model", help="The checkpoint whose tokenizer is used: id, alias or folder.")],
    text: Annotated[Path, typer.Option("--text", help="A UTF-8 text file, or a folder of *.txt.")],
    limit: Annotated[int, typer.Option("--limit", help="Tokens to show of each document, at most.")] = 300,
    language: Annotated[str, typer.Option("--language", help="Whose function words are looked up.")] = "en",
    layout: Annotated[
        Format, typer.Option("--format", help="The text in a colour a class, or one line a token.")
    ] = Format.colors,
) -> None:
    """Show which class each token of a text has (in a run, position 0 of each window is `first` besides)."""
    from geomprobe.corpus.function_words import function_words
    from geomprobe.corpus.sources import read_texts
    from geomprobe.corpus.tokenizing import tokenize
    from geomprobe.errors import at_least

    at_least("--limit", limit, 1)
    function_words(language)
    source = read_texts([text])
    tokenizer = _tokenizer_of(model)
    for document in source.documents:
        if len(source.documents) > 1:
            typer.echo(f"== {document.name}")
        tokenized = tokenize(tokenizer, document.text, language=language)
        shown = min(limit, len(tokenized))
        if layout is Format.table:
            for line in table_lines(tokenized, shown, language=language):
                typer.echo(line)
        else:
            _print_colors(tokenized, shown)


def table_lines(tokenized: "TokenizedText", n: int, *, language: str) -> Iterator[str]:
    """A header, then a line for each of the first n tokens."""
    from geomprobe.corpus.rarity import band, zipf
    from geomprobe.labels import TOKEN_CLASSES

    covered = [tokenized.covered(index) for index in range(n)]
    yield f"{'position':>8}  {'token':<24} {'id':>7}  {'class':<12} {'zipf':>5}  band"
    for index, frequency in enumerate(zipf((text.strip() for text in covered), language)):
        rarity = band(frequency) or "-"
        number = "-" if rarity == "-" else f"{frequency:.2f}"
        name = TOKEN_CLASSES[tokenized.token_class[index]]
        yield f"{index:>8}  {covered[index]!r:<24} {tokenized.ids[index]:>7}  {name:<12} {number:>5}  {rarity}"


def colored(tokenized: "TokenizedText", n: int) -> "Text":
    """The text of the first n tokens, each in the colour of its class; line breaks and lone blanks are marked."""
    from rich.text import Text

    from geomprobe.labels import TOKEN_CLASSES

    picture = Text()
    reached = 0  # a character cut into several tokens is shown once
    for (start, end), index in zip(tokenized.span[:n], tokenized.token_class[:n], strict=True):
        piece = tokenized.text[max(start, reached) : end].replace("\x1b", "␛")
        reached = max(reached, end)
        name = TOKEN_CLASSES[index]
        word = piece.lstrip()
        if name == "newline":
            piece, word = "", piece.replace("\n", "⏎\n")
        elif piece and not word:
            piece, word = "", "␣" * len(piece)
        picture.append(piece[: len(piece) - len(word)]).append(word, style=STYLES[name])
    return picture


def _print_colors(tokenized: "TokenizedText", n: int) -> None:
    from rich.console import Console

    from geomprobe.labels import TOKEN_CLASSES

    console = Console(highlight=False)
    console.print(colored(tokenized, n))
    counts = Counter(TOKEN_CLASSES[index] for index in tokenized.token_class[:n])
    console.print(f"\n{n} of {len(tokenized)} tokens; by class:")
    for name, style in STYLES.items():
        if counts[name]:
            console.print(f"[{style}]{name}[/]{' ' * (12 - len(name))}{counts[name]:>6}  {counts[name] / n:6.1%}")


def _tokenizer_of(model: str) -> Any:
    from geomprobe.errors import CorpusError
    from geomprobe.models.resolve import resolve

    path = resolve(model, say=lambda step: typer.echo(f"{step} …", err=True)).path
    from transformers import AutoTokenizer

    from geomprobe.models.quiet import quiet_transformers

    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise CorpusError(f"The checkpoint {model!r} has no tokenizer that can be loaded: {error}") from error
