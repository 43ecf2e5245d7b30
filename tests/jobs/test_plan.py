"""What a command line plans: one source of truth for what is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import toys

from ilkd_bench.jobs import plan as planning
from ilkd_bench.jobs.job import Job
from ilkd_bench.types import BadInput


def plan(folder: Path, *words: str) -> list[Job]:
    return planning.plan([*words, f"results_dir={folder}/results", f"cache_dir={folder}/cache"])


def test_the_words_of_a_job_select_it_alone(tmp_path: Path) -> None:
    jobs = plan(tmp_path, "-m", "method=pkd,alp", "seed=0,1", "teacher.allow_weak=true", "lr=1e-4")
    assert len({job.id for job in jobs}) == 4
    for job in jobs:
        (again,) = planning.plan(job.words)
        assert again.id == job.id


def test_a_preset_is_spelt_out_and_typed_keys_replace_what_it_sweeps(tmp_path: Path) -> None:
    rows = "\n".join(
        f'{{"sentence1": "a {n}", "sentence2": "b", "sentence": "a {n}", "label": {n}}}'
        for n in (0, 1)
    )
    tasks = ("rte", "cola", "mrpc", "stsb")
    for task in tasks:
        for split in ("train", "validation"):
            path = tmp_path / "data" / task / f"{split}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rows)
    words = ["+sweeps=minilm_small", f"data_dir={tmp_path}/data", "teacher=tiny12", "student=tiny6"]
    jobs = plan(tmp_path, *words, "seed=7", "method=pkd,alp")
    found = {(job.run.task.name, job.run.method.name) for job in jobs}
    assert found == {(t, m) for t in tasks for m in ("pkd", "alp")}
    assert {job.run.seed for job in jobs} == {7}
    assert len(jobs) == 8
    assert not any(word.startswith("+sweeps") for word in jobs[0].words)


def test_a_dictionary_is_merged_as_hydra_does(tmp_path: Path) -> None:
    (job,) = plan(tmp_path, "method=pkd", "method.weights={ce: 0.25}")
    default = toys.method_settings("pkd")["weights"]
    assert job.run.method.weights == default | {"ce": 0.25}


def test_other_domains_can_be_left_out(tmp_path: Path) -> None:
    (job,) = plan(tmp_path, "task.ood=null")
    assert job.run.task.ood == {}
    assert set(job.run.identity["data"]) == {"teacher", "train", "dev", "test"}


@pytest.mark.parametrize("key", ["results_dir", "cache_dir"])
@pytest.mark.parametrize("value", ["null", "FILE"])
def test_a_folder_that_cannot_be_written_is_refused(key: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "FILE"
    file.write_text("")
    with pytest.raises(BadInput, match=f"{key}="):
        planning.require_writable(planning.plan([f"{key}={file if value == 'FILE' else value}"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.text_columns=sentence"], "a list of one or two columns"),
        (["task.text_columns=[a,b,c]"], "a list of one or two columns"),
        (["task.labels=[no]"], "two or more different names"),
        (["task.labels=[no,no]"], "two or more different names"),
        (["trainer.accelerator=tpu"], "one of auto, cpu, gpu"),
        (["teacher.name=../up"], "a word of letters"),
    ],
)
def test_values_are_checked_before_anything_runs(
    words: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        plan(tmp_path, *words)


def test_only_a_named_launcher_leaves_the_process() -> None:
    assert not planning.uses_other_launcher(["-m", "seed=0,1"])
    assert not planning.uses_other_launcher(["hydra/launcher=basic"])
    assert planning.uses_other_launcher(["hydra/launcher=joblib", "-m"])


def test_a_plan_alone_makes_no_folder_of_results(tmp_path: Path) -> None:
    planning.plan([f"results_dir={tmp_path}/results", f"cache_dir={tmp_path}/cache"])
    assert not (tmp_path / "results").exists()
