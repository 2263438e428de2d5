"""Tokens in HTML and Markdown."""

import pytest

from geomprobe.pages.marking import html, markdown, markdown_cell, sentence
from geomprobe.pages.wording import isolated


def test_html() -> None:
    text = f"a < b {isolated('<script>')} & {isolated(chr(0x5E9))}"
    assert html(text) == "a &lt; b <bdi><code>&lt;script&gt;</code></bdi> &amp; <bdi><code>\u05e9</code></bdi>"


def test_sentence_sets_brackets_back() -> None:
    assert sentence("x (n = 5 <) y") == 'x <span class="aside">(n\u00a0=\u00a05 &lt;)</span> y'
    assert "aside" not in sentence(isolated("(x)"))


@pytest.mark.parametrize(
    ("token", "span"),
    [("<b>", "`<b>`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("|", "`|`")],
)
def test_markdown_code(token: str, span: str) -> None:
    assert markdown(isolated(token)) == f"\u2068{span}\u2069"


def test_markdown_text() -> None:
    assert markdown("a_b*c <&> [x](y)") == "a\\_b\\*c &lt;&amp;&gt; \\[x\\](y)"


def test_markdown_cell_escapes_bars() -> None:
    assert markdown_cell(f"a|b {isolated('|')}") == "a\\|b \u2068`\\|`\u2069"
