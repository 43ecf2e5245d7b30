"""Records, teachers and assistants of schema 1 are what they were: read, and found again.

`tests/schema_1` holds seven runs of the demo pair that schema 1 recorded, the tables that were made
of them then, one run whose precision was typed and one that allowed weak teachers.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ilkd_bench import tables
from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import Job
from ilkd_bench.jobs.sweep import Sweep
from ilkd_bench.plumbing import hardware, processes
from ilkd_bench.plumbing.files import write_json
from ilkd_bench.records.find import find
from ilkd_bench.records.folders import run_folder, run_folders
from ilkd_bench.records.read import load_records, read_record, write_record
from ilkd_bench.records.record import Record
from ilkd_bench.settings.identity import assistant_key, former, run_id, teacher_key
from ilkd_bench.training import make_teacher

OLD = Path(__file__).parent.parent / "schema_1"
AS_USUAL = ("-m", "method=rail_l,pkd,alp", "seed=0,1")
LATER = ("*/*/pkd/s2-*", "*/*/pkd/s3-*")
"""Of other settings as schema 1 saw them; not in its tables."""


@pytest.fixture(autouse=True)
def slow_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the processor where they were run: `auto` was 32 bit, and still is."""
    monkeypatch.setattr(hardware, "fast_bfloat16", lambda: False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(OLD / "results", tmp_path / "results")
    return tmp_path


def planned(root: Path, *words: str) -> list[Job]:
    where = ("trainer.accelerator=cpu", f"results_dir={root}/results", f"cache_dir={root}/cache")
    return plan.plan([*words, *where])


def record(method: str, seed: int) -> dict[str, Any]:
    (path,) = OLD.glob(f"results/runs/*/*/{method}/s{seed}-*/record.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_tables_are_what_they_were(root: Path) -> None:
    """But for the precision, which is named, and the section's name, a hash of the settings.

    The bootstrap draws from the section's name, so what it gives is another draw.
    """
    for pattern in LATER:
        for folder in (root / "results/runs").glob(pattern):
            shutil.rmtree(folder)
    assert tables.main(["--results-dir", str(root / "results")]) == 0
    made = root / "results/tables"
    text = (OLD / "overview.md").read_text(encoding="utf-8")
    assert (made / "overview.md").read_text(encoding="utf-8") == text.replace(
        "precision auto", "precision 32-true"
    )
    drawn = ["section", "low", "high"]
    for name, columns in (("summary", drawn), ("comparisons", ["section", "p_examples"])):
        then, now = (pd.read_csv(f / f"{name}.csv") for f in (OLD, made))
        pd.testing.assert_frame_equal(then.drop(columns=columns), now.drop(columns=columns))


def test_what_schema_1_kept_apart_and_measured_alike_is_one_section(root: Path) -> None:
    """A typed precision and the same one by `auto`; weak teachers allowed, and none there."""
    assert tables.main(["--results-dir", str(root / "results")]) == 0
    summary = pd.read_csv(root / "results/tables/summary.csv")
    assert summary["section"].nunique() == 1
    assert set(summary[summary["method"] == "pkd"]["n"]) == {4}


def test_a_repeated_sweep_runs_nothing_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise AssertionError("a run was begun")

    monkeypatch.setattr(processes, "alone", refuse)
    before = run_folders(root / "results")
    for words in (
        AS_USUAL,
        ("method=takd",),
        ("method=pkd", "seed=2"),
        ("method=pkd", "seed=2", "precision=32-true"),
        ("method=pkd", "seed=3"),
        ("method=pkd", "seed=3", "teacher.allow_weak=true"),
    ):
        jobs = planned(root, *words)
        sweep = Sweep(jobs)
        sweep.carry_out()
        assert set(sweep.states.values()) == {"done"} and len(sweep.states) == len(jobs)
    assert run_folders(root / "results") == before


def test_another_precision_is_another_run(root: Path) -> None:
    (job,) = planned(root, "method=pkd", "precision=bf16-mixed")
    assert not job.folder.exists()
    (same,) = planned(root, "method=pkd")
    assert same.folder.name == "s0-f94bf463a3" and same.id != "f94bf463a3"


def test_a_record_is_read_with_todays_settings_and_its_own_id(root: Path) -> None:
    (job,) = planned(root, "method=takd")
    found = read_record(job.folder)
    assert found is not None
    assert found.id == "7b55cffaed" and run_id(found.config) == job.id
    assert found.config == job.run.identity


def test_a_run_that_both_schemas_recorded_counts_once_and_is_named(root: Path) -> None:
    (job,) = planned(root, "method=takd")
    old = job.folder
    found = read_record(old)
    assert found is not None
    new = run_folder(root / "results", job.run.identity, job.id)
    assert new != old
    write_record(new, job.record_with(status="done", **measured(found)))
    stored = load_records(root / "results")
    first, second = sorted(f.relative_to(root / "results").as_posix() for f in (old, new))
    assert stored.flaws == [f"{second}: not used, it is the same run as {first}"]
    assert second not in [record.folder for record in stored.records]


def measured(record: Record) -> dict[str, Any]:
    """What a record has of the run's outcome."""
    content = record.content()
    return {key: content[key] for key in ("scores", "monitor", "teacher")}


def test_teachers_and_assistants_have_their_old_names(root: Path) -> None:
    (job,) = planned(root, "method=takd")
    facts = record("takd", 0)["teacher"]
    (assistant,) = facts["assistants"]
    keys = {teacher_key(old) for old in former(job.run)}
    names = {assistant_key(old, assistant["name"], 1) for old in former(job.run)}
    assert facts["key"] in keys and assistant["key"] in names
    home = make_teacher._folder(job.run, teacher_key)
    assert home.name == teacher_key(job.run.identity) not in keys
    (root / "cache/teachers" / facts["key"]).mkdir(parents=True)
    assert make_teacher._folder(job.run, teacher_key).name == facts["key"]
    home.mkdir()
    assert make_teacher._folder(job.run, teacher_key) == home


def test_a_teacher_made_with_auto_serves_only_what_auto_was_here(root: Path) -> None:
    facts = record("pkd", 0)["teacher"]
    (root / "cache/teachers" / facts["key"]).mkdir(parents=True)
    (here,) = planned(root, "method=pkd", "seed=8")
    (other,) = planned(root, "method=pkd", "seed=8", "precision=16-mixed")
    assert make_teacher._folder(here.run, teacher_key).name == facts["key"]
    assert make_teacher._folder(other.run, teacher_key).name == teacher_key(other.run.identity)


def test_a_teacher_in_32_bit_serves_students_in_bfloat16(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where `auto` is bfloat16 now: it was 32 bit when the teacher was made."""
    monkeypatch.setattr(hardware, "fast_bfloat16", lambda: True)
    (run,) = planned(root, "method=takd", "seed=8")
    assert run.run.precision == "bf16-mixed"
    facts = record("takd", 0)["teacher"]
    (assistant,) = facts["assistants"]
    for name in (facts["key"], assistant["key"]):
        (root / "cache/teachers" / name).mkdir(parents=True)
    named = partial(assistant_key, name=assistant["name"], number=1)
    assert make_teacher._folder(run.run, teacher_key).name == facts["key"]
    assert make_teacher._folder(run.run, named).name == assistant["key"]
    home = make_teacher._folder(run.run.but(precision="32-true"), teacher_key)
    assert home.name == facts["key"]


def write(root: Path, method: str, seed: int, name: str, **changes: Any) -> dict[str, Any]:
    """Another record of schema 1: one of those there with other settings and another state."""
    content = record(method, seed)
    config = content["config"] | changes.pop("config", {})
    content |= {"config": config, "id": run_id(config)} | changes
    if content["status"] != "done":
        for key in content.keys() - {"schema", "id", "status", "reason", "argv", "config"}:
            del content[key]
    folder = root / "results/runs/demo_sentiment/tiny12-tiny6" / method / f"{name}-{content['id']}"
    write_json(folder / "record.json", content)
    return content


def test_what_did_not_get_done_stays_in_the_section_of_the_rest(root: Path) -> None:
    """Its record does not say what `auto` was."""
    write(root, "takd", 0, "s5", config={"seed": 5}, status="skipped", reason="it cannot be")
    assert tables.main(["--results-dir", str(root / "results")]) == 0
    text = (root / "results/tables/overview.md").read_text(encoding="utf-8")
    assert text.count("## tiny12 -> tiny6") == 1 and "precision auto" not in text
    assert "takd on demo_sentiment: it cannot be" in text


@pytest.mark.parametrize("name", ["s0-a", "s9"])  # before and after the other by path
def test_of_two_that_are_one_run_the_one_that_is_done_counts(root: Path, name: str) -> None:
    old = record("pkd", 2)["config"]  # its precision was typed, so both say the same
    weak = {"teacher": old["teacher"] | {"allow_weak": True}}
    failed = write(root, "pkd", 2, name, config=weak, status="failed", reason="no memory")
    stored = load_records(root / "results")
    ids = {found.id for found in stored.records}
    assert "0b5e29197d" in ids and failed["id"] not in ids
    (flaw,) = stored.flaws
    assert failed["id"] in flaw and "it is the same run as" in flaw and "0b5e29197d" in flaw
    (job,) = planned(root, "method=pkd", "seed=2", "precision=32-true", "teacher.allow_weak=true")
    assert job.is_done(read_record(job.folder))


def test_a_run_that_goes_on_is_found_by_both_its_ids(root: Path) -> None:
    begun = write(root, "pkd", 0, "s7", config={"seed": 7}, status="running")
    (job,) = planned(root, "method=pkd", "seed=7")
    assert job.folder.name == f"s7-{begun['id']}"
    write_record(job.folder, job.record)
    for typed in (begun["id"], job.id):
        assert find(typed, root / "results") == job.folder
    (other,) = planned(root, "method=pkd", "seed=7", "precision=bf16-mixed")
    assert other.folder != job.folder, "whoever broke off did so in another precision"


@pytest.mark.parametrize("labels", [["0", "1"], ["0.5", "1.5"], ["True", "no"], ["01", "1"]])
def test_label_names_are_found_as_they_may_have_been_typed(root: Path, labels: list[str]) -> None:
    (job,) = planned(root, "method=pkd")
    run = job.run.but(task=replace(job.run.task, labels=labels, ood={}))
    typed = {"0": 0, "1": 1, "0.5": 0.5, "1.5": 1.5, "True": True}
    wanted = [[typed.get(label, label) for label in labels], labels]
    assert all(any(old["task"]["labels"] == one for old in former(run)) for one in wanted)
