"""The command line: `python -m ilkd_bench.run [-m] key=value ...`."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ilkd_bench import launch, store
from ilkd_bench.terminal import Lines
from ilkd_bench.types import BadInput, Incompatible

log = logging.getLogger("ilkd_bench")


@hydra.main(version_base="1.3", config_path=str(launch.ROOT / "conf"), config_name="config")
def hydra_main(config: DictConfig) -> None:
    """Do the run that Hydra composed, where one of its launchers carries the runs out."""
    resolved: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    execute(launch.job(resolved, words=list(HydraConfig.get().overrides.task)))


def execute(job: launch.Job) -> dict[str, Any]:
    """Do a run unless it is done, and return its record.

    Whatever goes wrong in the run ends up in its record (`failed`, with the reason) and in
    `error.txt`; the caller goes on. A process that comes second to the same run waits, and finds
    it done.
    """
    with terminal_lines():
        try:
            with store.locked(job.folder, f"another process is at {job.folder}"):
                return _execute(job)
        except OSError as error:  # nothing can be written where the record belongs
            log.error("%s: %s", job.folder, error)
            return {"status": "failed", "reason": str(error)}


def _execute(job: launch.Job) -> dict[str, Any]:
    earlier = store.read_record(job.folder)
    if earlier is not None and earlier["status"] == "done":
        log.info("done before: %s", summary(earlier, job.folder))
        return earlier
    record: dict[str, Any] = {
        "schema": store.SCHEMA,
        "id": job.id,
        "status": "running",
        "reason": None,
        "argv": list(job.words),
        "config": job.science,
    }
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "error.txt").unlink(missing_ok=True)
    store.write_record(job.folder, record)
    with logged(job.folder / "run.log"):
        record |= _attempt(job)
        _write(store.write_record, job.folder, record)
        log.info(summary(record, job.folder))
    return record


def _attempt(job: launch.Job) -> dict[str, Any]:
    try:
        _hush()
        from ilkd_bench import train  # only here: torch takes seconds to import

        return {"status": "done"} | train.run(job.config, job.science, job.folder)
    except Incompatible as reason:
        return {"status": "skipped", "reason": str(reason)}
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
        _write(store.write_text, job.folder / "error.txt", traceback.format_exc())
        return {"status": "failed", "reason": f"{kind}{error}"}


def _write(write: Callable[[Path, Any], None], path: Path, content: Any) -> None:
    """Write what tells of a run's end; a full disk must not take the rest of the sweep along."""
    try:
        write(path, content)
    except OSError as error:
        log.error("%s cannot be written: %s", path, error.strerror)


def summary(record: dict[str, Any], folder: Path) -> str:
    """Return one line for a person: who, what came out, how long, and where it is."""
    config = record["config"]
    pair = f"{config['teacher']['name']} -> {config['student']['name']}"
    who = f"{config['task']['name']}, {pair}, {config['method']['name']}, seed {config['seed']}"
    if record["status"] != "done":
        trace = folder / "error.txt"
        more = f" (traceback: {trace})" if trace.is_file() else ""
        return f"{who}: {record['status']}, {record['reason']}{more}"
    scores = ", ".join(
        f"{split} {name} {value:.4f}"
        for split, values in record["scores"].items()
        for name, value in values.items()
        if name != "n"
    )
    return f"{who}: {scores}; {sum(record['seconds'].values()):.1f} s; {folder}"


@contextmanager
def terminal_lines() -> Iterator[None]:
    """Show our own lines on the terminal; what libraries say never gets there."""
    root = logging.getLogger()
    before = [(logger, logger.handlers, logger.level) for logger in (root, log)]
    root.handlers, root.level = [logging.NullHandler()], logging.INFO
    log.handlers, log.level = [Lines()], logging.INFO
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger, handlers, level in before:
            logger.handlers, logger.level = handlers, level


@contextmanager
def logged(run_log: Path) -> Iterator[None]:
    """Keep what we and the libraries say in the run's log."""
    file = logging.FileHandler(run_log, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(file)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(file)
        file.close()


def _hush() -> None:
    """Send the load reports of transformers to the log and switch its progress bars off."""
    from transformers.utils import logging as hf

    hf.disable_progress_bar()
    hf.disable_default_handler()
    hf.enable_propagation()
    hub = logging.getLogger("huggingface_hub")
    hub.handlers, hub.propagate = [], True


def main(argv: Sequence[str]) -> int:
    """Plan, run, and say how it went.

    Returns:
        0: every run is done (or not possible for its pair); 1: some failed; 2: nothing was started;
        130: stopped by Ctrl-C.
    """
    # Waiting threads give their core away: on a busy machine they slow training down otherwise.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded
    flags = [word for word in argv if word in ("-m", "--multirun")]
    argv = flags + [word for word in argv if word not in flags]  # wherever -m was typed
    sys.argv[1:] = argv
    if launch.asks_for_information(argv):
        hydra_main()
        return 0
    try:
        jobs = launch.plan(argv)
    except BadInput as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    try:
        if launch.uses_other_launcher(argv):
            hydra_main()
        else:
            for job in jobs:
                execute(job)
    except KeyboardInterrupt:
        print("ilkd_bench: stopped; type the same command again to go on", file=sys.stderr)
        return 130
    return report(jobs)


def report(jobs: Sequence[launch.Job]) -> int:
    """Print the summary of a sweep and return the exit code."""
    found = [(job, store.read_record(job.folder) or {"status": "missing"}) for job in jobs]
    counts = Counter(record["status"] for _, record in found)
    results_dir = Path(jobs[0].config["results_dir"])
    if len(jobs) > 1:
        told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        print(f"{len(jobs)} runs: {told}")
        for job, record in found:
            if record["status"] != "done":
                print(f"  {record['status']}: {job.folder}: {record.get('reason')}")
    if counts["done"]:
        print(
            f"records: {results_dir / 'runs'}; table: python -m ilkd_bench.tables"
            + ("" if str(results_dir) == "results" else f" --results-dir {results_dir}")
        )
    return 0 if set(counts) <= {"done", "skipped"} else 1


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
