"""What `_target_` may name: what YAMLs of conf/ and of plugins name, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import toys

from ilkd_bench.jobs import plan
from ilkd_bench.settings import groups, plugins
from ilkd_bench.types import BadInput


@pytest.mark.parametrize(
    "word",
    [
        "method._target_=os.system",
        "student._target_=subprocess.run",
        "teacher._target_=builtins.eval",
        "teacher._target_=ilkd_bench.plumbing.files.remove_folder",
        "+method={_target_:os.system}",
        "method={_target_:os.system}",
        "method.weights={_target_:os.system}",
        "student.dropout={_target_:os.system}",
        "hydra.launcher._target_=os.system",
        "hydra.sweeper={_target_:os.system}",
    ],
)
def test_code_that_no_yaml_names_is_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        plan.plan([*toys.small(tmp_path), word])


def test_the_message_says_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"method\._target_=os\.system: allowed is what a YAML"):
        plan.plan([*toys.small(tmp_path), "method._target_=os.system"])


def test_nothing_is_imported_to_find_that_out(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(BadInput, match="no YAML in conf/ names it"):
        groups.resolve(f"{tmp_path.name}.evil")


def test_every_target_of_the_configuration_may_be_named() -> None:
    for group in groups.CONSTRUCTED:
        for name in groups.names(group):
            target = groups.defaults(group, name).get("_target_")
            assert target is None or target in groups.targets()


def test_plugins_add_theirs_and_take_them_along(tmp_path: Path) -> None:
    path = tmp_path / "conf/method/mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("name: mine\n_target_: mine_of_targets.Mine\nweights: {}\n")
    (tmp_path / "mine_of_targets.py").write_text("class Mine: ...\n")
    before = plugins.in_use()
    try:
        plugins.use(str(tmp_path))
        assert groups.resolve("mine_of_targets.Mine").__name__ == "Mine"
    finally:
        plugins.use(None if before is None else str(before))
    assert "mine_of_targets.Mine" not in groups.targets()


@pytest.mark.parametrize(
    "name",
    ["../method/pkd", "/etc/passwd", "..", "", "x\0y", "a" * 5_000, "a\nb", "C:\\x", "é" * 200],
)
def test_a_name_from_a_record_is_no_path(name: str) -> None:
    assert groups.defaults("student", name) == {}
