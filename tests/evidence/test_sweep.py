"""Sweeps: every run once, whoever asks, whatever was killed or failed before."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
import torch

from geomprobe.errors import InvalidParameter, RunError
from geomprobe.evidence import lock, processes, standing
from geomprobe.evidence import sweep as module
from geomprobe.evidence.lock import holding
from geomprobe.evidence.plan import read_plan
from geomprobe.evidence.processes import run_together
from geomprobe.evidence.standing import COLUMNS, state
from geomprobe.evidence.sweep import RECORDS, choose, command_of, place_of, sweep
from geomprobe.lab import folder as lab_folder
from geomprobe.lab import running
from geomprobe.lab import text as lab_text
from tests.lab.made_text import documents

SHAPE = "hidden: 32, intermediate: 32, layers: 1, heads: 2, kv_heads: 1, head_dim: 8, length: 16, batch: 64"
BACKCOPY = f"preset: backcopy, tokens: 5120, {SHAPE}"
TEXT = f"vocab_size: 300, tokens: 2048, {SHAPE}"
SECONDS = 180  # after which something hangs


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path / "cache"))
    for name in (processes.CHILD, processes.BEGUN, "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def planned(tmp_path):
    """A plan of groups, each as YAML in one line; its texts are there."""
    (tmp_path / "tales").mkdir()
    for document in documents():
        (tmp_path / "tales" / f"{document.name}.txt").write_text(document.text, encoding="utf-8")

    def make(*groups, **keys):
        lines = ["name: p", "text: tales", *(f"{key}: {value}" for key, value in keys.items()), "groups:"]
        lines += [f"  - {{{group}}}" for group in groups]
        (tmp_path / "plan.yaml").write_text("\n".join(lines), encoding="utf-8")
        return read_plan(tmp_path / "plan.yaml")

    return make


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


class Trainer:
    """Stands in for training: leaves the files that a training leaves, and notes what it was asked."""

    def __init__(self):
        self.trained, self.under_way, self.overlaps, self.data, self.compiled = [], set(), [], {}, {}
        self.fails, self.seconds, self.diverges = {}, 0.0, False

    def __call__(self, recipe, data, *, out, place, compiled, overwrite, reporter):
        name = Path(out).name
        self.data[name], self.compiled[name] = data, compiled
        if name in self.under_way:
            self.overlaps.append(name)
        self.under_way.add(name)
        try:
            time.sleep(self.seconds)
            if name in self.fails:
                raise self.fails[name]
            if not (out / "training.json").exists():
                self.trained.append(name)
                note = {"recipe": recipe.described, "fingerprint": f"of {name}"}
                loss = {"diverged_at": 3 if self.diverges else None, "held_out_loss": {"1": 2.5, "2": 3.0}}
                out.mkdir(exist_ok=True)
                (out / "begun.json").write_text(json.dumps(note), encoding="utf-8")
                done = json.dumps({**note, **loss, "step": recipe.n_steps, "seconds": 6.0})
                (out / "training.json").write_text(done, encoding="utf-8")
        finally:
            self.under_way.discard(name)


@pytest.fixture
def trainer(monkeypatch):
    made = Trainer()
    monkeypatch.setattr(running, "run_recipe", made)
    return made


def measured(path, _plan):
    """Stands in for measuring."""
    fingerprint = json.loads((path / "training.json").read_text(encoding="utf-8"))["fingerprint"]
    note = {"fingerprint": fingerprint, "version": standing.VERSION}
    (path / "measured.json").write_text(json.dumps(note), encoding="utf-8")


def states(plan, out):
    return dict(state(plan, out)[["job", "state"]].itertuples(index=False))


def until(true, what):
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < SECONDS, what
        time.sleep(0.01)


def weights(out, name):
    return json.loads((out / name / "training.json").read_text(encoding="utf-8"))["weights_sha256"]


# ---------------------------------------------------------------------- real trainings
def test_arms_are_trained_and_found_again(planned, out, capsys):
    plan = planned(f"name: t, arms: [A0, A1], seeds: 1, {TEXT}")
    table = sweep(plan, out=out, device="cpu")
    assert "t-A1-s0: 2 of 2" in capsys.readouterr().err
    assert list(table["job"]) == ["t-A0-s0", "t-A1-s0"]
    assert list(table["state"]) == ["trained"] * 2
    assert list(table["step"]) == list(table["n_steps"]) == [2, 2]
    assert table["held_out_loss"].between(4, 7).all()
    notes = [json.loads((out / name / "training.json").read_text(encoding="utf-8")) for name in table["job"]]
    assert notes[0]["pair"] == notes[1]["pair"]
    assert [note["arm"] for note in notes] == ["A0", "A1"]
    pd.testing.assert_frame_equal(pd.read_csv(out / "sweep.csv"), table, check_dtype=False)
    before = {file: file.stat().st_mtime_ns for file in out.glob("t-*/**/*") if file.is_file()}
    pd.testing.assert_frame_equal(sweep(plan, out=out, device="cpu"), table)
    assert {file: file.stat().st_mtime_ns for file in out.glob("t-*/**/*") if file.is_file()} == before
    assert capsys.readouterr().err == ""  # nothing to tell
    # The same name for another recipe is no reason to lose a training, nor to take it for the other.
    other = planned(f"name: t, arms: [A0], seeds: 1, rate: 0.1, {TEXT}")
    assert states(other, out) == {"t-A0-s0": "in_the_way"}
    assert sweep(other, out=out, device="cpu", quiet=True)["held_out_loss"].isna().all()
    assert "holds a training of another recipe" in (out / "t-A0-s0" / "failed.txt").read_text(encoding="utf-8")
    assert (out / "t-A0-s0" / "training.json").exists()


def test_a_killed_sweep_goes_on(planned, out, tmp_path):
    plan = planned(f"name: b, arms: [A0], seeds: 1, {BACKCOPY.replace('5120', '153600')}")
    command = command_of(plan, out, (), None, "cpu")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        until(lambda: max(out.glob("b-A0-s0/state/*.pt"), default=Path("0")).stem >= f"{8:08d}", "no state was saved")
        killed.send_signal(signal.SIGSTOP)  # so that it cannot end before it is killed
        assert sweep(plan, out=out, device="cpu", quiet=True)["state"].tolist() == ["training"]  # left alone
        killed.kill()
    (row,) = state(plan, out).to_dict("records")
    assert row["state"] == "training"
    assert 8 <= row["step"] < row["n_steps"] == 150
    assert sweep(plan, out=out, device="cpu", quiet=True)["state"].tolist() == ["trained"]
    sweep(plan, out=tmp_path / "whole", device="cpu", quiet=True)
    assert weights(out, "b-A0-s0") == weights(tmp_path / "whole", "b-A0-s0")
    assert len(pd.read_parquet(out / "b-A0-s0" / "metrics.parquet")) == 150


# ---------------------------------------------------------------------- who does what
def test_two_sweeps_at_once_train_no_run_twice(planned, out, trainer):
    plan = planned(f"name: b, arms: [A0, A1, A2], seeds: 4, {BACKCOPY}", measure="true")
    trainer.seconds = 0.01
    measured_runs = []

    def measure(path, given):
        measured_runs.append(path.name)
        measured(path, given)

    def work():
        sweep(plan, out=out, device="cpu", quiet=True, measure_run=measure)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS)
    assert sorted(trainer.trained) == sorted(job.name for job in plan.jobs)
    assert trainer.overlaps == []
    assert set(states(plan, out).values()) == {"measured"}
    assert set(measured_runs) == set(trainer.trained)


def test_a_run_that_another_is_at_is_taken_once_it_is_free(planned, out, trainer, capsys):
    plan = planned(f"name: b, arms: [A0, A1], seeds: 1, {BACKCOPY}")
    out.mkdir()
    with holding(out / ".b-A0-s0.lock") as mine:
        assert mine
        assert sweep(plan, out=out, device="cpu")["state"].tolist() == ["waiting", "trained"]
    assert "another process is at b-A0-s0\n" in capsys.readouterr().err
    held = holding(out / ".b-A0-s0.lock")
    held.__enter__()
    (out / "b-A1-s0" / "training.json").unlink()
    train = trainer.__call__

    def freeing(*given, **options):
        held.__exit__(None, None, None)  # the other process ends while this one is at the next run
        return train(*given, **options)

    running.run_recipe = freeing  # the fixture puts it back
    assert sweep(plan, out=out, device="cpu", quiet=True, only=["*"])["state"].tolist() == ["trained"] * 2
    assert trainer.trained == ["b-A1-s0", "b-A1-s0", "b-A0-s0"]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 20])
def test_parts_of_an_array_are_disjoint_and_cover_all(planned, n):
    plan = planned(f"name: b, arms: [A0, A1, A2], seeds: 4, {BACKCOPY}")
    parts = [choose(plan, array=(part, n)) for part in range(n)]
    assert sorted(job.name for part in parts for job in part) == sorted(job.name for job in plan.jobs)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_part_of_an_array_trains_its_runs_alone(planned, out, trainer):
    plan = planned(f"name: b, arms: [A0, A1, A2], seeds: 2, {BACKCOPY}")
    assert list(sweep(plan, out=out, device="cpu", quiet=True, only=["*-A[02]-*"], array=(1, 2))["job"]) == [
        "b-A2-s0",
        "b-A2-s1",
    ]
    assert trainer.trained == ["b-A2-s0", "b-A2-s1"]
    assert list(states(plan, out).values()).count("waiting") == 4
    assert len(pd.read_csv(out / "sweep.csv")) == 6  # the table is of the whole plan
    assert sweep(plan, out=out, device="cpu", quiet=True, array=(6, 7)).empty


def test_what_cannot_be_chosen(planned, out):
    plan = planned(f"name: b, arms: [A0], seeds: 2, {BACKCOPY}")
    with pytest.raises(InvalidParameter, match=r"only must fit a run of the plan, as 'b-A0-s0', .*; got 'nano\*'\."):
        choose(plan, only=["b-*", "nano*"])
    with pytest.raises(InvalidParameter, match=r"array must be I/N with I from 0 to N - 1; got '2/2'\."):
        choose(plan, array=(2, 2))
    with pytest.raises(InvalidParameter, match=r"jobs must be at least 1; got 0\."):
        sweep(plan, out=out, jobs=0)
    with pytest.raises(InvalidParameter, match="measure_run cannot be sent to other processes"):
        sweep(plan, out=out, jobs=2, measure_run=measured)
    assert not out.exists()


# ---------------------------------------------------------------------- what goes wrong
def test_a_run_that_fails_leaves_the_others(planned, out, trainer, capsys):
    plan = planned(f"name: b, arms: [A0, A1, A2], seeds: 1, {BACKCOPY}")
    trainer.fails = {"b-A1-s0": ZeroDivisionError("planted")}
    table = sweep(plan, out=out, device="cpu")
    assert list(table["state"]) == ["trained", "failed", "trained"]
    assert table["held_out_loss"].isna().tolist() == [False, True, False]
    said = (out / "b-A1-s0" / "failed.txt").read_text(encoding="utf-8")
    assert said.startswith("Traceback")
    assert said.endswith("ZeroDivisionError: planted\n")
    assert "b-A1-s0 failed (ZeroDivisionError): planted\n" in capsys.readouterr().err
    trainer.fails = {}
    trainer.trained.clear()
    assert set(sweep(plan, out=out, device="cpu", quiet=True)["state"]) == {"trained"}
    assert trainer.trained == ["b-A1-s0"]
    assert not (out / "b-A1-s0" / "failed.txt").exists()


def test_a_run_that_failed_is_not_tried_again_by_others_of_the_sweep(planned, out, trainer, monkeypatch):
    plan = planned(f"name: b, arms: [A0], seeds: 1, {BACKCOPY}")
    trainer.fails = {"b-A0-s0": ZeroDivisionError("planted")}
    begun = time.time() - 1
    sweep(plan, out=out, device="cpu", quiet=True)
    trainer.fails = {}
    monkeypatch.setenv(processes.BEGUN, str(begun))
    assert list(sweep(plan, out=out, device="cpu", quiet=True)["state"]) == ["failed"]
    monkeypatch.setenv(processes.BEGUN, str(time.time() + 1))
    assert list(sweep(plan, out=out, device="cpu", quiet=True)["state"]) == ["trained"]


def test_groups_are_compiled_that_say_so(planned, out, trainer, monkeypatch):
    forgotten = []
    monkeypatch.setattr(module, "_forget_compiled", lambda: forgotten.append(True))
    groups = [f"name: {name}, arms: [A0], seeds: 1, {BACKCOPY}" for name in "bcd"]
    plan = planned(groups[0], f"{groups[1]}, compile: true", f"{groups[2]}, compile: false")
    sweep(plan, out=out, device="cpu", quiet=True)
    assert trainer.compiled == {"b-A0-s0": None, "c-A0-s0": True, "d-A0-s0": False}
    assert len(forgotten) == 1  # else torch would leave the ninth model uncompiled


def test_measuring_may_fail_too(planned, out, trainer):
    plan = planned(f"name: b, arms: [A0], seeds: 1, {BACKCOPY}", measure="true")

    def fail(path, _plan):
        raise RuntimeError(f"planted in {path.name}")

    (row,) = sweep(plan, out=out, device="cpu", quiet=True, measure_run=fail).to_dict("records")
    assert (row["state"], row["held_out_loss"], row["seconds"]) == ("failed", 2.5, 6.0)
    assert list(sweep(plan, out=out, device="cpu", quiet=True, measure_run=measured)["state"]) == ["measured"]
    assert trainer.trained == ["b-A0-s0"]
    file = out / "b-A0-s0" / "measured.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    for other in ({"fingerprint": "of another"}, {"version": standing.VERSION - 1}):
        file.write_text(json.dumps(known | other), encoding="utf-8")
        assert states(plan, out) == {"b-A0-s0": "trained"}


def test_nothing_is_measured_that_is_not_asked_for(planned, out, trainer):
    plan = planned(f"name: b, arms: [A0], seeds: 1, {BACKCOPY}")
    asked = []
    sweep(plan, out=out, device="cpu", quiet=True, measure_run=lambda *given: asked.append(given))
    assert asked == []


def test_a_training_that_diverged_has_no_loss(planned, out, trainer):
    trainer.diverges = True
    table = sweep(planned(f"name: b, arms: [A0], seeds: 1, {BACKCOPY}"), out=out, device="cpu", quiet=True)
    assert list(table["state"]) == ["trained"]
    assert table["held_out_loss"].isna().all()


def test_texts_are_prepared_once_for_each_vocabulary(planned, out, trainer, monkeypatch):
    made = []

    def prepare(source, plan, *, say):
        made.append((source.name, len(source.documents), plan.vocab_size, plan.renamed))
        if plan.renamed == 9:
            raise InvalidParameter("Nine are too many.")
        return made[-1]

    monkeypatch.setattr(lab_text, "prepare_text", prepare)
    plan = planned(
        f"name: a, arms: [A0, A1], seeds: 2, {TEXT}",
        f"name: b, arms: [A0, A1], seeds: 2, renamed: 3, {TEXT}",
        f"name: c, arms: [A0], seeds: 2, renamed: 9, {TEXT}",
        f"name: d, arms: [A0], seeds: 2, {BACKCOPY}",
    )
    table = sweep(plan, out=out, device="cpu", quiet=True)
    assert made == [("tales", 12, 300, 0), ("tales", 12, 300, 3), ("tales", 12, 300, 9)]
    assert list(table["state"]) == ["trained"] * 8 + ["failed"] * 2 + ["trained"] * 2
    assert trainer.data["a-A1-s1"] == made[0]
    assert trainer.data["b-A1-s1"] == made[1]
    assert trainer.data["d-A0-s1"] is None


@pytest.mark.parametrize("what", ["text", "categories"])
def test_files_that_are_missing_are_told_first(planned, out, tmp_path, what):
    plan = planned(f"name: a, arms: [A0], seeds: 1, {TEXT}", measure="true", categories="words.txt")
    (tmp_path / "words.txt").touch()
    if what == "text":
        (tmp_path / "tales").rename(tmp_path / "gone")
    else:
        (tmp_path / "words.txt").unlink()
    with pytest.raises(InvalidParameter, match=rf"^plan\.yaml: {what} must be there; got '.*', which is not\.$"):
        sweep(plan, out=out, device="cpu")
    assert states(plan, out) == {"a-A0-s0": "waiting"}
    assert not out.exists()


def test_an_out_that_cannot_be_made(planned, out):
    out.touch()
    with pytest.raises(RunError, match=r"Cannot make the folder '.*out': Not a directory\."):
        sweep(planned(f"name: b, arms: [A0], seeds: 1, {BACKCOPY}"), out=out, device="cpu")


# ---------------------------------------------------------------------- small parts
def test_columns_and_names_of_files():
    assert lab_folder.BEGUN == standing.BEGUN
    assert lab_folder.WHOLE == standing.TRAINED
    assert (lab_folder.STEPS, lab_folder.STATE) == ("steps", "state")
    assert COLUMNS[5] == "state"


def test_a_lock_of_no_system(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "fcntl", None)
    with pytest.raises(RunError, match="needs locks of POSIX systems"), holding(tmp_path / "x.lock"):
        pass


def test_gpus_in_turn(monkeypatch):
    monkeypatch.setattr("geomprobe.models.load.choose_device", lambda name: "cuda:0" if name != "cuda:1" else name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert place_of("auto") == "cuda:0"
    monkeypatch.setenv(processes.CHILD, "5")
    assert (place_of("auto"), place_of("cuda")) == ("cuda:1", "cuda:1")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert (place_of("auto"), place_of("cuda:1")) == ("cuda:0", "cuda:1")


# ---------------------------------------------------------------------- several processes
ASKS = "import os, sys; print(os.environ['OMP_NUM_THREADS'], os.environ['GEOMPROBE_SWEEP_CHILD']); sys.exit({code})"


def test_processes_have_numbers_threads_and_logs(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "n_cores", lambda: 6)
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    logs = [tmp_path / f"{number}.log" for number in range(3)]
    logs[0].write_text("before\n", encoding="utf-8")
    commands = [[sys.executable, "-c", ASKS.format(code=code)] for code in (0, 1, 5)]
    assert run_together(commands, logs, lambda: None) == [0, 1, 5]
    assert [log.read_text(encoding="utf-8") for log in logs] == ["before\n2 0\n", "2 1\n", "2 2\n"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_together(commands[:1], logs[1:2], lambda: None)
    assert logs[1].read_text(encoding="utf-8").endswith("\n1 0\n")


CHILD = """
import signal, sys, time
from geomprobe.evidence.processes import end_with_parent
def end(number, _frame):
    print("signal", number, flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
end_with_parent()
print("ready", flush=True)
time.sleep(60)
"""
PARENT = """
import signal, sys
from pathlib import Path
from geomprobe.evidence.processes import run_together
signal.signal(signal.SIGINT, signal.default_int_handler)
run_together([[sys.executable, "-c", sys.argv[1]]] * 2, [Path("1.log"), Path("2.log")], lambda: None)
"""


@pytest.mark.parametrize(
    ("sent", "got", "code"),
    [
        (signal.SIGINT, signal.SIGINT, -signal.SIGINT),
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGKILL, signal.SIGTERM, -signal.SIGKILL),
    ],
)
def test_what_ends_the_parent_ends_the_children(tmp_path, sent, got, code):
    logs = [tmp_path / "1.log", tmp_path / "2.log"]

    def said(words):
        return all(log.exists() and log.read_text(encoding="utf-8") == words for log in logs)

    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as parent:
        until(lambda: said("ready\n"), "the children did not begin")
        parent.send_signal(sent)
        assert parent.wait(SECONDS) == code
    until(lambda: said(f"ready\nsignal {int(got)}\n"), "a child went on")


# A process of a sweep whose trainings cost nothing: it locks runs, and writes what a training leaves.
STUB = """
import json, sys, time
from pathlib import Path
from geomprobe.evidence.lock import holding
from geomprobe.evidence.plan import read_plan
out = Path(sys.argv[2])
for job in read_plan(sys.argv[1]).jobs:
    folder = out / job.name
    with holding(out / f".{job.name}.lock") as mine:
        if mine and not folder.exists():
            folder.mkdir()
            print(job.name, flush=True)
            if job.name == sys.argv[3]:
                (folder / "failed.txt").write_text("planted")
                continue
            done = {"diverged_at": None, "held_out_loss": {"1": 2.0}, "step": 1, "seconds": 1.0}
            done |= {"recipe": job.recipe.described, "fingerprint": "x"}
            (folder / "training.json").write_text(json.dumps(done))
            time.sleep(0.02)
sys.exit(int((out / sys.argv[3] / "failed.txt").exists()))
"""


@pytest.mark.parametrize("fails", ["none", "b-A1-s1"])
def test_processes_share_the_runs(planned, out, monkeypatch, capsys, fails):
    plan = planned(f"name: b, arms: [A0, A1], seeds: 3, {BACKCOPY}")
    monkeypatch.setattr(
        module, "command_of", lambda plan, out, *_given: (sys.executable, "-c", STUB, plan.file, out, fails)
    )
    monkeypatch.setattr(module, "_LOOK", 0)
    table = sweep(plan, out=out, jobs=2)
    names = [job.name for job in plan.jobs]
    assert dict(zip(table["job"], table["state"], strict=True)) == {
        name: "failed" if name == fails else "trained" for name in names
    }
    done = [line for log in (out / "logs").iterdir() for line in log.read_text(encoding="utf-8").split()]
    assert sorted(done) == sorted(names)
    assert sorted(log.name for log in (out / "logs").iterdir()) == ["1.log", "2.log"]
    assert f"6 runs in 2 processes, which write to {out / 'logs'}\n" in capsys.readouterr().err
    assert len(pd.read_csv(out / "sweep.csv")) == 6


def test_a_process_that_cannot_work_is_told(planned, out, monkeypatch):
    plan = planned(f"name: b, arms: [A0, A1], seeds: 1, {BACKCOPY}")
    code = "import sys; print('geomprobe: There is no such device.'); sys.exit(2)"
    monkeypatch.setattr(module, "command_of", lambda *_given: (sys.executable, "-c", code))
    with pytest.raises(
        RunError, match=r"ended with code 2, 2 runs are left; '.*1\.log' ends with: geomprobe: There is"
    ):
        sweep(plan, out=out, jobs=2, quiet=True)


def test_the_command_of_a_process(planned, out):
    plan = planned(f"name: b, arms: [A0], seeds: 1, {BACKCOPY}")
    words = command_of(plan, out, ("b-*", "*-s0"), (1, 4), "cpu")
    assert words[:4] == (sys.executable, "-m", "geomprobe", "sweep")
    assert words[4:] == (
        str(plan.file), "--out", str(out), "--jobs", "1", "--device", "cpu",
        "--only", "b-*", "--only", "*-s0", "--array", "1/4",
    )  # fmt: skip


@pytest.mark.usefixtures("trainer")
def test_records_stand_together(planned, out):
    plan = planned(f"name: b, arms: [A0, A1], seeds: 2, {BACKCOPY}", measure="true")
    sweep(plan, out=out, device="cpu", quiet=True, measure_run=measured)
    kept = sorted((out / RECORDS).iterdir())
    assert [file.name for file in kept] == sorted(f"{job.name}.json" for job in plan.jobs)
    for job, file in zip(sorted(plan.jobs, key=lambda job: job.name), kept, strict=True):
        assert file.read_bytes() == (out / job.name / "measured.json").read_bytes()
