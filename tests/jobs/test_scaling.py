"""Sweeps that Hydra's other launchers carry out: processes, a Ray cluster, a Slurm of one node.

Each needs what its extra installs, and Slurm the programs that tests/jobs/slurm/start.sh asks for.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import toys

SWEEP = ("-m", *toys.SMALL, "method=vanilla,pkd", "seed=0,1")
ONE_FAILS = ("-m", *toys.SMALL, "method=alp", "seed=0", "lr=1e-4,1e30")  # survived by none
LONG = ("-m", *toys.last(*toys.SMALL, "epochs=60", "patience=null", "method=vanilla", "seed=0,1"))
LAUNCHERS = {
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "ray": ("hydra/launcher=ray", "+hydra.launcher.ray.init.object_store_memory=null"),
    "slurm": ("hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=20"),
}
SLURM = Path(__file__).parent / "slurm"
PATIENCE = 600
"""Seconds that anything here may take; a busy machine needs minutes."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "COLUMNS": "80"}


def missing(name: str) -> str:
    """Return why a launcher cannot be tried here, or nothing."""
    plugin = "submitit" if name == "slurm" else name
    try:
        metadata.version(f"hydra-{plugin}-launcher")
    except metadata.PackageNotFoundError:
        return f"the extra [{name}] is not installed"
    found = shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin")
    return "no Slurm: apt-get install slurm-wlm munge" if name == "slurm" and not found else ""


def command(folder: Path, *words: str, **variables: str) -> dict[str, Any]:
    """Run `python -m ilkd_bench.run WORDS` in a folder."""
    result = subprocess.run(
        [sys.executable, "-m", "ilkd_bench.run", *words],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return {"code": result.returncode, "out": result.stdout, "err": result.stderr}


def environment(**variables: str) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "SLURM"))}
    return own | QUIET | variables


# --------------------------------------------------------------------------------------- clusters


@contextmanager
def ray() -> Iterator[dict[str, str]]:
    """Two Ray nodes of one core each, on a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    program = str(Path(sys.executable).with_name("ray"))
    head = ("--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false")
    nodes = []
    try:
        for words in (head, (f"--address={address}", "--node-ip-address=127.0.0.1")):
            started = [program, "start", "--block", "--num-cpus=1", *words]
            nodes.append(
                subprocess.Popen(
                    started,
                    env=environment(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            wait_for(lambda: answers(port), "Ray")
        yield {"RAY_ADDRESS": address}
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """A Slurm of its own; the variables by which its commands find it."""
    started = subprocess.run([SLURM / "start.sh"], capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    found = re.fullmatch(r"export SLURM_CONF=(\S+)\n", started.stdout)
    assert found, started.stdout
    variables = {"SLURM_CONF": found[1]}
    try:
        yield variables
    finally:
        subprocess.run([SLURM / "stop.sh"], env=environment(**variables), check=True)


@contextmanager
def nothing() -> Iterator[dict[str, str]]:
    yield {}


CLUSTERS: dict[str, Callable[[], Any]] = {"joblib": nothing, "ray": ray, "slurm": slurm}


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
    """Poll what other processes do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come about in {seconds} s"
        time.sleep(0.1)


# ------------------------------------------------------------------------------------- what is run


def three_commands(name: str) -> Callable[[Path], Any]:
    """A sweep, the same again, and one with a run that fails, in a folder."""

    def make(folder: Path) -> Any:
        words = LAUNCHERS[name]
        with CLUSTERS[name]() as variables:
            first = command(folder, *SWEEP, *words, **variables)
            before = files(folder)
            second = command(folder, *SWEEP, *words, **variables)
            after = files(folder)
            third = command(folder, *ONE_FAILS, *words, **variables)
        return {
            "first": first,
            "second": second,
            "third": third,
            "changed": sorted(k for k in before | after if before.get(k) != after.get(k)),
        }

    return make


def files(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in (folder / "results/runs").rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def records(folder: Path) -> dict[tuple[str, int], tuple[Path, dict[str, Any]]]:
    found = {}
    for path in (folder / "results/runs").rglob("record.json"):
        record = json.loads(path.read_text())
        key = record["config"]["method"]["name"], record["config"]["seed"]
        if key == ("alp", 0):  # two learning rates: ONE_FAILS
            continue
        assert key not in found
        found[key] = path.parent, record
    return found


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "history.csv").open() as file:
        return list(csv.DictReader(file))


COSTS = {"joblib": pytest.mark.sweep, "ray": pytest.mark.ray, "slurm": pytest.mark.slurm}


@pytest.fixture(
    scope="session", params=[pytest.param(name, marks=mark) for name, mark in COSTS.items()]
)
def swept(request: pytest.FixtureRequest, once: Any) -> tuple[Path, dict[str, Any]]:
    """A folder after three commands, and what they said. Not to be written to."""
    if reason := missing(request.param):
        pytest.skip(reason)
    return once(f"scaling-{request.param}", three_commands(request.param))


@pytest.fixture(scope="session")
def here(once: Any) -> Path:
    """A folder with a run of the same sweep that no launcher carried out."""
    words = (*toys.SMALL, "method=pkd", "seed=1")
    return once("scaling-here", lambda folder: command(folder, *words))[0]


def test_every_run_is_done_once(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, said = swept
    assert said["first"]["code"] == 0, said["first"]["err"]
    assert "4 runs: 4 done" in said["first"]["out"]
    found = records(folder)
    swept_runs = {(m, s) for m in ("vanilla", "pkd") for s in (0, 1)}
    assert swept_runs <= set(found)
    for key in swept_runs:
        run, record = found[key]
        assert record["status"] == "done"
        ends = re.findall(
            rf"tiny6, {key[0]}, seed {key[1]}: dev acc", (run / "run.log").read_text()
        )
        assert len(ends) == 1
    assert (
        len({record["teacher"]["key"] for _, record in found.values() if "teacher" in record}) == 1
    )
    assert len(list((folder / ".cache/teachers").glob("*/model.safetensors"))) == 1
    assert sorted(path.name for path in folder.iterdir()) == [".cache", "results"]


def test_the_same_command_again_changes_no_file(swept: tuple[Path, dict[str, Any]]) -> None:
    _, said = swept
    assert said["second"]["code"] == 0, said["second"]["err"]
    assert "4 runs: 4 done" in said["second"]["out"]
    assert said["changed"] == []


def test_a_run_that_fails_leaves_the_others_done(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, said = swept
    assert said["third"]["code"] == 1
    assert "2 runs: 1 done, 1 failed" in said["third"]["out"]
    assert "Traceback" not in said["third"]["out"]
    paths = (folder / "results/runs").rglob("alp/*/record.json")
    records_of_alp = [json.loads(path.read_text()) for path in paths]
    found = {record["config"]["lr"]: record for record in records_of_alp}
    assert found[1e-4]["status"] == "done"
    assert found[1e30]["status"] == "failed" and "not finite" in found[1e30]["reason"]


def test_a_run_measures_the_same_wherever_it_is_done(
    swept: tuple[Path, dict[str, Any]], here: Path
) -> None:
    run, record = records(swept[0])["pkd", 1]
    ((same, expected),) = records(here).values()
    assert record["scores"] == expected["scores"]
    assert [row | {"seconds": ""} for row in rows(run)] == [
        row | {"seconds": ""} for row in rows(same)
    ]


# ------------------------------------------------------------------------------------------ requeue


def interrupted(folder: Path) -> Any:
    """A sweep of two long runs under Slurm: one job is requeued, one is told that time is up."""
    with slurm() as variables:
        sweep = subprocess.Popen(
            [sys.executable, "-m", "ilkd_bench.run", *LONG, *LAUNCHERS["slurm"]],
            cwd=folder,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            checkpoints = folder / "results/runs"
            wait_for(
                lambda: len(list(checkpoints.rglob("checkpoint/phase-1.ckpt"))) == 2, "training"
            )
            names = [path.name for path in (folder / "results/sweeps/.submitit").iterdir()]
            (job,) = {found[1] for name in names if (found := re.fullmatch(r"(\d+)_\d+", name))}
            for words in (
                ("scontrol", "requeue", f"{job}_0"),
                ("scancel", "--signal=USR2", f"{job}_1"),  # as Slurm does before the time limit
            ):
                subprocess.run(words, env=environment(**variables), check=True)
            out, _ = sweep.communicate(timeout=PATIENCE)
        finally:
            sweep.kill()  # it has ended, unless something went wrong above
        restarts = subprocess.run(
            ["scontrol", "show", "job", job],
            env=environment(**variables),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return {
        "code": sweep.returncode,
        "out": out,
        "restarts": re.findall(r"Restarts=(\d+)", restarts),
    }


@pytest.mark.slurm
def test_a_requeued_job_goes_on_and_ends_done(once: Any) -> None:
    if reason := missing("slurm"):
        pytest.skip(reason)
    folder, said = once("scaling-requeue", interrupted)
    assert said["code"] == 0, said["out"]
    assert said["restarts"] == ["1", "1"]
    for run, record in records(folder).values():
        assert record["status"] == "done"
        assert [int(row["epoch"]) for row in rows(run)] == list(range(1, 61))
