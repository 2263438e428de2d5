import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from geomprobe.cli import tokens as command
from geomprobe.corpus.tokenizing import tokenize
from geomprobe.errors import CorpusError, GeomprobeError
from geomprobe.labels import FIRST, TOKEN_CLASSES


@pytest.fixture
def run(byte_level, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "_tokenizer_of", lambda model: byte_level)
    file = tmp_path / "text.txt"
    app = typer.Typer()
    app.command()(command.tokens)

    def invoke(text, *options):
        file.write_text(text, encoding="utf-8")
        return CliRunner().invoke(app, ["--model", "any", "--text", str(file), *options], catch_exceptions=False)

    return invoke


def test_the_table_has_a_line_a_token(run):
    lines = run("The dog,\n", "--format", "table").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["position", "token", "id", "class", "zipf", "band"],
        ["0", "'The'", lines[1].split()[2], "article", "7.73", "frequent"],
        ["1", "'", "dog'", lines[2].split()[3], "content", "5.10", "frequent"],
        ["2", "','", lines[3].split()[2], "punctuation", "-", "-"],
        ["3", "'\\n'", lines[4].split()[2], "newline", "-", "-"],
    ]


def test_the_text_is_printed_once_with_counts(run):
    out = run("The dog [is in] the–\n\nI").stdout
    assert out.startswith("The dog␣[is in] the–⏎\n⏎\nI\n")
    assert "article          2" in out
    assert "newline          2" in out


def test_colors_follow_the_classes(byte_level):
    picture = command.colored(tokenize(byte_level, "The dog"), 2)
    assert [(picture.plain[span.start : span.end], span.style) for span in picture.spans] == [
        ("The", command.STYLES["article"]),
        ("dog", command.STYLES["content"]),
    ]
    assert set(command.STYLES) == set(TOKEN_CLASSES) - {FIRST}


def test_the_limit_and_several_documents(run, tmp_path):
    (tmp_path / "more").mkdir()
    assert "2 of 5 tokens" in run("The dog is old.", "--limit", "2").stdout
    with pytest.raises(GeomprobeError, match="--limit must be at least 1; got 0"):
        run("The", "--limit", "0")
    with pytest.raises(GeomprobeError, match="Unknown language 'xx'"):
        run("The", "--language", "xx")


def test_a_folder_without_a_tokenizer(tmp_path, monkeypatch):
    class Resolved:
        path = tmp_path

    module = type(sys)("geomprobe.models.resolve")
    module.resolve = lambda name, **options: Resolved
    monkeypatch.setitem(sys.modules, "geomprobe.models.resolve", module)
    with pytest.raises(CorpusError, match="'bare' has no tokenizer that can be loaded"):
        command._tokenizer_of("bare")


def test_importing_needs_no_torch():
    code = (
        "import sys, geomprobe.cli.tokens, geomprobe.corpus.types, geomprobe.corpus.dataset; "
        "sys.exit(bool({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
