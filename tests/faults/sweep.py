"""The command line, with `sabotage` inside its jobs: `python tests/faults/sweep.py WORDS`."""

from __future__ import annotations

import os
import sys

from ilkd_bench import run
from ilkd_bench.plumbing import processes

if "SABOTAGE_LIGHT" in os.environ:  # no training: neither torch nor transformers is needed
    processes.PRELOAD[:] = ["sabotage"]
else:
    processes.PRELOAD.append("sabotage")

if __name__ == "__main__":
    sys.exit(run.main(sys.argv[1:]))
