"""The page of a run of `intervene`, which has two tables: what it says, shows and does not even miss."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from geomprobe import edit_tables
from geomprobe.pages.edit_findings import TELLERS
from geomprobe.pages.finding import Finding
from geomprobe.pages.findings import findings
from geomprobe.pages.page import report, write_page
from geomprobe.pages.sections import page_tables
from geomprobe.pages.wording import CLOSE, OPEN, change, number, percent
from geomprobe.run.reading import Run
from tests.pages.test_page import Seen
from tests.synthetic_edits import EDITS, write_synthetic_edits
from tests.synthetic_run import rewrite

NEUTRAL = ("neutral_norm", 1.0, "", "")
SHUFFLED = ("permute_norm", 1.0, "", "")
AS_FAR = next(key for key in EDITS if key[3] == "neutral_norm")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return write_synthetic_edits(tmp_path_factory.mktemp("edits"), qk_norm=True)


@pytest.fixture(scope="module")
def written(run) -> tuple[Run, str, str]:
    page = write_page(run)
    return run, page.read_text(encoding="utf-8"), (run.path / "report.md").read_text(encoding="utf-8")


def told(run: Run) -> dict[str, Finding]:
    """What each teller says, by its name."""
    found = {tell.__name__: tell(run) for tell in TELLERS}
    return {name: finding for name, finding in found.items() if finding is not None}


def cost(run: Run, setting: str) -> dict:
    joint = edit_tables.joint_costs(run)
    return joint[joint["setting"] == setting].to_dict("records")[0]


# ------------------------------------------------------------------ the page
def test_sections_and_figures(written) -> None:
    run, page, markdown = written
    seen = Seen(page)
    assert [figure["id"] for figure in seen.all("figure")] == ["edit_layers", "dose_response"]
    sections = [section["id"] for section in seen.all("section")]
    assert sections == ["findings", "figures", "tables", "method", "parity", "provenance"]
    ids = {attributes["id"] for _, attributes in seen.tags if "id" in attributes}
    for link in seen.all("a"):
        assert link["href"][1:] in ids
    text = " ".join("".join(seen.text).split())
    assert not re.search(r"\bnan\b", text)
    assert 'class="missing"' not in page
    assert "This run has no" not in text
    for words in ("Passed.", "no weight is changed", "balanced gauge", run.manifest["model"]["sha256"]):
        assert words in text
    for name in ("edit_layers", "dose_response"):
        assert f"figures/{name}.png" in markdown
    assert "\n\n\n\n" not in markdown


def test_nothing_of_an_analysis_is_on_it(written) -> None:
    _, page, markdown = written
    for text in ("".join(Seen(page).text), markdown):
        for words in ("first_mass", "key_lengths", "Layer by layer", "Rows", "rebuilt from them with", "a dot a head"):
            assert words not in text


def test_it_has_no_charts_and_no_plotly(written) -> None:
    _, page, _ = written
    assert "text/plain" not in {kind for kind, _ in Seen(page).scripts}
    assert len(Seen(page).all("details")) == 2


def test_a_run_with_one_plain_edit_misses_two_figures(tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, n_layers=1, documents=3, edits=[NEUTRAL], gauges=("raw",))
    page = write_page(run).read_text(encoding="utf-8")
    seen = Seen(page)
    assert seen.all("figure") == []
    assert page.count('class="missing"') == 2
    assert "What edits of one layer cost" not in [given.title for given in page_tables(run)]
    assert not re.search(r"\bnan\b", " ".join(seen.text))


def test_report_draws_it_anew(run, capsys) -> None:
    (run.path / "report.html").unlink(missing_ok=True)
    assert report(run.path, quiet=True) == run.path / "report.html"
    assert "What edits cost" in (run.path / "report.html").read_text(encoding="utf-8")


# ------------------------------------------------------------------ its tables
def test_the_table_of_costs(run) -> None:
    costs, single = page_tables(run)
    joint = edit_tables.joint_costs(run)
    assert [row[0] for row in costs.rows] == [f"{OPEN}{name}{CLOSE}" for name in joint["setting"]]
    for row, due in zip(costs.rows, joint.to_dict("records"), strict=True):
        assert row[1] == change(due["delta_ce"])
        assert row[2] == f"{change(due['low'])} to {change(due['high'])}"
        assert row[3] == number(due["kl"])
        assert row[4] == change(due["delta_class_sink"])
        assert row[5] == percent(due["displacement"])
        assert len(row) == len(costs.columns)
    assert "752 predicted tokens of 16 documents" in costs.caption
    table = run.tables["interventions"]
    assert [row[0] for row in single.rows] == [str(layer) for layer in range(6)]
    for row in single.rows:
        for setting, cell in zip(single.columns[1:], row[1:], strict=True):
            own = table[(table["setting"] == setting) & (table["layers"] == row[0]) & (table["document"] == -1)]
            assert cell == change(own["delta_ce"].item())


def test_few_documents_have_no_interval(tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, documents=4)
    costs = page_tables(run)[0]
    assert {row[2] for row in costs.rows} == {"–"}
    assert "Fewer than five documents give no interval." in told(run)["tell_trial"].text
    assert "interval" not in told(run)["tell_costs"].text


def test_what_could_not_be_balanced_is_counted(tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, edits=[NEUTRAL])
    assert "kept their scale" not in page_tables(run)[0].caption
    table = run.tables["interventions"]
    run = rewrite(run, interventions=table.assign(n_kept=np.where(table["gauge"] == "balanced", 3, 0)))
    said = "made in the balanced gauge (3 pairs or channels kept their scale, as they could not be balanced);"
    assert said in page_tables(run)[0].caption


def test_layers_that_were_edited_are_named(tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, edits=[NEUTRAL])
    table = run.tables["interventions"]
    run = rewrite(run, interventions=table.assign(layers=table["layers"].replace("all", "0,2")))
    assert "Edited in layers 0, 2 at once." in page_tables(run)[0].caption
    assert "in layers 0, 2 at once" in told(run)["tell_trial"].text


# ------------------------------------------------------------------ its sentences
def forms(value: float) -> set[str]:
    whole = {f"{int(value):,}"} if float(value).is_integer() else set()
    return {number(value), change(value), percent(value), *whole}


@pytest.mark.parametrize("shape", [{}, {"gauges": ("raw",)}, {"documents": 2}, {"edits": [NEUTRAL]}], ids=str)
def test_every_number_is_in_its_sentence(shape, tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, **shape)
    for finding in told(run).values():
        plain = re.sub(f"{OPEN}[^{CLOSE}]*{CLOSE}", "", finding.text)
        said = {word.rstrip(".,") for word in re.findall(r"[+−]?\d[\d,.]*(?:×10[⁻\d⁰-⁹]+)?%?", plain)}
        assert finding.table == "interventions"
        assert finding.text.endswith(".")
        assert "nan" not in finding.text
        for name, value in finding.values.items():
            assert not math.isnan(value)
            assert forms(value) & said, (finding, name)


def test_the_trial(run) -> None:
    finding = told(run)["tell_trial"]
    assert finding.values == {"n_calibrated": 32, "n_tried": 32, "n_tokens": 752, "n_documents": 16}
    assert f"in all layers at once, by {2 * len(EDITS)} edits and a sham" in finding.text


def test_the_largest_and_the_smallest_cost(run) -> None:
    finding = told(run)["tell_costs"]
    joint = edit_tables.joint_costs(run)
    joint = joint[joint["edit"] != "sham"].sort_values("delta_ce")
    least, most = joint.iloc[0], joint.iloc[-1]
    assert most["setting"] == "swap_angle(1)"
    for name, row in (("most", most), ("least", least)):
        assert finding.values[name] == row["delta_ce"]
        assert (finding.values[f"{name}_low"], finding.values[f"{name}_high"]) == (row["low"], row["high"])
        interval = f"{change(row['low'])} to {change(row['high'])}"
        assert f"{change(row['delta_ce'])} (95% interval {interval})" in finding.text
        assert f"{OPEN}{row['setting']}{CLOSE}" in finding.text


def test_a_single_edit_is_neither_most_nor_least(tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, edits=[NEUTRAL], gauges=("raw",))
    text = told(run)["tell_costs"].text
    assert text.startswith(
        f"{OPEN}neutral_norm{CLOSE} changes the loss by {change(cost(run, 'neutral_norm')['delta_ce'])}"
    )
    assert "most" not in text


def test_lengths_against_directions(run) -> None:
    finding = told(run)["tell_turned"]
    for gauge in ("", "@balanced"):
        for edit in ("neutral_norm", "permute_norm"):
            length, angle = cost(run, f"{edit}{gauge}"), cost(run, f"swap_angle({edit}){gauge}")
            name = f"{edit}{gauge}"
            assert finding.values[f"{name}_length"] == length["delta_ce"]
            assert finding.values[f"{name}_angle"] == angle["delta_ce"]
            assert finding.values[f"{name}_moved"] == length["displacement"]
            assert finding.values[f"{name}_turned"] == angle["displacement"]


def test_a_swap_without_its_lengths_is_not_told(tmp_path) -> None:
    assert "tell_turned" not in told(write_synthetic_edits(tmp_path, edits=[SHUFFLED, AS_FAR]))


def test_both_gauges(run, tmp_path) -> None:
    finding = told(run)["tell_edit_gauges"]
    assert finding.values["raw"] == cost(run, "swap_angle(1)")["delta_ce"]
    assert finding.values["balanced"] == cost(run, "swap_angle(1)@balanced")["delta_ce"]
    assert f"Of {len(EDITS)} edits made in both gauges" in finding.text
    one = write_synthetic_edits(tmp_path / "one", edits=[NEUTRAL])
    assert told(one)["tell_edit_gauges"].text.startswith("The edit made in both gauges, ")
    raw = write_synthetic_edits(tmp_path / "raw", edits=[NEUTRAL], gauges=("raw",))
    assert "Lengths are raw here" in told(raw)["tell_edit_gauges"].text
    table = one.tables["interventions"]
    other = rewrite(one, interventions=table[(table["edit"] == "sham") | (table["gauge"] == "balanced")])
    assert "tell_edit_gauges" not in told(other)


def test_the_sham(run, tmp_path) -> None:
    finding = told(run)["tell_sham"]
    assert finding.values == {
        gauge: cost(run, f"sham{at}")["delta_ce"] for gauge, at in (("raw", ""), ("balanced", "@balanced"))
    }
    assert "by 0 nats a token, and by +" in finding.text
    raw = write_synthetic_edits(tmp_path, gauges=("raw",))
    assert told(raw)["tell_sham"].text == (
        "Keys rewritten with themselves change the loss by 0 nats a token: what the edits cost is their own."
    )


def test_they_come_before_the_check_and_after_what_was_read(run) -> None:
    topics = list(dict.fromkeys(finding.topic for finding in findings(run)))
    assert topics == ["What was read", "QK norm", "What edits cost", "Check"]


def test_an_analysis_says_nothing_of_edits(plain) -> None:
    assert told(plain) == {}


def test_a_gauge_that_is_not_fixed_is_told_once(run) -> None:
    assert not any("Lengths below are raw" in finding.text for finding in findings(run))


@pytest.mark.parametrize(
    ("value", "said"), [(0.0123, "+0.0123"), (-2e-7, "−2×10⁻⁷"), (0.0, "0"), (np.nan, "–"), (1234.5, "+1,234")]
)
def test_a_change_has_a_sign(value, said) -> None:
    assert change(value) == said


def test_same_run_same_page(run: Run, tmp_path: Path) -> None:
    one, other = (write_page(run, tmp_path / name) for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
