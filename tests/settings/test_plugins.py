"""Methods, tasks and models outside the package: what is found, and what is refused."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import printed
import pytest

from ilkd_bench.jobs import plan
from ilkd_bench.records.cells import place
from ilkd_bench.settings import groups, plugins
from ilkd_bench.types import BadInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return printed.plugins(tmp_path / "plugins")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Without `monkeypatch`, whose undoing would bring back the folder that a test has set."""
    before = os.environ.pop(groups.PLUGINS, None)
    path = list(sys.path)
    yield
    plugins.use(None)
    sys.path[:] = path
    if before is not None:
        os.environ[groups.PLUGINS] = before


def write(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text, encoding="utf-8")


def refused(*words: str) -> str:
    with pytest.raises(BadInput) as error:
        plan.plan(words)
    return str(error.value)


# ------------------------------------------------------------------------------- what is found


def test_a_method_of_the_folder_is_planned(folder: Path) -> None:
    (job,) = plan.plan([f"plugins={folder}", "method=gap"])
    assert job.run.method.weights == {"ce": 0.5, "kd": 0.5, "gap": 0.1}
    assert job.words == (f"plugins={folder}", "method=gap")
    assert plan.plan(job.words)[0].id == job.id


def test_the_environment_names_the_folder_too_and_the_words_of_a_run_say_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (typed,) = plan.plan([f"plugins={folder}", "method=gap"])
    monkeypatch.setenv(groups.PLUGINS, str(folder))
    (job,) = plan.plan(["method=gap"])
    assert job.id == typed.id
    assert job.words == ("method=gap", f"plugins={folder}")


def test_a_folder_with_a_quote_in_its_name_repeats(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = folder.rename(folder.with_name("my 'own' (plugins)"))
    monkeypatch.setenv(groups.PLUGINS, str(odd))
    (job,) = plan.plan(["method=gap"])
    monkeypatch.delenv(groups.PLUGINS)
    assert plan.plan(job.words)[0].id == job.id
    assert os.environ[groups.PLUGINS] == str(odd)


def test_where_it_lies_is_no_part_of_a_run(folder: Path) -> None:
    (job,) = plan.plan([f"plugins={folder}", "method=gap"])
    moved = folder.rename(folder.with_name("moved"))
    assert plan.plan([f"plugins={moved}", "method=gap"])[0].id == job.id
    (plain,) = plan.plan([f"plugins={moved}", "method=pkd"])
    assert plan.plan(["plugins=null", "method=pkd"])[0].id == plain.id


def test_patterns_and_presets_find_what_the_folder_has(folder: Path) -> None:
    params = "hydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      method: gap,pkd\n"
    write(folder, "sweeps/mine.yaml", f"# @package _global_\n{params}")
    jobs = plan.plan([f"plugins={folder}", "+sweeps=mine"])
    assert [job.run.method.name for job in jobs] == ["gap", "pkd"]
    jobs = plan.plan(["-m", f"plugins={folder}", "method=glob(*pkd)"])
    assert {job.run.method.name for job in jobs} == {"far_pkd", "pkd"}


def test_a_variant_is_its_base_with_other_values(folder: Path) -> None:
    (job,) = plan.plan([f"plugins={folder}", "method=far_pkd"])
    base = groups.defaults("method", "pkd")
    settings = job.run.method.model_dump(by_alias=True)
    assert settings == base | {"name": "far_pkd", "temperature": 5}
    assert groups.defaults("method", "far_pkd") == settings


def test_a_student_of_the_folder_is_an_assistant(folder: Path) -> None:
    write(folder, "conf/student/tiny9.yaml", "defaults: [tiny6]\nname: tiny9\nlayers: 9\n")
    (job,) = plan.plan([f"plugins={folder}", "method=takd", "method.assistants=tiny9"])
    assert job.run.identity["assistants"]["students"]["tiny9"]["layers"] == 9


def test_a_task_of_the_folder_with_its_other_domain(folder: Path, tmp_path: Path) -> None:
    doors, other = printed.texts(printed.EXTENDING, "A task", "yaml")
    write(folder, "conf/task/doors.yaml", doors)
    write(folder, "conf/task/doors_ood.yaml", other)
    for name in ("doors/train", "doors/validation", "doors_ood/test"):
        write(tmp_path, f"rows/{name}.jsonl", '{"a": "x", "b": "y", "label": "yes"}\n')
    (job,) = plan.plan([f"plugins={folder}", "task=doors", f"data_dir={tmp_path / 'rows'}"])
    assert job.run.task.ood["doors_ood"]["splits"] == {"test": "test"}


def test_the_row_of_a_table_says_what_differs_from_its_yaml(folder: Path) -> None:
    (job,) = plan.plan([f"plugins={folder}", "method=gap", "method.temperature=3"])
    assert place(job.run.identity)["method"] == "gap (temperature=3)"
    plugins.use(None)
    assert "weights" in place(job.run.identity)["method"]


def test_another_folder_brings_its_own_python(folder: Path) -> None:
    other = Path(shutil.copytree(folder, folder.with_name("other")))
    for where in (folder, other, folder):
        plugins.use(str(where))
        assert sys.modules.get("gap") is None
        kind = groups.resolve("gap.Gap")
        assert Path(sys.modules[kind.__module__].__file__ or "").parent == where


# ------------------------------------------------------------------------------ what is refused


def test_the_nearest_choice_is_told(folder: Path) -> None:
    told = refused(f"plugins={folder}", "method=gab")
    assert "did you mean gap?" in told and "far_pkd, finetune, gap, minilm" in told
    assert "gap" not in refused("plugins=null", "method=gab")


def test_no_folder(tmp_path: Path) -> None:
    told = refused(f"plugins={tmp_path / 'none'}")
    assert told.startswith(f"plugins={tmp_path / 'none'}: there is no folder")


def test_two_folders(folder: Path) -> None:
    assert "one folder" in refused("-m", f"plugins={folder},{folder}")


def test_a_yaml_without_python(folder: Path) -> None:
    (folder / "gap.py").unlink()
    told = refused(f"plugins={folder}")
    assert "gap.yaml: _target_ is gap.Gap, and there is no gap.py in" in told
    assert str(folder) not in sys.path


def test_a_built_in_name(folder: Path) -> None:
    write(folder, "conf/method/pkd.yaml", "name: pkd\n")
    assert "there is a built-in method named pkd" in refused(f"plugins={folder}")


def test_the_name_of_an_installed_module(folder: Path) -> None:
    (folder / "gap.py").rename(folder / "random.py")
    write(folder, "conf/method/gap.yaml", "name: gap\n_target_: random.Gap\n")
    assert "random.py has the name of an installed module" in refused(f"plugins={folder}")


@pytest.mark.parametrize("text", ["temperature: 3\n", "name: other\n", "- name\n"])
def test_a_yaml_that_does_not_say_its_name(folder: Path, text: str) -> None:
    write(folder, "conf/method/mine.yaml", text)
    assert "mine.yaml must say name: mine" in refused(f"plugins={folder}")


def test_a_yaml_that_is_none(folder: Path) -> None:
    write(folder, "conf/method/mine.yaml", "name: [\n")
    assert "mine.yaml cannot be read" in refused(f"plugins={folder}")


def test_a_group_that_there_is_not(folder: Path) -> None:
    (folder / "conf" / "methods").mkdir()
    assert "Allowed are method, student, task, teacher" in refused(f"plugins={folder}")


def test_the_results_side_says_that_the_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(groups.PLUGINS, str(tmp_path / "none"))
    with pytest.raises(BadInput, match="there is no folder"):
        groups.defaults("method", "gone")
