"""The documentation's texts: links hold on a code host and in the site, and code does what it says."""

import re
from pathlib import Path

import pytest

from docsite.links import Links
from docsite.markdown import plain
from docsite.schema import anchor
from geomprobe.probes.base import PROBES
from geomprobe.testing import check_probe

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("reports/**/*.md")])


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_of_the_repository(text):
    said = re.sub(r"^```.*?^```", "", text.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", said):
        if not re.match(r"[a-z]+:|#", target):
            assert (text.parent / target.partition("#")[0]).exists(), target


def test_links_out_of_docs_lead_to_the_sites_pages():
    links = Links(ROOT)
    assert links.rewrite("[a](../CONTRIBUTING.md#style)", "design.md") == "[a](contributing.md#style)"
    assert links.rewrite("[a](../../reports/words.md)", "concepts/sinks.md") == "[a](../reports/words.md)"
    assert links.rewrite("[a](docs/schema.md)", "contributing.md") == "[a](schema.md)"
    assert links.rewrite("[a](https://example.org/b.md)", "design.md") == "[a](https://example.org/b.md)"
    assert links.rewrite("[a](no-such-page.md)", "design.md") == "[a](no-such-page.md)"  # for mkdocs to warn of


def test_code_is_left_as_it_is():
    text = "```\n[a](../CONTRIBUTING.md)\nwords\n- no item\n```"
    assert Links(ROOT).rewrite(text, "design.md") == text


def test_a_list_may_follow_a_paragraph_at_once():
    rewritten = Links(ROOT).rewrite("words\n- one\n- two\n  more\nwords", "design.md")
    assert rewritten == "words\n\n- one\n- two\n  more\nwords"


def test_words_show_every_character():
    assert plain("a_b *c* `d_e|f` [g] <h>") == "a\\_b \\*c\\* `d_e\\|f` \\[g\\] &lt;h>"


def test_anchors_are_those_of_the_headings():
    assert anchor("sinks, sink_rates") == "sinks-sink_rates"


def test_the_probes_of_the_guide_keep_the_contract(monkeypatch):
    monkeypatch.setattr(PROBES, "_entries", dict(PROBES._entries))
    said = (ROOT / "docs" / "writing-a-probe.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", said, flags=re.DOTALL) if "@PROBES" in block]
    assert len(blocks) == 2
    names = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, "writing-a-probe.md", "exec"), names)
    check_probe(names["KeyLength"]())
    check_probe(names["Diagonal"]())
