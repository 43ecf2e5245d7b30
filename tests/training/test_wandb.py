"""Mirrors of a run: what W&B gets, and that a run neither fails by it nor waits for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import toys

from ilkd_bench.jobs import wandb_group
from ilkd_bench.jobs.job import Job
from ilkd_bench.records import cells
from ilkd_bench.settings.run import Run
from ilkd_bench.training import wandb_process
from ilkd_bench.training.wandb_logger import Mirror, flat, numbers, opening, tracker

pytestmark = pytest.mark.runs

ROWS = [
    {
        "phase": "distill",
        "epoch": epoch,
        "rows": 64,
        "lr": 1e-4,
        "loss/ce": 0.5 / epoch,
        "loss/rail": 0.25,
        "loss/total": 0.75,
        "dev/accuracy": 0.5,
        "layers": "2 5",
    }
    for epoch in (1, 2)
]
RECORD = {
    "scores": {"dev": {"accuracy": 0.75, "n": 4}, "ood/reviews": {"accuracy": 0.5, "n": 4}},
    "monitor": "dev/accuracy",
    "best_epoch": 2,
    "seconds": {"train": 1.5, "teacher": 0.5, "evaluate": 0.25},
}
FAKE = """
import json, os, time
from types import SimpleNamespace

def note(name, given):
    with open(os.environ["FAKE_CALLS"], "a") as file:
        file.write(json.dumps([name, given], default=str) + "\\n")
    if os.environ.get("FAKE_TROUBLE") == f"{name} raises":
        raise ConnectionError("no route to " + os.environ["WANDB_API_KEY"])
    while os.environ.get("FAKE_TROUBLE") == f"{name} hangs" and os.path.exists(os.environ["FAKE"]):
        time.sleep(0.05)
    if os.environ.get("FAKE_TROUBLE") == f"{name} dies":
        os.kill(os.getpid(), 9)

class Run:
    def __init__(self):
        self.summary = self
    def define_metric(self, name, **given):
        pass
    def log(self, row):
        note("log", row)
    def update(self, values):
        note("summary", values)
    def finish(self, exit_code):
        note("finish", exit_code)

def Settings(**given):
    return given

def init(**given):
    if given["mode"] == "online" and os.environ.get("FAKE_TROUBLE") == "offline":
        raise ConnectionError("no route to " + os.environ["WANDB_API_KEY"])
    note("init", given)
    return Run()

def login(**given):
    note("login", given)

def setup():
    return SimpleNamespace(settings=SimpleNamespace(base_url=os.environ["FAKE_SERVER"]))

def teardown():
    pass

note("import", None)
"""
SECRET = "5ecret" * 8


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("WANDB_MODE", "offline")  # so that it is put back if a test changes it
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], list[Any]]]:
    """A wandb that only notes what it is asked; returns the notes so far."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "wandb.py").write_text(FAKE)
    calls = tmp_path / "calls.jsonl"
    calls.write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    monkeypatch.setenv("FAKE_CALLS", str(calls))
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("FAKE_SERVER", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("FAKE", str(tmp_path / "fake" / "wandb.py"))
        yield lambda: [json.loads(line) for line in calls.read_text().splitlines()]
    (tmp_path / "fake" / "wandb.py").unlink()  # what hangs goes on


def configuration(**choice: Any) -> Run:
    config = toys.config("logger=wandb", "method=rail_l")
    config["logger"] |= {"group": "a sweep"} | choice
    return Run.of(config, {"train": "a", "dev": "b"})


def job(**choice: Any) -> Job:
    return Job(configuration(**choice))


def track(run: Run, folder: Path, error: Exception | None = None) -> float:
    """Do what a run does; return how long that took."""
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tracker(run, folder) as logger:
        logger.log_metrics(ROWS[0], step=1)
        if error is not None:
            raise error
        logger.log_metrics(ROWS[1], step=2)
        logger.finish(RECORD, ROWS)
    return time.monotonic() - started


def named(calls: list[Any], name: str) -> list[Any]:
    return [given for found, given in calls if found == name]


# --------------------------------------------------------------------------------- pure functions


def test_without_a_choice_there_is_no_logger(tmp_path: Path) -> None:
    with tracker(toys.run(), tmp_path) as logger:
        assert logger is False
    assert list(tmp_path.iterdir()) == []


def test_a_run_has_its_configuration_group_tags_and_place(tmp_path: Path) -> None:
    run = configuration()
    init = opening(run, run.logger, tmp_path / "s0-abc")["init"]
    assert init["group"] == "a sweep" and init["project"] == "ilkd_bench"
    assert init["tags"] == ["rail_l", "demo_sentiment", "tiny12-tiny6"]
    assert init["name"] == "demo_sentiment rail_l s0-abc"
    place = cells.place(run.identity)
    marks = {"section": place["section"], "row": "rail_l", "column": place["task"]}
    config = toys.config("logger=wandb", "method=rail_l")
    config["logger"]["group"] = "a sweep"
    assert init["config"] == config | marks


def test_a_long_name_becomes_no_tag_that_is_refused(tmp_path: Path) -> None:
    run = configuration()
    run = run.but(student=run.student.model_copy(update={"name": "s" * 100}))
    tags = opening(run, run.logger, tmp_path)["init"]["tags"]
    assert len(tags[2]) == 64 and tags[2].startswith("tiny12-sss")


def test_layers_drawn_are_shown_as_numbers() -> None:
    shown = numbers({"layers": "2 11", "phase": "distill", "loss/ce": 0.5, "empty": ""})
    assert shown == {
        "layers": "2 11",
        "layers/1": 2,
        "layers/2": 11,
        "phase": "distill",
        "loss/ce": 0.5,
        "empty": "",
    }


def test_a_record_becomes_one_level() -> None:
    assert flat({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {"a/b/c": 1, "a/d": [2], "e": None}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["-m", "+sweeps=rail_table2", "data_dir=D", "logger=wandb"], "rail_table2"),
        (["+sweeps=rail_table2", "lr=1e-5"], "rail_table2 lr=1e-5"),
        (["-m", "method=pkd,alp", "seed=0,1,2", "lr=1e-4"], "method=pkd,alp lr=1e-4"),
        (["lr=1e-4", "-m", "seed=7", "method=pkd,alp", "results_dir=R"], "method=pkd,alp lr=1e-4"),
        (["method.rail=2", "trainer.workers=2", "hydra/launcher=joblib"], "method.rail=2"),
        (["seed=3", "logger=wandb"], "defaults"),
    ],
)
def test_a_sweep_is_called_what_was_typed_but_for_the_seed(words: list[str], name: str) -> None:
    assert wandb_group.group(words) == name


def test_long_groups_differ_where_their_words_do() -> None:
    one, other = (wandb_group.group([f"task.name={'x' * 200}{end}"]) for end in "ab")
    assert len(one) == len(other) == wandb_group.LONGEST_GROUP and one != other


@pytest.mark.parametrize("name", ["method=pkd,alp lr=1e-4", "task.labels=['a','b'] x", "a\\b ${c}"])
def test_another_launcher_is_told_group_and_mode(name: str) -> None:
    told = wandb_group.words(configuration(group=name, mode="offline"))
    logger = toys.config("logger=wandb", *told)["logger"]
    assert logger["group"] == name and logger["mode"] == "offline"
    assert wandb_group.words(toys.run()) == []


# ------------------------------------------------------------------------------- before the sweep


def test_a_key_that_works_leaves_runs_online(
    fake: Callable[[], list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [job(group=None, mode="auto"), Job(toys.run())]
    settled, other = wandb_group.prepare(jobs, ["method=pkd", "seed=1"])
    assert settled.run.logger.mode == "online"
    assert settled.run.logger.group == "method=pkd"
    assert other == jobs[1]
    assert named(fake(), "login") == [{"verify": False}, {"verify": True}]
    assert caplog.records == []


def test_no_network_is_one_warning_for_all_runs(
    fake: Callable[[], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("FAKE_TROUBLE", "login raises")
    jobs = wandb_group.prepare([job(mode=mode) for mode in ("auto", "online", "offline")], [])
    (later,) = wandb_group.prepare([job(mode="auto")], [])  # a command may plan twice
    assert [j.run.logger.mode for j in [*jobs, later]] == ["offline"] * 4
    assert [j.run.logger.group for j in jobs] == ["a sweep"] * 3
    (warning,) = caplog.records
    assert "no route to ***" in warning.getMessage() and "offline" in warning.getMessage()


def test_a_check_that_hangs_ends(
    fake: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TROUBLE", "login hangs")
    monkeypatch.setattr(wandb_group, "CHECK", 0.5)
    assert wandb_group.obstacle() == "no answer within 0.5 s"


def test_offline_runs_ask_nobody(
    fake: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    (settled,) = wandb_group.prepare([job(mode="auto")], [])
    assert settled.run.logger.mode == "offline" and fake() == []


# -------------------------------------------------------------------------------- one run, faked


def test_a_run_is_told_in_order(
    fake: Callable[[], list[Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    track(configuration(mode="online", wait=60), tmp_path / "s0-abc")
    calls = fake()
    assert [name for name, _ in calls] == ["import", "init", "log", "log", "summary", "finish"]
    assert named(calls, "init")[0]["mode"] == "online"
    assert named(calls, "log") == [row | {"layers/1": 2, "layers/2": 5} for row in ROWS]
    assert named(calls, "finish") == [0]
    assert caplog.records == []


def test_a_run_that_goes_on_after_an_interruption_has_all_epochs(
    fake: Callable[[], list[Any]], tmp_path: Path
) -> None:
    with tracker(configuration(wait=60), tmp_path) as logger:
        logger.log_metrics(ROWS[1], step=2)
        logger.finish(RECORD, ROWS)
    assert [row["epoch"] for row in named(fake(), "log")] == [2, 1]


def test_a_run_that_fails_is_marked_so(fake: Callable[[], list[Any]], tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        track(configuration(wait=60), tmp_path, ZeroDivisionError("by nought"))
    assert named(fake(), "summary") == [
        {"status": "failed", "reason": "ZeroDivisionError: by nought"}
    ]
    assert named(fake(), "finish") == [1]


def test_a_run_that_dies_is_marked_so(fake: Callable[[], list[Any]], tmp_path: Path) -> None:
    """What is left is a pipe that ends, here in the middle of a message."""
    start = json.dumps(["start", opening(configuration(), configuration().logger, tmp_path)])
    command = [sys.executable, "-P", wandb_process.__file__]
    subprocess.run(command, input=f'{start}\n["log", {{"epo', text=True, check=True, timeout=60)
    assert [name for name, _ in fake()] == ["import", "init", "finish"]
    assert named(fake(), "finish") == [1]


def test_where_the_network_is_lost_a_run_goes_on_offline(
    fake: Callable[[], list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("FAKE_TROUBLE", "offline")
    track(configuration(mode="online", wait=60), tmp_path)
    assert [given["mode"] for given in named(fake(), "init")] == ["offline"]
    assert len(named(fake(), "log")) == 2 and named(fake(), "finish") == [0]
    (warning,) = caplog.records
    assert "no route to ***" in warning.getMessage() and "offline" in warning.getMessage()
    assert SECRET not in caplog.text


@pytest.mark.runs
@pytest.mark.parametrize("call", ["import", "init", "log", "summary", "finish"])
@pytest.mark.parametrize("trouble", ["raises", "hangs", "dies"])
def test_whatever_happens_to_wandb_the_run_ends_well_and_soon(
    call: str,
    trouble: str,
    fake: Callable[[], list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("FAKE_TROUBLE", f"{call} {trouble}")
    wait = 0.2 if trouble == "hangs" else 60
    took = track(configuration(mode="offline", wait=wait), tmp_path)
    assert trouble != "hangs" or took < 10  # what hangs does so as long as the test
    (warning,) = caplog.records
    said = {"raises": "no route to ***", "hangs": "not done 0.2 s", "dies": "ended early (-9)"}
    assert said[trouble] in warning.getMessage()


def test_a_process_that_cannot_be_started_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    track(configuration(), tmp_path)
    (warning,) = caplog.records
    assert "no python" in warning.getMessage()


def test_a_full_pipe_holds_no_run_up(
    fake: Callable[[], list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TROUBLE", "init hangs")
    logger = Mirror(configuration(wait=0.1).logger, tmp_path)
    started = time.monotonic()
    for _ in range(3):
        logger.send("log", {"epoch": "x" * 100_000})
    logger.close(0)
    assert time.monotonic() - started < 10


def test_a_call_that_is_stuck_ends_the_process() -> None:
    code = (
        "import time; from ilkd_bench.training.wandb_process import limited\n"
        "with limited(0.1, 'log', print): time.sleep(30)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert ended.returncode == 1
    assert ended.stdout == "" or "stuck (log)" in ended.stdout
    assert ended.stderr == "", "it ended by itself, and not because the code has a fault"


def test_keys_and_passwords_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    text = f"bad key {SECRET}\nat proxy http://user:{'pass'}word@proxy:80/"
    assert wandb_process.clean(text) == "bad key *** at proxy http://***@proxy:80/"


# ------------------------------------------------------------------------------ one run, for real


def read_back(folder: Path) -> list[dict[str, Any]]:
    """What an offline run wrote, read by W&B's own tool: a list of records."""
    (path,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", str(path), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [json.loads(line) for line in shown.stdout.splitlines()]


def of_kind(run: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record[kind] for record in run if record["type"] == kind]


@pytest.fixture
def offline(once: Any) -> tuple[Path, list[Any]]:
    """Two jobs that real W&B kept offline, in a shell whose variables name one run for all.

    The first is a command of its own, the second fails. Returned are the record of the first and
    what W&B wrote for each.
    """

    def make(folder: Path) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WANDB_MODE", "offline")
            patch.setenv("WANDB_RUN_ID", "all-in-one")
            patch.setenv("WANDB_RESUME", "allow")
            patch.setenv("WANDB_API_KEY", SECRET)
            patch.setenv("HOME", str(folder / "home"))
            words = [word for word in toys.small(folder) if not word.startswith("epochs=")]
            words += ["epochs=2", "method=rail_l", "keep_student=none", "logger=wandb"]
            words += ["logger.wait=60", "logger.artifact=true", "bank=off"]
            subprocess.run([sys.executable, "-m", "ilkd_bench.run", *words], check=True)
            (record,) = toys.records(folder / "results")
            with pytest.raises(ZeroDivisionError):
                track(configuration(wait=60), folder / "failed", ZeroDivisionError("by nought"))
            runs = [read_back(folder / "results" / record["folder"]), read_back(folder / "failed")]
            return [record, *runs]

    found: tuple[Path, list[Any]] = once("wandb-offline", make)
    return found


@pytest.mark.runs
def test_real_wandb_keeps_two_jobs_apart(offline: Any) -> None:
    runs = offline[1][1:]
    ids = [of_kind(run, "run")[0]["run_id"] for run in runs]
    assert len(set(ids)) == 2 and "all-in-one" not in ids
    assert [of_kind(run, "exit")[0].get("exit_code", 0) for run in runs] == [0, 1]


@pytest.mark.runs
def test_real_wandb_has_configuration_group_and_tags(offline: Any) -> None:
    record, kept, _ = offline[1]
    (run,) = of_kind(kept, "run")
    assert run["run_group"].startswith("method=rail_l epochs=2 limit_eval=64 ")
    assert run["project"] == "ilkd_bench"
    assert run["tags"] == ["rail_l", "demo_sentiment", "tiny12-tiny6"]
    sent = run["config"]["update"]
    for key in record["config"].keys() - {"data", "schema"}:
        asked = record["config"][key]
        assert asked == ({k: sent[key][k] for k in asked} if isinstance(asked, dict) else sent[key])
    assert sent["student"]["layers"] == 2
    assert sent["logger"]["mode"] == "offline" and sent["bank"] == "off"
    marks = {"section": sent["section"], "method": sent["row"], "task": sent["column"]}
    assert marks == cells.place(record["config"])
    assert "host" not in run


@pytest.mark.runs
def test_real_wandb_has_every_epoch_with_terms_scores_and_layers(offline: Any) -> None:
    record, kept, _ = offline[1]
    rows = pd.read_csv(offline[0] / "results" / record["folder"] / "history.csv", dtype=str)
    items = [history["item"] for history in of_kind(kept, "history")]
    assert [item["epoch"] for item in items] == [1, 2] and len(rows) == 2
    for item, row in zip(items, rows.to_dict("records"), strict=True):
        assert {str(key) for key in row} <= item.keys()
        for key in ("loss/ce", "loss/kd", "loss/rail", "loss/total", "dev/accuracy"):
            assert item[key] == pytest.approx(float(row[key]))
        assert item["layers/1"] == int(row["layers"])
    metrics = of_kind(kept, "metric")
    assert {"glob_name": "*", "step_metric": "epoch"}.items() <= metrics[-1].items()


@pytest.mark.runs
def test_real_wandb_has_the_record_as_summary(offline: Any) -> None:
    record, *runs = offline[1]
    found: list[dict[str, Any]] = []
    for run in runs:
        found.append({})
        for summary in of_kind(run, "summary"):
            found[-1] |= summary["update"]
    measured = {k: v for k, v in record.items() if k in ("scores", "seconds", "status", "teacher")}
    for key, value in flat(measured).items():
        assert found[0][key] == (pytest.approx(value) if isinstance(value, float) else value)
    assert "scores/ood/demo_sentiment_ood/accuracy" in found[0]
    assert found[1]["reason"] == "ZeroDivisionError: by nought"


@pytest.mark.runs
def test_real_wandb_has_the_student_where_that_was_asked_for(offline: Any) -> None:
    folder, (record, asked, not_asked) = offline
    (artifact,) = of_kind(asked, "artifact")
    files = {file["path"]: Path(file["local_path"]) for file in artifact["manifest"]["contents"]}
    assert {"config.json", "model.safetensors", "README.md"} <= files.keys()
    run = folder / "results" / record["folder"]
    assert artifact["name"] == f"student-{run.name}"
    assert not (run / "student").exists()  # keep_student=none; the mirror has links of its own
    assert all(path.is_file() for path in files.values())
    assert of_kind(not_asked, "artifact") == []


@pytest.mark.runs
def test_real_wandb_keeps_no_key(offline: Any) -> None:
    files = [path for path in offline[0].rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.runs
def test_real_wandb_without_a_key_is_noticed_before_the_sweep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settled, _ = wandb_group.prepare([job(mode="auto"), job(mode="auto")], [])
    assert settled.run.logger.mode == "offline"
    (warning,) = caplog.records
    assert "wandb login" in warning.getMessage()


def test_a_server_that_is_not_there_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        wandb_process.reach(f"http://127.0.0.1:{port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        wandb_process.reach("http://nowhere.invalid")  # the proxy knows the way
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1 cannot be reached"):
        wandb_process.reach("http://nowhere.invalid")
