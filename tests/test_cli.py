"""The two commands as a user types them, each in its own process, on the shrunken demo pair."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import toys

METHODS, SEEDS = ("rail_l", "pkd"), (0, 1)
SWEEP = ("-m", *toys.SMALL, "method=rail_l,pkd", "seed=0,1")
OURS = re.compile(
    r"fine-tuning the teacher |building the bank |waiting: |done before: |\d+ runs: |records: "
    r"|demo_sentiment, tiny12 -> tiny6, |  (failed|skipped|done): "
    r"|\d+ runs, \d+ of them to do(, \d+ at once)?; "
)


def command(folder: Path, module: str, *words: str) -> dict[str, Any]:
    """Run `python -m ilkd_bench.MODULE WORDS` in a folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    result = subprocess.run(
        [sys.executable, "-m", f"ilkd_bench.{module}", *words],
        cwd=folder,
        env=environment | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return {"code": result.returncode, "out": result.stdout, "err": result.stderr}


def sweep_and_table(folder: Path) -> dict[str, Any]:
    return {"run": command(folder, "run", *SWEEP), "tables": command(folder, "tables")}


@pytest.fixture(scope="session")
def swept(once: Any) -> tuple[Path, dict[str, Any]]:
    """The folder after the two commands, and what they said. Not to be written to."""
    return once("cli", sweep_and_table)


@pytest.fixture
def copy(swept: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(swept[0], folder)
    return folder


def records(folder: Path) -> dict[tuple[str, int], tuple[Path, dict[str, Any]]]:
    found = {}
    for path in (folder / "results/runs").rglob("record.json"):
        record = json.loads(path.read_text())
        key = record["config"]["method"]["name"], record["config"]["seed"]
        assert key not in found
        found[key] = path.parent, record
    return found


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted((folder / "results/runs").rglob("*"))
        if path.is_file()
    }


def without_times(run: Path) -> tuple[Any, ...]:
    """All that a run measured: scores, history, predictions, weights."""
    record = json.loads((run / "record.json").read_text())
    for key in ("seconds", "examples_per_second", "argv", "git"):
        record.pop(key)
    record["teacher"].pop("seconds")
    history = pd.read_csv(run / "history.csv").drop(columns="seconds")
    others = {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in run.rglob("*")
        if path.suffix in (".parquet", ".safetensors")
    }
    return record, history.to_csv(), others


# ------------------------------------------------------------------------------------- the main job


def test_a_sweep_ends_with_a_record_per_run(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, said = swept
    assert said["run"]["code"] == 0, said["run"]["err"]
    found = records(folder)
    assert set(found) == {(m, s) for m in METHODS for s in SEEDS}
    for (method, seed), (run, record) in found.items():
        assert record["status"] == "done" and record["reason"] is None
        assert run == (
            folder / "results/runs/demo_sentiment/tiny12-tiny6" / method / f"s{seed}-{record['id']}"
        )
        assert set(record["scores"]) == {"dev", "test", "ood/demo_sentiment_ood"}
        for scores in record["scores"].values():
            assert scores["n"] == 64 and 0 <= scores["accuracy"] <= 1
        assert record["monitor"] == "dev/accuracy" and record["best_epoch"] == 1
        assert record["config"]["limit_train"] == record["config"]["limit_eval"] == 64
        assert record["teacher"]["dev"]["n"] == 64
        own = {word.lower() for word in record["argv"]}  # Hydra writes true as True
        assert own == {*toys.SMALL, f"method={method}", f"seed={seed}"}
        assert all(value >= 0 for value in record["seconds"].values())
        assert set(record["seconds"]) == {"setup", "teacher", "train", "evaluate"}
        assert {"torch", "transformers", "python"} <= set(record["versions"])
        assert record["device"].startswith("cpu") and record["examples_per_second"] > 0
        for name in ("history.csv", "run.log", "predictions/dev.parquet"):
            assert (run / name).is_file(), name
        assert not (run / "error.txt").exists() and not list(run.glob("*.ckpt"))
    assert len({record["teacher"]["key"] for _, record in found.values()}) == 1


def kept(folder: Path, method: str) -> int:
    """Return the seed of the student that stayed: by default one of each cell of the table."""
    (seed,) = [
        seed
        for (name, seed), (run, _) in records(folder).items()
        if name == method and (run / "student/config.json").is_file()
    ]
    return seed


@pytest.mark.parametrize("method", METHODS)
def test_the_student_that_is_best_on_dev_stays(
    method: str, swept: tuple[Path, dict[str, Any]]
) -> None:
    found = records(swept[0])
    score = {seed: found[method, seed][1]["scores"]["dev"]["accuracy"] for seed in SEEDS}
    assert score[kept(swept[0], method)] == max(score.values())


def test_the_teacher_is_fine_tuned_once(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, said = swept
    assert said["run"]["err"].count("fine-tuning the teacher tiny12") == 1
    assert len(list((folder / ".cache/teachers").glob("*/model.safetensors"))) == 1


def test_the_terminal_shows_our_own_lines_only(swept: tuple[Path, dict[str, Any]]) -> None:
    _, said = swept
    lines = (said["run"]["out"] + said["run"]["err"]).splitlines()
    assert not [line for line in lines if not OURS.match(line)]
    assert sum("tiny12 -> tiny6" in line for line in lines) == 4
    assert "4 runs: 4 done" in lines


def test_a_summary_line_has_scores_seconds_and_place(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, said = swept
    for (method, seed), (run, record) in records(folder).items():
        (line,) = [
            text
            for text in said["run"]["err"].splitlines()
            if f"tiny6, {method}, seed {seed}: " in text
        ]
        assert f"dev accuracy {record['scores']['dev']['accuracy']:.4f}" in line
        assert " s; " in line and line.endswith(str(run.relative_to(folder)))


def test_predictions_give_the_scores(swept: tuple[Path, dict[str, Any]]) -> None:
    for run, record in records(swept[0]).values():
        for split, scores in record["scores"].items():
            frame = pd.read_parquet(run / "predictions" / f"{split}.parquet")
            right = (frame["logit_1"] > frame["logit_0"]).astype(int) == frame["label"]
            assert scores["accuracy"] == pytest.approx(right.mean()), split
            assert frame["index"].is_unique and len(frame) == scores["n"]


def test_a_student_loads_in_a_pipeline_and_gives_the_label_names(
    swept: tuple[Path, dict[str, Any]],
) -> None:
    from transformers import pipeline

    run, _ = records(swept[0])["pkd", kept(swept[0], "pkd")]
    classify = pipeline("text-classification", model=str(run / "student"))
    answers = classify(["the soup was delicious .", "the soup was awful ."])
    assert all(answer["label"] in ("negative", "positive") for answer in answers)
    both = classify("the soup was awful .", top_k=None)
    assert {answer["label"] for answer in both} == {"negative", "positive"}


def test_a_student_has_a_card_with_the_facts_of_its_record(
    swept: tuple[Path, dict[str, Any]],
) -> None:
    run, record = records(swept[0])["rail_l", kept(swept[0], "rail_l")]
    card = (run / "student/README.md").read_text()
    assert card.startswith("---\n") and "language: en\n" in card
    assert "# tiny6 taught by tiny12 on demo\\_sentiment with rail\\_l" in card
    assert "**A limited run (limit_train 64, limit_eval 64)" in card
    assert f"(run {record['id']})" in card
    for split, scores in record["scores"].items():
        assert f"| {split} " in card.replace("\\_", "_") and f"| {scores['accuracy']:.4f} |" in card
    assert f"python -m ilkd_bench.run {record['argv'][0]}" in card
    assert str(swept[0]) not in card


# --------------------------------------------------------------------------------------- the table


def test_the_summary_holds_mean_deviation_and_number_of_seeds(
    swept: tuple[Path, dict[str, Any]],
) -> None:
    folder, said = swept
    assert said["tables"]["code"] == 0, said["tables"]["err"]
    table = pd.read_csv(folder / "results/tables/summary.csv")
    expected = "teacher student method task split metric lr batch_size mean std n ids".split()
    assert set(expected) <= set(table.columns)
    found = records(folder)
    for method in METHODS:
        for split in ("dev", "test", "ood/demo_sentiment_ood"):
            values = [found[method, seed][1]["scores"][split]["accuracy"] for seed in SEEDS]
            (row,) = table[
                (table["method"] == method)
                & (table["split"] == split)
                & (table["metric"] == "accuracy")
            ].to_dict("records")
            assert row["mean"] == pytest.approx(statistics.mean(values))
            assert row["std"] == pytest.approx(statistics.stdev(values), abs=1e-12)
            assert row["n"] == 2 and (row["teacher"], row["student"]) == ("tiny12", "tiny6")
            assert row["task"] == "demo_sentiment" and row["batch_size"] == 32
            assert set(re.findall(r"[0-9a-f]{10}", row["ids"])) == {
                found[method, seed][1]["id"] for seed in SEEDS
            }


def test_the_table_is_printed_marked_as_limited_and_written_as_markdown(
    swept: tuple[Path, dict[str, Any]],
) -> None:
    folder, said = swept
    text = (folder / "results/tables/overview.md").read_text()
    assert text.strip() in said["tables"]["out"]
    assert "limited" in text.lower()
    for method in METHODS:
        values = [records(folder)[method, s][1]["scores"]["dev"]["accuracy"] for s in SEEDS]
        assert re.search(rf"\| {method} .*{100 * statistics.mean(values):.1f}", text)


def test_the_table_comes_out_the_same_every_time(copy: Path) -> None:
    before = {p.name: p.read_bytes() for p in (copy / "results/tables").iterdir()}
    assert command(copy, "tables", "--results-dir", "results")["code"] == 0
    assert {p.name: p.read_bytes() for p in (copy / "results/tables").iterdir()} == before


@pytest.mark.runs
def test_a_table_of_nothing_says_what_to_run_first(tmp_path: Path) -> None:
    said = command(tmp_path, "tables")
    assert said["code"] != 0 and "Traceback" not in said["err"]
    assert "python -m ilkd_bench.run" in said["err"]


# -------------------------------------------------------------------------------- again, and wrong


def test_the_same_command_again_trains_nothing_and_changes_no_file(copy: Path) -> None:
    before = files(copy)
    said = command(copy, "run", *SWEEP)
    assert said["code"] == 0
    assert files(copy) == before
    assert said["err"].count("done before: ") == 4 and "4 runs: 4 done" in said["out"]
    assert "fine-tuning" not in said["err"]


@pytest.mark.runs
def test_a_run_by_itself_repeats_the_one_of_the_sweep_bit_for_bit(
    swept: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """In a fresh process, with other folders, a teacher of its own, and words in another order.

    All that is computed has the same shapes, on one thread of this machine.
    """
    where = [f"results_dir={tmp_path / 'other'}", f"cache_dir={tmp_path / 'cache'}"]
    seed = kept(swept[0], "rail_l")
    words = [*where, f"seed={seed}", "method=rail_l", *reversed(toys.SMALL)]
    said = command(tmp_path, "run", *words)
    assert said["code"] == 0, said["err"]
    (path,) = (tmp_path / "other/runs").rglob("record.json")
    run, record = records(swept[0])["rail_l", seed]
    assert path.parent.name == run.name == f"s{seed}-{record['id']}"
    again, first = without_times(path.parent), without_times(run)
    assert again[0] == first[0]
    assert again[1] == first[1]
    assert again[2].keys() == first[2].keys()
    assert [name for name in first[2] if again[2][name] != first[2][name]] == []


@pytest.mark.runs
def test_an_error_in_one_job_leaves_the_others_done_and_earlier_records_untouched(
    copy: Path,
) -> None:
    """A learning rate that no training survives comes first, others after it."""
    before = files(copy)
    said = command(copy, "run", "-m", *toys.SMALL, "method=vanilla", "lr=1e30,1e-4,1e-5", "seed=5")
    assert said["code"] == 1
    after = files(copy)
    assert {name: after[name] for name in before} == before
    paths = [copy / name for name in after.keys() - before.keys()]
    made = [path for path in paths if path.name == "record.json"]
    found = {record["config"]["lr"]: record for record in map(read, made)}
    assert {lr: record["status"] for lr, record in found.items()} == {
        **{1e30: "failed", 1e-4: "done", 1e-5: "done"}
    }
    assert "not finite" in found[1e30]["reason"] and "try a lower lr=" in found[1e30]["reason"]
    (trace,) = [path.read_text() for path in paths if path.name == "error.txt"]
    assert "Traceback" in trace and "not finite" in trace
    assert "Traceback" not in said["out"] + said["err"]
    assert "3 runs: 2 done, 1 failed" in said["out"]
    lines = (said["out"] + said["err"]).splitlines()
    assert not [line for line in lines if not OURS.match(line)]


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    said = command(tmp_path, "run", "method=rail_l,pkd")
    assert said["code"] == 2 and said["out"] == ""
    assert said["err"].startswith("ilkd_bench: method=rail_l,pkd gives several values: add -m")
    assert len(said["err"].splitlines()) == 1
    assert not list(tmp_path.iterdir()), "nothing was written"


@pytest.mark.runs
@pytest.mark.parametrize("module", ["run", "tables"])
def test_help_is_printed(module: str, tmp_path: Path) -> None:
    said = command(tmp_path, module, "--help")
    assert said["code"] == 0 and said["err"] == ""
    assert f"ilkd_bench.{module}" in said["out"]
    if module == "run":
        for word in ("rail_l", "tiny12", "demo_sentiment", "batch_size"):
            assert word in said["out"]
    assert not list(tmp_path.iterdir()), "nothing was written"
