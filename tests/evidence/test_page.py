"""The page of the evidence: its numbers are those of its tables, whatever runs there are, and it comes out the same."""

import html
import re
from importlib import resources

import numpy as np
import pandas as pd
import pytest

from geomprobe.errors import RunError
from geomprobe.evidence import page as paging
from geomprobe.evidence.asides import _with_spread
from geomprobe.evidence.contrasts import t_interval
from geomprobe.evidence.decisions import NEEDS
from geomprobe.evidence.figures import PICTURES
from geomprobe.evidence.page import FIGURES, HTML, MARKDOWN, write_evidence
from geomprobe.evidence.records import make_records, read_records
from geomprobe.evidence.tables import CONTRASTS, OF_LARGER, OF_NOISE, _from_then_on, n_parameters, sink_table
from geomprobe.evidence.telling import CLAIMS, QUANTITIES, confidence, interval, short, value
from geomprobe.ledger.writing import WORDS
from geomprobe.pages.wording import NOTHING, change, number
from tests.evidence.made import LIKELY, SIZE, made_group, made_whole, remembered, stable, written

SINK = {"first_mass": 0.2, "first_mass_64": 0.3}

ARMS = ["A0", "A1", "A2", "A3", "A4", "A6", "A7"]
PNG = b"\x89PNG stands for a picture"


def few(seeds=4):
    """Runs of every group, not all arms."""
    return {
        **made_group("nano", ARMS, seeds, planted=LIKELY),
        **made_group("long", ["A0", "A1"], 3, planted={"A0": SINK}, tokens=12_000_000),
        **made_group("stability", ["A0", "A1"], 2, rates=(3e-4, 1e-2), planted={"A0": stable(0.3)}),
        **made_group("backcopy", ["A0", "A1", "A3"], 2, length=64),
        **made_group("micro", ["A0", "A1"], 2),
    }


def make_quick(patch):
    """Pages whose pictures take no time."""
    patch.setattr(paging, "save", lambda _picture, _evidence, file: file.write_bytes(PNG))
    patch.setattr(paging, "read_records", lambda folder: remembered(read_records(folder)))


@pytest.fixture
def stubbed(monkeypatch):
    """Such pages for one test."""
    make_quick(monkeypatch)


@pytest.fixture(scope="module")
def made_page(tmp_path_factory):
    """A folder with a page of many runs, and what was read back of its tables."""
    folder = tmp_path_factory.mktemp("evidence")
    runs = written(few(), folder / "runs")
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        write_evidence(runs, folder)
    return folder


@pytest.fixture(scope="module")
def contrasts(made_page):
    return pd.read_csv(made_page / "contrasts.csv", keep_default_na=False, na_values={c: [""] for c in CONTRASTS[3:10]})


@pytest.fixture(scope="module")
def numbers(made_page):
    return pd.read_csv(made_page / "numbers.csv")


def parts(folder):
    """README by the titles of its sections."""
    text = (folder / MARKDOWN).read_text(encoding="utf-8")
    found = re.split(r"^## (.+)$", text, flags=re.M)
    return dict(zip(found[1::2], found[2::2], strict=True))


def tables(text):
    """The tables of a text as lists of rows, heads first."""
    rows, found = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in line.strip().strip("|").split(" |")]
            rows.append([cell.strip() for cell in cells])
        elif rows:
            found.append([rows[0], *rows[2:]])
            rows = []
    return found


def section(folder, beginning):
    return next(text for title, text in parts(folder).items() if title.startswith(beginning))


# ---------------------------------------------------------------------- its numbers
def test_tables_of_contrasts_say_what_the_csv_says(made_page, contrasts):
    assert tuple(contrasts.columns) == CONTRASTS
    for claim, own in contrasts.groupby("claim"):
        table, *_ = tables(section(made_page, f"{claim}:"))  # others stand behind it
        shown = own[own["decides"] | (own["n_seeds"] > 0)].to_dict("records")
        assert len(table) - 1 == len(shown)
        for cells, row in zip(table[1:], shown, strict=True):
            p = number(row["p_sign_flip"])
            assert cells == [
                *(short(row["quantity"]), row["what"], str(row["n_seeds"]), value(row, "estimate"), interval(row)),
                confidence(row["level"]) if np.isfinite(row["low"]) else NOTHING,
                p if p == NOTHING else f"{p} (≥ {number(row['p_smallest'])})",
                WORDS[row["verdict"]] if row["decides"] else "shown",
            ]


def test_the_table_of_verdicts_is_that_of_the_csv(made_page):
    claims = pd.read_csv(made_page / "decisions.csv")
    assert tuple(claims.columns) == CLAIMS
    (table,) = tables(section(made_page, "Which claims hold"))
    assert table[1:] == [
        [row.claim, row.title, WORDS[row.verdict], number(row.level), number(row.p), str(row.n_seeds)]
        for row in claims.itertuples()
    ]
    assert {"supported", "refuted", "inconclusive"} <= set(claims["verdict"])


def test_every_number_of_a_sentence_is_in_the_csv(made_page, contrasts):
    claims = pd.read_csv(made_page / "decisions.csv")
    text = section(made_page, "Which claims hold").replace("\\", "")
    for claim in claims.itertuples():
        assert claim.sentence in text
        assert claim.sentence in section(made_page, f"{claim.claim}:").replace("\\", "")
        if claim.verdict == "not_tested":
            continue
        said = re.findall(r", ([^,(;]+) \(([\d.]+%): (.+? to .+?), n = (\d+)\)", claim.sentence)
        own = contrasts[(contrasts["claim"] == claim.claim) & contrasts["decides"]].to_dict("records")
        assert said == [
            (value(row, "estimate"), confidence(row["level"]), interval(row), str(row["n_seeds"])) for row in own
        ]


def test_claims_stand_under_what_can_be_said_of_them(made_page):
    text = section(made_page, "Which claims hold")
    claims = pd.read_csv(made_page / "decisions.csv").set_index("claim")["verdict"]
    heads = {"supported": "Hold at this size", "refuted": "Do not hold at this size", "inconclusive": "Cannot be told"}
    found = re.split(r"^(Hold at this size|Do not hold at this size|Cannot be told|Not tested):$", text, flags=re.M)
    under = dict(zip(found[1::2], found[2::2], strict=True))
    for claim, verdict in claims.items():
        assert f"- **{claim}: " in under[heads[verdict]]


def test_losses_are_means_of_the_runs(made_page, numbers):
    (table,) = tables(section(made_page, "Losses of all arms"))
    assert len(table) - 1 == len(numbers.groupby(["group", "rate", "arm"]))
    for group, rate, arm, n, *cells in table[1:]:
        own = numbers[(numbers["group"] == group) & np.isclose(numbers["rate"], float(rate))].set_index("seed")
        mine, plain = own[own["arm"] == arm], own[own["arm"] == "A0"]
        assert int(n) == len(mine)
        for at, factor in enumerate((1, 2, 4)):
            losses = mine[f"loss_{factor}x"]
            assert cells[2 * at] == _with_spread(losses.mean(), losses.std())
            gap = (losses - plain[f"loss_{factor}x"]).mean()
            assert cells[2 * at + 1] == (NOTHING if arm == "A0" else change(gap))


def test_the_noise_floor_is_that_of_the_runs(made_page, numbers):
    text = section(made_page, "The noise floor")
    (table,) = tables(text)
    nano = numbers[numbers["group"] == "nano"].set_index("seed")
    for name, cells in zip(OF_NOISE, table[1:], strict=True):
        gap = nano.loc[nano["arm"] == "A4", name] - nano.loc[nano["arm"] == "A2", name]
        expected = [short(name), str(len(gap)), change(gap.mean()), number(gap.std()), number(gap.abs().max())]
        assert cells == expected
    for name in ("loss_1x", "auc_keys", "auc_residual"):
        assert short(name) in text.partition("|")[0]


def test_a_larger_size_is_described(made_page, numbers):
    (table,) = tables(section(made_page, "At a larger size"))
    own = numbers[numbers["group"] == "micro"].set_index("seed")
    for name, cells in zip(OF_LARGER, table[1:], strict=True):
        if name not in own:
            assert cells[1:] == [NOTHING, NOTHING, "0", NOTHING, NOTHING]
            continue
        plain, normed = (own.loc[own["arm"] == arm, name] for arm in ("A0", "A1"))
        gap = (normed - plain).to_numpy()
        low, high = t_interval(gap, 0.05)
        assert cells[1:4] == [number(plain.mean()), number(normed.mean()), "2"]
        assert cells[4:] == [change(gap.mean()), f"{change(low)} to {change(high)}"]


def test_sinks_of_idle_rows(made_page, numbers):
    (table,) = tables(section(made_page, "Where idle attention rests"))
    own = numbers[numbers["group"] == "backcopy"]
    assert [row[:3] for row in table[1:]] == [["backcopy", arm, "0"] for arm in ("A0", "A1", "A3")]
    for row in table[1:]:
        mine = own[own["arm"] == row[1]]
        ratio = (mine["key_first_layer0"] / mine["key_others_layer0"]).mean()
        assert row[3:6] == ["2", "2", number(mine["idle_first_layer0"].mean())]
        assert row[9] == number(ratio)
        assert row[-1] == number(mine["gap_by_angle_layer0"].mean())


def test_where_and_when_sinks_appear(made_page):
    """Planted: a line from nothing to the last value, over 33 measured steps."""
    _, table = tables(section(made_page, "H9:"))
    rows = {(row[0], row[1], row[2]): row[3:] for row in table[1:]}
    uniform = sum(1 / keys for keys in range(17, 513)) / 496
    steps = sorted({round(733 * index / 32) for index in range(33)})

    def begins(last):
        return next(step for step in steps if 0.0069 + (last - 0.0069) * step / 733 >= 3 * uniform)

    runs = read_records(made_page / "runs").one("long", "A0", "first_mass")
    begun = [begins(last) for last in runs]
    told = " to ".join(map(str, sorted({min(begun), max(begun)})))
    assert rows["long", "0.002", "A0"] == ["3 of 3", number(runs.mean()), number(uniform), told, "733"]
    assert rows["long", "0.002", "A1"][0] == "0 of 3"
    assert rows["long", "0.002", "A1"][3] == NOTHING
    assert {group for group, *_ in rows} == {"long", "micro", "nano", "stability"}  # these have curves
    assert {rate for group, rate, _ in rows if group == "stability"} == {"0.0003", "0.01"}


def test_a_sink_begins_where_it_stays():
    curve = [(0, 0.5), (10, 0.01), (20, 0.3), (30, 0.4)]
    assert _from_then_on(curve, 0.1) == 20
    assert _from_then_on(curve, 0.005) == 0
    assert _from_then_on(curve, 0.35) == 30
    assert _from_then_on([*curve, (40, 0.05)], 0.1) is None


def test_diverged_runs_have_no_sink():
    whole = made_group("nano", ["A0"], 3, planted={"A0": {"first_mass": 0.2}})
    whole["nano-A0-s1"]["numbers"]["diverged"] = 1.0
    (row,) = sink_table(make_records(whole)).to_dict("records")
    assert (row["n_runs"], row["n_sinks"]) == (2, 2)


def test_the_best_temperature_by_context_length(made_page, numbers):
    _, table = tables(section(made_page, "C8:"))
    assert [row[0] for row in table[1:]] == ARMS
    for row in table[1:]:
        own = numbers[(numbers["group"] == "nano") & (numbers["arm"] == row[0])]
        assert row[1] == str(len(own))
        betas = [own[f"best_beta_{factor}x"] for factor in (1, 2, 4)]
        assert row[2:5] == [_with_spread(np.exp(np.log(beta).mean()), np.log(beta).std()) for beta in betas]
        assert row[5:] == [number(own[f"beta_gain_{factor}x"].mean()) for factor in (1, 2, 4)]


def test_without_temperatures_there_is_no_table(stubbed, tmp_path):
    bare = {f"{name}_{factor}x": None for name in ("best_beta", "beta_gain") for factor in (1, 2, 4)}
    arms = ("A1", "A6", "A7")
    runs = written(made_group("nano", arms, 2, planted=dict.fromkeys(arms, bare)), tmp_path / "runs")
    write_evidence(runs, tmp_path)
    assert len(tables(section(tmp_path, "C8:"))) == 1


def test_what_was_trained(made_page):
    (table,) = tables(section(made_page, "What this is"))
    row = next(cells for cells in table if cells[0] == "nano")
    assert row[2:6] == ["1,311,872", "4", "3,002,368", ", ".join(ARMS)]
    assert row[7:] == ["4", "28", number(28 * 600 / 3600)]
    assert n_parameters(SIZE) == 1_311_872  # what the training counted


def test_seeds_and_holm_are_told(made_page):
    text = section(made_page, "What so many seeds can tell")
    assert "8 claims are tested" in text
    assert "0.500 with n = 2, 0.250 with n = 3 and 0.125 with n = 4" in text
    assert "p ≤ 0.00625, which takes 9 seeds" in text
    assert "no sign flip can survive here" in text


def test_every_quantity_is_explained(made_page, contrasts):
    text = section(made_page, "What the quantities are")
    for name in set(contrasts["quantity"]):
        assert name in QUANTITIES
        assert f"`{name}`" in text.replace("\\|", "|")


def test_rules_are_printed(made_page, contrasts):
    for claim, own in contrasts[contrasts["decides"]].groupby("claim"):
        text = section(made_page, f"{claim}:")
        for rule in set(own["rule"]):
            assert f"{rule}." in text


# ---------------------------------------------------------------------- its form
def test_both_pages_say_the_same(made_page):
    text = (made_page / HTML).read_text(encoding="utf-8")
    plain = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"<td[^>]*>|<th[^>]*>", "|", text))).replace("\u00a0", " ")
    for title, part in parts(made_page).items():
        assert title in plain
        for table in tables(part):
            for row in table:
                assert "|" + "|".join(row).replace("`", "").replace("⁨", "").replace("⁩", "") in plain
    for claim in pd.read_csv(made_page / "decisions.csv").itertuples():
        assert claim.sentence in plain


def test_tables_have_no_class_of_the_common_style(made_page):
    """A table of class words was laid out as a box of words, its head beside its rows."""
    text = (made_page / HTML).read_text(encoding="utf-8")
    own = {name for names in re.findall(r'<table class="([^"]+)"', text) for name in names.split()}
    style = (resources.files("geomprobe.pages") / "templates" / "page.css").read_text(encoding="utf-8")
    assert "prose" in own
    assert own & set(re.findall(r"\.([a-z][a-z-]*)", style)) == set()


def test_the_page_needs_no_network(made_page):
    text = (made_page / HTML).read_text(encoding="utf-8")
    assert set(re.findall(r'(?:src|href)="(data:|#|.)', text)) == {"data:", "#"}
    assert "<script" not in text
    assert "url(" not in text
    assert text.count("data:image/png;base64,") == len(PICTURES)
    for target in re.findall(r'href="#([^"]+)"', text):
        assert f'id="{target}"' in text


def test_the_readme_shows_its_pictures(made_page):
    text = (made_page / MARKDOWN).read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]{30,}\]\((.+?)\)", text)
    assert sorted(shown) == sorted(f"{FIGURES}/{name}.png" for name in PICTURES)
    for file in shown:
        assert (made_page / file).read_bytes() == PNG
    assert "geomprobe evidence runs --out ." in text
    assert "geomprobe sweep PLAN" in text


def test_the_order_of_the_sections(made_page):
    titles = list(parts(made_page))
    begun = ["What this is", "Which claims hold", "What so many seeds can tell", "The noise floor"]
    assert titles[:4] == begun
    assert [title.partition(":")[0] for title in titles[4:12]] == list(NEEDS)
    asides = ["Do lengths make tokens loud?", "Losses of all arms", "Where idle attention rests", "At a larger size"]
    assert titles[12:16] == asides
    assert titles[16:] == ["Limits", "What the quantities are", "How to make this again"]


def test_the_same_records_give_the_same_bytes(stubbed, tmp_path):
    whole = few(seeds=2)
    for name in ("one", "two"):
        write_evidence(written(whole, tmp_path / name / "runs"), tmp_path / name)
    files = [file.relative_to(tmp_path / "one") for file in (tmp_path / "one").rglob("*") if file.is_file()]
    assert {"README.md", "evidence.html", "decisions.csv", "contrasts.csv", "numbers.csv"} <= {
        str(one) for one in files
    }
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


# ---------------------------------------------------------------------- whatever there is
def without(whole, *names):
    """The same runs without these numbers."""
    return {
        key: {**record, "numbers": {name: x for name, x in record["numbers"].items() if name not in names}}
        for key, record in whole.items()
    }


def diverged():
    """Runs of which one has nothing but that it diverged."""
    whole = made_group("stability", ["A0", "A1"], 3, rates=(3e-4, 1e-2), planted={"A0": stable(0.3)})
    lost = whole["stability-A0-r0.01-s1"]
    lost["numbers"] = {"loss_1x": None, "loss_2x": None, "loss_4x": None, "n_spikes": 3.0, "diverged": 1.0}
    lost |= {"on_the_way": [], "curves": [], "losses": lost["losses"][:5]}
    return whole


PARTS = {
    "one run": made_group("nano", ["A0"], 1),
    "no plain arm": made_group("nano", ["A1", "A3"], 2, planted=LIKELY),
    "no twins": {**made_group("nano", ["A0"], [0]), **made_group("nano", ["A1"], [1])},
    "uneven seeds": {**made_group("nano", ["A0"], 3), **made_group("nano", ["A1"], [1], planted=LIKELY)},
    "backcopy alone": made_group("backcopy", ["A1"], 1, length=64),
    "long alone": made_group("long", ["A0", "A1"], 2),
    "micro alone": made_group("micro", ["A0", "A1"], 1),
    "one rate": made_group("stability", ["A0", "A1"], 2, rates=(1e-3,)),
    "diverged": diverged(),
    "no clusters": without(made_group("nano", ["A0", "A1"], 2), "auc_keys", "auc_residual", "k_log_sd", "first_mass"),
    "an unknown arm": {"nano-x-s0": {**made_group("nano", ["A0"], 1)["nano-A0-s0"], "arm": "l2-full"}},
}


@pytest.mark.parametrize("name", list(PARTS))
def test_every_section_copes_with_what_is_not_there(stubbed, tmp_path, name):
    made = write_evidence(written(PARTS[name], tmp_path / "runs"), tmp_path)
    text = made.readme.read_text(encoding="utf-8")
    assert not re.search(r"\b(nan|inf|None)\b", text)
    assert list(made.claims["claim"]) == list(NEEDS)
    for claim in made.claims.itertuples():
        assert claim.sentence
        assert claim.sentence.endswith(".")
        assert section(tmp_path, f"{claim.claim}:")
    assert set(made.figures) == {tmp_path / file for file in re.findall(r"\((figures/\w+\.png)\)", text)}
    for picture in PICTURES.values():
        assert f"{picture.alt}]" in text or f"No picture “{picture.title}”: " in text


def test_what_is_missing_is_told(stubbed, tmp_path):
    whole = {**made_group("nano", ["A0", "A1"], 3, planted=LIKELY), **made_group("nano", ["A3"], [2], planted=LIKELY)}
    made = write_evidence(written(whole, tmp_path / "runs"), tmp_path)
    claims = made.claims.set_index("claim")
    assert claims.loc["C6q", "verdict"] == "not_tested"
    assert claims.loc["C6q", "sentence"] == (
        "It takes 2 seeds at least of A1 and A3 in the group nano; loss at 1×, A3 − A1, has one."
    )
    assert claims.loc["C8", "sentence"].endswith("A6 − A1, has none.")
    assert (
        claims.loc["C7b", "sentence"] == "It takes two learning rates at least in the group stability; there is none."
    )
    limits = section(tmp_path, "Limits")
    assert "seeds of A3 (1 of 3)" in limits
    assert "for C8, A6 and A7 in the group nano" in limits
    assert "for H9, A0 and A1 in the group long" in limits
    assert "not known" in section(tmp_path, "The noise floor")


def test_with_many_seeds_a_sign_flip_may_survive(stubbed, tmp_path):
    write_evidence(written(made_group("nano", ["A0"], 9), tmp_path / "runs"), tmp_path)
    text = section(tmp_path, "What so many seeds can tell")
    assert "1 claim is tested" in text
    assert "which takes 6 seeds" in text
    assert "no sign flip" not in text


def test_runs_that_are_no_twins_are_named(stubbed, tmp_path):
    whole = made_group("nano", ["A0", "A1"], 2)
    whole["nano-A1-s1"]["pair"] = "another text"
    write_evidence(written(whole, tmp_path / "runs"), tmp_path)
    text = section(tmp_path, "What this is")
    assert "nano-A1-s1 differ from the others" in text
    assert "nano-A1-s0" not in text


def test_twins_that_were_compiled_in_part_are_none(stubbed, tmp_path):
    """They have other roundings; a record that says nothing was not compiled."""
    whole = made_group("nano", ["A0", "A1"], 3)
    whole["nano-A0-s0"]["compiled"] = False
    whole["nano-A1-s2"]["compiled"] = True
    write_evidence(written(whole, tmp_path / "runs"), tmp_path)
    text = section(tmp_path, "What this is")
    assert "nano-A1-s2 differ from the others" in text
    assert "nano-A1-s0" not in text


def test_diverged_runs_are_named(stubbed, tmp_path):
    write_evidence(written(diverged(), tmp_path / "runs"), tmp_path)
    assert "stability-A0-r0.01-s1: these have no final numbers" in section(tmp_path, "Limits")
    assert "1 of 3 of A0 at 0.01" in section(tmp_path, "C7b:")
    assert "1 run diverged and has no loss" in section(tmp_path, "Losses of all arms")


# ---------------------------------------------------------------------- the folder
def test_older_files_are_replaced_and_others_left_alone(stubbed, tmp_path):
    kept = {"notes.txt": "mine", "figures/own.png": "mine", "runs.yaml": "mine"}
    old = {"README.md": "old", "contrasts.csv": "old", "figures/backcopy.png": "old", "figures/growth.png": "old"}
    (tmp_path / "figures").mkdir()
    for name, text in {**kept, **old}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    write_evidence(written(PARTS["one run"], tmp_path / "runs"), tmp_path)
    for name in kept:
        assert (tmp_path / name).read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "figures/backcopy.png").exists()  # it would be of other runs than the page
    for name in ("README.md", "contrasts.csv", "figures/growth.png"):
        assert (tmp_path / name).read_bytes() != b"old"
    assert not [file for file in tmp_path.rglob("*") if file.name.endswith(".part")]


def test_a_file_in_the_way(tmp_path):
    runs = written(PARTS["one run"], tmp_path / "runs")
    (tmp_path / "taken").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match=r"taken' is a file; --out must name a folder\.$"):
        write_evidence(runs, tmp_path / "taken")


def test_records_that_lie_elsewhere_have_no_path_on_the_page(stubbed, tmp_path):
    made = write_evidence(written(PARTS["one run"], tmp_path / "far" / "runs"), tmp_path / "page")
    text = made.readme.read_text(encoding="utf-8")
    assert "geomprobe evidence RECORDS --out ." in text
    assert str(tmp_path) not in text + made.html.read_text(encoding="utf-8")


def test_all_groups_of_the_plan_are_known():
    assert {name.partition("-")[0] for name in made_whole(seeds=1)} == {
        "nano",
        "long",
        "stability",
        "backcopy",
        "micro",
    }
