"""The command line, with `sabotage` inside its jobs: `python tests/faults/sweep.py WORDS`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.plumbing import command


def main(argv: Sequence[str]) -> int:
    """Note that signals are handled from now on, and do as `run` does."""
    (Path(os.environ["SABOTAGE"]) / f"begun-{os.getpid()}").touch()
    from ilkd_bench import run
    from ilkd_bench.plumbing import processes

    if "SABOTAGE_LIGHT" in os.environ:  # no training: neither torch nor transformers is needed
        processes.PRELOAD[:] = ["sabotage"]
    else:
        processes.PRELOAD.append("sabotage")
    return run.main(argv)


if __name__ == "__main__":
    command.cli(main)
