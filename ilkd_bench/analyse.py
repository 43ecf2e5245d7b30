"""What stored students show beside their teachers: `ilkd-bench analyse`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("analyse")

import argparse
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.plumbing import command
from ilkd_bench.plumbing.command import whole_number
from ilkd_bench.students import select


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(
        "analyse",
        "Compares stored students with their teachers, layer by layer, once per run. The figures "
        f"are made of that: {command.line('figures')}.",
    )
    parser.add_argument("ids", nargs="*", metavar="RUN_ID", help="only these runs (all done ones)")
    parser.add_argument(
        "--data-dir", type=command.folder, metavar="DIR", help="where the data lies"
    )
    parser.add_argument(
        "--cache-dir",
        type=command.folder,
        default=Path(".cache"),
        metavar="DIR",
        help="where teachers and banks lie (.cache)",
    )
    parser.add_argument(
        "--teacher",
        type=command.home,
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR",
        help="the teachers of runs that were given one (teacher.checkpoint)",
    )
    parser.add_argument(
        "--rows", type=whole_number(2), default=100, help="rows of dev to compare on (100)"
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, help="of the draw of these rows (0)"
    )
    parser.add_argument("--force", action="store_true", help="also what is analysed already")
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """Analyse the runs that were asked for; return 1 if one failed, 2 if there are none."""
    args = _parser().parse_args(argv)
    records = select.to_analyse(args.results_dir, args.ids)
    from ilkd_bench.students import inspect  # only here: torch takes seconds to import

    outcomes = inspect.analyse_all(
        records,
        args.results_dir,
        rows=args.rows,
        seed=args.seed,
        data_dir=args.data_dir,
        cache_dir=args.cache_dir,
        teachers=args.teacher,
        force=args.force,
    )
    counts = ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))
    command.say(f"{len(outcomes)} runs: {counts}" if outcomes else "no run is done yet")
    return 1 if "failed" in outcomes else 0
