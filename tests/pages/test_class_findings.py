"""What a page says of a language without a list of function words."""

import re
from pathlib import Path

from geomprobe.pages.findings import findings
from geomprobe.pages.page import write_page
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run


def of_language(folder: Path, **entries: object) -> Run:
    """A run whose corpus says this of its language."""
    run = write_synthetic_run(folder, qk_norm=False)
    run.manifest["corpus"].update(entries)
    return rewrite(run)


def test_an_approximate_language_is_told_before_the_numbers(tmp_path: Path) -> None:
    run = of_language(tmp_path, language="it", function_words="approximate", n_function_words=120)
    told = [finding for finding in findings(run) if finding.topic == "Function tokens"]
    assert told[0].text == (
        "The function words of this language (it) are approximate: its 120 most frequent words, all under the class "
        "particle."
    )
    assert told[0].values == {"n_function_words": 120}
    assert told[0].table == "manifest"
    write_page(run)
    page = (run.path / "report.md").read_text(encoding="utf-8")
    assert "particle for the 120 most frequent words of the language (it)" in page


def test_a_language_with_a_list(tmp_path: Path) -> None:
    run = of_language(tmp_path, language="fr", function_words="list", n_function_words=244)
    assert not any("approximate" in finding.text for finding in findings(run))
    write_page(run)
    assert "from a list of French function words" in (run.path / "report.md").read_text(encoding="utf-8")


def test_a_run_that_says_nothing_of_its_list(plain: Run, tmp_path: Path) -> None:
    assert "function_words" not in plain.manifest["corpus"]
    assert not any("approximate" in finding.text for finding in findings(plain))
    write_page(plain, tmp_path)
    said = re.findall(r"from a list of (\w+) function words", (tmp_path / "report.md").read_text(encoding="utf-8"))
    assert said == ["English"]
