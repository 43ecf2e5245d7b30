"""What stored students show beside their teachers: `ilkd-bench analyse`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ilkd_bench.plumbing.logs import hush, terminal_lines
from ilkd_bench.students.inspect import about, analyse, is_analysed, job_of, select, write
from ilkd_bench.types import BadInput

log = logging.getLogger("ilkd_bench")


def _one(args: argparse.Namespace, record: dict[str, Any]) -> str:
    """Analyse one run, and return the word that it is counted under."""
    folder = args.results_dir / record["folder"]
    if record["status"] != "done":
        log.info("%s: left out, it is %s", record["folder"], record["status"])
        return "left out"
    if not (folder / "student" / "model.safetensors").is_file():
        log.info(
            "%s: left out, its student was not kept. To have it, type python -m ilkd_bench.run %s "
            "keep_student=all force=true",
            *(record["folder"], " ".join(record["argv"])),
        )
        return "left out"
    wanted = about(folder, args.rows, args.seed)
    if not args.force and is_analysed(folder, wanted):
        log.info("%s: analysed before", record["folder"])
        return "analysed before"
    try:
        job = job_of(record, args.data_dir, args.cache_dir)
        write(folder, analyse(job, folder, args.rows, args.seed), wanted)
    except (BadInput, OSError) as error:
        log.error("%s: failed, %s", record["folder"], error)
        return "failed"
    log.info("%s: analysed", record["folder"])
    return "analysed"


def _whole(least: int) -> Any:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text}: allowed is a whole number from {least}")
        return int(text)

    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ilkd_bench.analyse",
        description="Compares stored students with their teachers, layer by layer, once per run. "
        "The figures are made of that: python -m ilkd_bench.figures.",
    )
    parser.add_argument("ids", nargs="*", metavar="RUN_ID", help="only these runs (all done ones)")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR")
    parser.add_argument("--data-dir", metavar="DIR", help="where the data lies now")
    parser.add_argument("--cache-dir", metavar="DIR", help="where teachers and banks lie now")
    parser.add_argument(
        "--rows", type=_whole(2), default=100, help="rows of dev to compare on (100)"
    )
    parser.add_argument("--seed", type=_whole(0), default=0, help="of the draw of these rows (0)")
    parser.add_argument("--force", action="store_true", help="also what is analysed already")
    return parser


def main(argv: Sequence[str]) -> int:
    """Analyse the runs that were asked for; return 1 if one failed, 2 if there are none."""
    args = _parser().parse_args(argv)
    try:
        records = select(args.results_dir, args.ids)
    except (BadInput, OSError) as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    hush()
    with terminal_lines():
        words = [_one(args, record) for record in records]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    print(f"{len(words)} runs: {counts}" if words else "no run is done yet")
    return 1 if "failed" in words else 0


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
