"""`lr=best batch_size=best` and the protocol that is made of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import toys

from ilkd_bench import run
from ilkd_bench.jobs import plan
from ilkd_bench.plumbing import processes
from ilkd_bench.records.read import write_record
from ilkd_bench.records.record import Measured
from ilkd_bench.training import train
from ilkd_bench.types import BadInput

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

PAIR = ("lr", "batch_size")
TEACHER = {"dev": {"accuracy": 0.875, "n": 64}}


def written(root: Path, score: float, *words: str, status: str = "done") -> None:
    """Write the record of one run by hand."""
    (job,) = plan.plan(toys.small(root, "method=pkd", *words))
    scores = {"dev": {"accuracy": score, "n": 64}, "test": {"accuracy": 1 - score, "n": 64}}
    measured = {"scores": scores, "monitor": "dev/accuracy", "teacher": TEACHER}
    write_record(job.folder, job.record_with(status=status, **measured))


def best(root: Path, *words: str) -> tuple[float, int]:
    (job,) = plan.plan(toys.small(root, "method=pkd", *words))
    return job.run.lr, job.run.batch_size


BEST = ("lr=best", "batch_size=best", "seed=7")


# ----------------------------------------------------------------------------- which one is chosen


@pytest.mark.runs
def test_the_highest_dev_score_chooses(tmp_path: Path) -> None:
    for score, lr, size in ((0.5, 1e-3, 8), (0.75, 2e-3, 8), (0.7, 1e-3, 16), (0.6, 2e-3, 16)):
        written(tmp_path, score, f"lr={lr}", f"batch_size={size}")
    assert best(tmp_path, *BEST) == (2e-3, 8)
    assert best(tmp_path, "lr=best", "batch_size=16", "seed=7") == (1e-3, 16)
    assert best(tmp_path, "lr=1e-3", "batch_size=best", "seed=7") == (1e-3, 16)


@pytest.mark.runs
def test_the_mean_over_seeds_chooses(tmp_path: Path) -> None:
    for seed, one, other in ((0, 0.9, 0.7), (1, 0.4, 0.7)):
        written(tmp_path, one, "lr=1e-3", f"seed={seed}")
        written(tmp_path, other, "lr=2e-3", f"seed={seed}")
    assert best(tmp_path, "lr=best", "seed=7")[0] == 2e-3


@pytest.mark.runs
def test_settings_with_fewer_seeds_do_not_take_part(tmp_path: Path) -> None:
    for seed in (0, 1):
        written(tmp_path, 0.6, "lr=1e-3", f"seed={seed}")
    written(tmp_path, 0.9, "lr=2e-3", "seed=0")
    assert best(tmp_path, "lr=best", "seed=7")[0] == 1e-3


@pytest.mark.runs
@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 2])))
def test_ties_go_to_the_smaller_rate_and_then_the_smaller_batch(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """Whichever came first on the disk."""
    settings = [("1e-3", 16), ("1e-3", 8), ("2e-3", 8)]
    for number in order:
        lr, size = settings[number]
        written(tmp_path, 0.75, f"lr={lr}", f"batch_size={size}")
    assert best(tmp_path, *BEST) == (1e-3, 8)


@pytest.mark.runs
@pytest.mark.parametrize("status", ["failed", "running", "skipped"])
def test_only_whole_runs_of_the_same_cell_choose(status: str, tmp_path: Path) -> None:
    written(tmp_path, 0.9, "lr=3e-3", status=status)
    written(tmp_path, 0.9, "lr=4e-3", "epochs=2")
    written(tmp_path, 0.9, "lr=5e-3", "method.weights={ce: 0.3}")
    with pytest.raises(BadInput, match="none can be chosen"):
        best(tmp_path, "lr=best")
    written(tmp_path, 0.1, "lr=6e-3")
    assert best(tmp_path, "lr=best")[0] == 6e-3


def test_a_damaged_record_does_not_choose(tmp_path: Path) -> None:
    written(tmp_path, 0.9, "lr=1e-3")
    (path,) = (tmp_path / "results").rglob("record.json")
    path.write_text(path.read_text()[:-40])
    written(tmp_path, 0.1, "lr=2e-3")
    assert best(tmp_path, "lr=best")[0] == 2e-3


@pytest.mark.runs
def test_each_method_has_its_own_best(tmp_path: Path) -> None:
    written(tmp_path, 0.6, "lr=1e-3")
    written(tmp_path, 0.5, "lr=2e-3")
    written(tmp_path, 0.5, "lr=1e-3", "method=alp")
    written(tmp_path, 0.6, "lr=2e-3", "method=alp")
    words = ["-m", *toys.small(tmp_path, "method=pkd,alp", "lr=best", "seed=1,2")]
    found = [(j.run.method.name, j.run.seed, j.run.lr) for j in plan.plan(words)]
    assert found == [("pkd", 1, 1e-3), ("pkd", 2, 1e-3), ("alp", 1, 2e-3), ("alp", 2, 2e-3)]


@pytest.mark.runs
def test_a_run_at_the_best_is_the_run_with_that_number(tmp_path: Path) -> None:
    written(tmp_path, 0.6, "lr=1e-3", "batch_size=8")
    (job,) = plan.plan(toys.small(tmp_path, "method=pkd", *BEST))
    (same,) = plan.plan(toys.small(tmp_path, "method=pkd", "lr=0.001", "batch_size=8", "seed=7"))
    assert job.id == same.id and job.folder == same.folder
    assert "lr=0.001" in job.words and "batch_size=8" in job.words
    assert not [word for word in job.words if "best" in word.replace(str(tmp_path), "")]
    (again,) = plan.plan(job.words)
    assert again.id == job.id


# --------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr=best"], r"lr=best: no run of method=rail_l on task=demo_sentiment .* is done"),
        (["lr=best", "batch_size=best"], r"lr=best batch_size=best: no run"),
        (["epochs=best"], "epochs=best: allowed is"),
        (["lr=Best"], "lr=Best: allowed is"),
        (["protocol=select"], "protocol=select: allowed is one of full, select_then_repeat"),
        (["protocol=select_then_repeat", "lr=1e-3,2e-3"], "needs several seeds and several"),
        (["protocol=select_then_repeat", "seed=0,1"], "needs several seeds and several lr"),
        (["protocol=select_then_repeat"], "needs several seeds and several lr or batch_size"),
    ],
)
def test_what_cannot_be_chosen_is_refused(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        plan.plan(["-m", *toys.small(tmp_path, *words)])


@pytest.mark.runs
def test_the_protocol_is_refused_on_other_launchers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["-m", "protocol=select_then_repeat", "lr=1e-3,2e-3", "seed=0,1"]
    assert run.main([*toys.small(tmp_path, *words), "hydra/launcher=joblib"]) == 2
    err = capfd.readouterr().err
    assert "Hydra's default launcher only" in err and "lr=best" in err


# --------------------------------------------------------------------------------- select, repeat


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int, int]]:
    """The runs (learning rate, batch size, seed) whose training was done, which does nothing."""
    done: list[tuple[float, int, int]] = []

    def alone(work: Any, *arguments: Any) -> int:
        try:
            work(*arguments)
        except SystemExit as error:
            return int(error.code or 0)
        return 0

    def measure(run: Any, folder: Path) -> Measured:
        done.append((run.lr, run.batch_size, run.seed))
        if run.lr > 0.5:
            raise FloatingPointError("the loss is not finite")
        score = {(1e-3, 8): 0.5, (1e-3, 16): 0.6, (2e-3, 8): 0.8, (2e-3, 16): 0.7}
        measured = {
            "scores": {"dev": {"accuracy": score[run.lr, run.batch_size], "n": 4}},
            "monitor": "dev/accuracy",
            "teacher": TEACHER,
            "seconds": {"train": 1.0, "teacher": 0.5, "evaluate": 0.25},
        }
        return Measured.model_validate(measured)

    monkeypatch.setattr(processes, "alone", alone)
    monkeypatch.setattr(train, "train", measure)
    return done


REPEAT = ("-m", "protocol=select_then_repeat", "lr=1e-3,2e-3", "batch_size=8,16", "seed=0,1,2")


@pytest.mark.runs
def test_the_grid_has_one_seed_and_the_others_run_at_its_best(
    tmp_path: Path, trained: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    words = toys.small(tmp_path, "method=pkd", *REPEAT)
    assert run.main(words) == 0
    grid = [(lr, size, 0) for lr in (1e-3, 2e-3) for size in (8, 16)]
    assert trained == [*grid, (2e-3, 8, 1), (2e-3, 8, 2)]
    assert "6 runs: 6 done" in capfd.readouterr().out
    found = list(toys.records(tmp_path / "results"))
    assert len(found) == 6
    for record in found:
        config = record["config"]
        assert all(isinstance(config[key], int | float) for key in PAIR)
        assert f"lr={config['lr']}" in [
            w.replace("1e-3", "0.001").replace("2e-3", "0.002") for w in record["argv"]
        ]
        assert f"seed={config['seed']}" in record["argv"]
        assert not {f"{key}=best" for key in PAIR} & set(record["argv"])
        (again,) = plan.plan(record["argv"])
        assert again.id == record["id"]

    assert run.main(words) == 0
    assert len(trained) == 6, "typing it again skips everything"
    out, err = capfd.readouterr()
    assert "6 runs: 6 done" in out and err.count("done before: ") == 6


@pytest.mark.runs
def test_a_better_setting_of_later_seeds_does_not_unmake_the_choice(
    tmp_path: Path, trained: list[Any]
) -> None:
    """The best has the most seeds from then on, as in the tables."""
    words = toys.small(tmp_path, "method=pkd", *REPEAT)
    assert run.main(words) == 0
    assert run.main([*words[:-1], "seed=0,1,2,3"]) == 0
    assert trained[-1] == (2e-3, 8, 3) and len(trained) == 7


def test_the_same_seed_twice_is_one_run(
    tmp_path: Path, trained: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    words = toys.small(tmp_path, "method=pkd", *REPEAT[:-1], "seed=0,0,1")
    assert run.main(words) == 0
    assert len(trained) == 5
    assert "5 runs: 5 done" in capfd.readouterr().out


@pytest.mark.runs
def test_a_failed_setting_is_not_chosen_and_counts_as_failed(
    tmp_path: Path, trained: list[Any]
) -> None:
    words = ["-m", "protocol=select_then_repeat", "lr=1e-3,0.9", "batch_size=8", "seed=0,1"]
    assert run.main(toys.small(tmp_path, "method=pkd", *words)) == 1
    assert trained == [(1e-3, 8, 0), (0.9, 8, 0), (1e-3, 8, 1)]


@pytest.mark.runs
def test_where_all_settings_fail_none_is_repeated(
    tmp_path: Path, trained: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["-m", "protocol=select_then_repeat", "lr=0.8,0.9", "batch_size=8", "seed=0,1"]
    code = run.main(toys.small(tmp_path, "method=pkd", *words))
    assert code != 0
    assert len(trained) == 2
    out, err = capfd.readouterr()
    assert "2 runs: 2 failed" in out and "none can be chosen" in err


@pytest.mark.runs
def test_a_range_may_give_the_seeds(tmp_path: Path) -> None:
    written(tmp_path, 0.5, "lr=1e-3")
    words = ["protocol=select_then_repeat", "lr=1e-3,2e-3", "seed=range(0,3)"]
    words = ["-m", *toys.small(tmp_path, "method=pkd", *words)]
    first = plan.plan(words)
    assert [(j.run.lr, j.run.seed) for j in first] == [(1e-3, 0), (2e-3, 0)]
    others = plan.plan(words, repeat=True)
    assert [(j.run.lr, j.run.seed) for j in others] == [(1e-3, 1), (1e-3, 2)]
