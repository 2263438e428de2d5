"""The opening sentences: every number is the table's, and odd runs get true sentences or none."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from geomprobe.pages.finding import Finding
from geomprobe.pages.findings import findings, paragraphs
from geomprobe.pages.wording import CLOSE, OPEN, isolated, number, percent, signed
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run


def named(run: Run) -> dict[str, Finding]:
    """Findings by the beginning of their sentence's topic and table; several share one, so texts are joined."""
    return {f"{finding.topic}/{sorted(finding.values)[:1]}": finding for finding in findings(run)}


def with_value(run: Run, name: str, table: str) -> Finding:
    """The first finding from a table that has such a value."""
    return next(finding for finding in findings(run) if finding.table == table and name in finding.values)


def forms(value: float) -> set[str]:
    """All ways in which a page may write a number."""
    whole = {f"{int(value):,}"} if float(value).is_integer() else set()
    return {number(value), percent(value), signed(value), f"{value:.2f}", *whole}


@pytest.mark.parametrize("kind", ["plain", "normed"])
def test_every_number_is_in_its_sentence(kind: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(kind)
    found = findings(run)
    assert len(found) >= 15
    for finding in found:
        said = re.findall(r"[+−]?\d[\d,.]*(?:×10[⁻\d⁰-⁹]+)?%?", re.sub(f"{OPEN}[^{CLOSE}]*{CLOSE}", "", finding.text))
        for name, value in finding.values.items():
            assert not math.isnan(value), (finding, name)
            wanted = forms(value)
            assert wanted & {word.rstrip(".,") for word in said} or _in_words(value, finding.text), (finding, name)
        assert finding.table == "manifest" or finding.table in run.tables
        assert finding.text.endswith(".")
        assert "nan" not in finding.text


def _in_words(value: float, text: str) -> bool:
    return value == 0 and ("no QK norm" in text or "No " in text or "no key" in text)


def test_first_mass(plain: Run) -> None:
    finding = with_value(plain, "mean", "sinks")
    mass = plain.tables["sinks"]["first_mass"]
    assert finding.values["mean"] == pytest.approx(mass.mean())
    assert finding.values["median"] == pytest.approx(mass.median())
    assert finding.values["low"] < mass.mean() < finding.values["high"]
    assert f"{100 * mass.mean():.1f}%" in finding.text
    assert f"{len(mass)} heads" in finding.text


def test_mass_by_depth(normed: Run) -> None:
    finding = with_value(normed, "third_0", "sinks")
    table = normed.tables["sinks"]
    for index, third in enumerate(([0, 1], [2, 3], [4, 5])):
        assert finding.values[f"third_{index}"] == pytest.approx(table[table["layer"].isin(third)]["first_mass"].mean())
    assert finding.values["full"] == pytest.approx(table[table["layer"].isin([2, 5])]["first_mass"].mean())
    assert finding.values["windowed"] == pytest.approx(table[~table["layer"].isin([2, 5])]["first_mass"].mean())


def test_sink_rate(plain: Run) -> None:
    table = plain.tables["sink_rates"]
    row = table[(table["layer"] == -1) & (table["epsilon"] == 0.3)].iloc[0]
    finding = with_value(plain, "rate", "sink_rates")
    assert finding.values == {"rate": row["rate"], "n": row["n"]}


def test_key_lengths(plain: Run) -> None:
    table = plain.tables["norms"]
    keys = table[(table["vector"] == "k") & (table["stage"] == "scored")]
    rest, first = (keys[keys["token_class"] == name].reset_index() for name in ("all", "first"))
    finding = with_value(plain, "log_sd", "norms")
    assert finding.values["log_sd"] == np.median(rest["log_sd"])
    medians = rest.groupby("layer")["p50"].median()
    assert finding.values["longest"] == medians.max()
    assert f"(layer {medians.idxmax()})" in finding.text
    ratio = with_value(plain, "ratio", "norms")
    ratios = first["geo_mean"] / rest["geo_mean"]
    assert ratio.values["ratio"] == pytest.approx(np.median(ratios))
    assert ratio.values["below_half"] == (ratios < 0.5).sum()


def test_norm_effect(normed: Run) -> None:
    table = normed.tables["norms"]
    keys = table[(table["vector"] == "k") & (table["token_class"] == "all")]
    finding = with_value(normed, "before", "norms")
    assert finding.values["before"] == np.median(keys[keys["stage"] == "projected"]["log_sd"])
    assert finding.values["after"] == np.median(keys[keys["stage"] == "scored"]["log_sd"])


def test_sink_tokens(plain: Run) -> None:
    sums = plain.tables["sink_tokens"].groupby("token_id")["n_sink"].sum().sort_values(ascending=False)
    finding = with_value(plain, "n_sink_0", "sink_tokens")
    assert [finding.values[f"n_sink_{index}"] for index in range(4)] == list(sums[:4])
    assert finding.values["n_tokens"] == len(sums)
    assert "\n" not in finding.text


def test_sink_classes(plain: Run) -> None:
    table = plain.tables["sink_tokens"]
    finding = with_value(plain, "share_function", "sink_tokens")
    share = table[table["token_class"] == "article"]["n_sink"].sum() / table["n_sink"].sum()
    assert finding.values["share_function"] == pytest.approx(share)
    assert sum(value for name, value in finding.values.items() if name != "n") == pytest.approx(1)


def test_massive(plain: Run) -> None:
    table = plain.tables["massive"]
    finding = with_value(plain, "n_pairs", "massive")
    assert finding.values["n_pairs"] == 5
    assert finding.values["n_dropped"] == 5 * (1 + 2 + 3 + 4 + 5)
    groups = table.groupby(["token_id", "channel"])
    sums = groups.agg(layers=("layer", "size"), n=("n", "sum"), top=("max_abs", "max"))
    sums = sums.sort_values(["layers", "n"])[::-1]
    assert [finding.values[f"n_{index}"] for index in range(4)] == list(sums["n"])[:4]
    assert [finding.values[f"max_abs_{index}"] for index in range(4)] == list(sums["top"])[:4]
    for words in (
        "The residual stream that enters layers 1–5 has massive entries (|x| > 100, and at least 1,000 × the median",
        "5 pairs of token and channel in channels 7–8 and 11; through the most layers position 0 in channel 11 ",
        "(layers 1–5, 320 of 320 tokens × layers, |x| up to 64,005)",
        f"{isolated(chr(10))} in channel 7 (layers 1–4, 400 of 480 tokens × layers, |x| up to 100,004)",
        "; 75 more are of rarer pairs, which the table leaves out.",
    ):
        assert words in finding.text


def test_massive_in_few_words(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False)
    table = run.tables["massive"]
    one = table[(table["token_id"] == -1) & (table["layer"].isin([2, 4]))].assign(n_dropped=0)
    run = rewrite(run, massive=one)
    finding = with_value(run, "n_pairs", "massive")
    assert "that enters layers 2 and 4 has massive entries" in finding.text
    assert "1 pair of token and channel in channel 11: position 0 in channel 11 (layers 2 and 4, 128 of" in finding.text
    assert "n_dropped" not in finding.values
    many = pd.concat([one.assign(channel=channel) for channel in range(20, 32)])
    assert "12 pairs of token and channel in 12 channels; through the most layers" in texts(rewrite(run, massive=many))
    none = with_value(rewrite(run, massive=table.iloc[:0]), "n_pairs", "massive")
    rule = "|x| > 100, and at least 1,000 × the median of its window and layer"
    assert none.text == f"No entry of the residual stream is massive ({rule})."
    assert "massive" not in texts(rewrite(run, massive=None))


def test_function_tokens(plain: Run) -> None:
    table = plain.tables["class_attention"]
    finding = with_value(plain, "class_sink_0", "class_attention")
    for index, third in enumerate(([0, 1], [2, 3], [4, 5])):
        sinks = table[(table["token_class"] == "function") & table["layer"].isin(third)]["class_sink"]
        assert finding.values[f"class_sink_{index}"] == np.median(sinks)
        assert finding.values[f"above_{index}"] == (sinks > 0).sum()
    assert finding.values["n_types"] == 42
    classes = with_value(plain, "article_0", "class_attention")
    early = table[(table["token_class"] == "article") & table["layer"].isin([0, 1])]["class_sink"]
    assert classes.values["article_0"] == np.median(early)
    assert classes.values["article_n_types"] == 3


@pytest.mark.parametrize(
    ("sign", "words"),
    [
        (1.0, "most heads favour function tokens in layers 0–1 (+1.00"),
        (-1.0, "most heads disfavour function tokens in layers 0–1 (−1.00"),
        (0.0, "heads disagree about function tokens in layers 0–1"),
    ],
)
def test_the_side_of_function_tokens(sign: float, words: str, tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False)
    table = run.tables["class_attention"]
    values = np.where(table["q_head"] % 2, -0.1, 0.1) if sign == 0 else sign
    run = rewrite(run, class_attention=table.assign(class_sink=values))
    assert words in with_value(run, "class_sink_0", "class_attention").text


def texts(run: Run) -> str:
    return " ".join(finding.text for finding in findings(run))


def test_qk_norm_in_words(plain: Run, normed: Run) -> None:
    assert "There is no QK norm: in all 6 attention layers" in texts(plain)
    words = texts(normed)
    assert "A QK norm stands on queries and keys in all 6 attention layers, over each head by itself" in words
    assert "4 of its 6 layers see a sliding window of 24 tokens" in words


def test_partial_norm(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=True)
    entries = run.manifest["model"]["anatomy"]
    for entry in entries:
        entry["q_norm"] = None
    entries[0]["k_norm"] = entries[1]["k_norm"] = None
    entries[2]["k_norm"] = {"module": "k", "axis": "full", "order": "after_rope"}
    words = texts(rewrite(run))
    assert "on the keys in 4 of 6 attention layers (2–5)" in words
    assert "over all heads together, after the rotation (RoPE) (1 norm)" in words


def test_windows_that_hide_nothing(tmp_path: Path) -> None:
    run = rewrite(write_synthetic_run(tmp_path, qk_norm=True, n_layers=2), anatomy={"window": 64})
    assert "sliding windows of 64 tokens hide nothing" in texts(run)


def test_learned_sink(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=2)
    run = rewrite(run, sinks=run.tables["sinks"].assign(sink_logit_mass=0.25))
    assert "Its learned sink logit takes 25.0% of the attention (mean over 8 heads; 25.0% to 25.0%)." in texts(run)


def test_failed_parity(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1)
    run.manifest["parity"]["ok"] = False
    assert "does NOT reproduce" in texts(run)


def test_single_layer_and_head(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1, q_heads=1, kv_heads=1)
    words = texts(run)
    assert "1 attention layer of 1 query head and 1 key head" in words
    assert "in its one attention layer" in words
    assert "By depth" not in words
    assert "1 heads" not in words
    assert "nan" not in words


def test_nothing_seen(tmp_path: Path) -> None:
    """NaN everywhere, no function word, no sink: sentences fall away or say so."""
    run = write_synthetic_run(tmp_path, qk_norm=True, n_layers=3)
    changed: dict[str, pd.DataFrame] = {}
    for name in ("norms", "logits", "sinks", "sink_rates", "gains", "document_stats", "type_stats", "class_attention"):
        table = run.tables[name]
        measured = [
            column
            for column in table.select_dtypes("float")
            if not column.startswith("n_") and column not in {"epsilon", "n"}
        ]
        changed[name] = table.assign(**dict.fromkeys(measured, np.nan))
    run = rewrite(run, sink_tokens=run.tables["sink_tokens"].iloc[:0], **changed)
    words = texts(run)
    assert "nan" not in words
    assert "–%" not in words
    assert "No function word occurs often enough" in words
    assert "Past position 0 no key draws more than 30%" in words


def test_a_run_without_tables(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=2)
    run = rewrite(run, **dict.fromkeys(run.tables))
    assert {finding.table for finding in findings(run)} == {"manifest"}


def test_paragraphs_keep_the_order(plain: Run) -> None:
    shaped = paragraphs(findings(plain))
    assert list(shaped)[:2] == ["What was read", "QK norm"]
    assert sum(map(len, shaped.values())) == len(findings(plain))
