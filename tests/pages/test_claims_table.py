"""The section of a page that says which claims hold."""

from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import make_ledger
from geomprobe.ledger.writing import WORDS
from geomprobe.pages.sections import claims_tables
from tests.synthetic_run import rewrite, write_synthetic_run


def test_the_page_has_the_ledger_of_the_run(normed):
    (table,) = claims_tables(normed)
    ledger = make_ledger(Checkpoint(normed))
    assert [row[0] for row in table.rows] == ["C1", "C2", "C2a", "C2b", "C2c", "C3", "C6s", "C7a", "C7c", "C8"]
    for row, said in zip(table.rows, ledger.claims.to_dict("records"), strict=True):
        assert row == [said["claim"], said["title"], WORDS[said["verdict"]], said["sentence"]]
    assert f"{ledger.n_primary} primary endpoints" in table.caption
    assert ledger.dated.isoformat() in table.caption


def test_a_run_without_the_split_has_none(tmp_path):
    assert claims_tables(rewrite(write_synthetic_run(tmp_path, qk_norm=False), split=None)) == []
