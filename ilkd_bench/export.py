"""A student as a folder for the model hub: `ilkd-bench export`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.students import card
from ilkd_bench.students.export import LANGUAGE, LICENCE, export
from ilkd_bench.types import BadInput

# ------------------------------------------------------------------------------------- command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ilkd_bench.export",
        description="Writes the student of a run as a folder for the hub, with a model card.",
    )
    add = parser.add_argument
    add("run", metavar="RUN_ID", help="id of the run, the beginning of it, or its folder")
    add("dir", metavar="DIR", type=Path, help="where to write; absent or empty")
    add("--results-dir", type=Path, default=Path("results"), help="where runs/ lies (results)")
    add(
        "--license",
        default=card.NO_LICENCE,
        metavar="ID",
        help=f"licence of the weights, as the hub calls it, e.g. apache-2.0 ({card.NO_LICENCE})",
    )
    add("--language", metavar="CODE", help="language of the text (en for the tasks of the suite)")
    add("--force", action="store_true", help="replace the files of an earlier export")
    add("--onnx", action="store_true", help="add model.onnx, checked against the student")
    return parser


def main(argv: Sequence[str]) -> int:
    """Export a student; return 0, or 2 if nothing was written."""
    parser = _parser()
    args = parser.parse_args(argv)
    if not LICENCE.fullmatch(args.license):
        parser.error(f"--license {args.license}: allowed is an id of the hub, e.g. apache-2.0, mit")
    if args.language is not None and not LANGUAGE.fullmatch(args.language):
        parser.error(f"--language {args.language}: allowed is a code of two or three letters")
    try:
        folder = export(
            args.run,
            args.dir,
            results_dir=args.results_dir,
            licence=args.license,
            language=args.language,
            force=args.force,
            onnx=args.onnx,
        )
    except (BadInput, OSError, ArithmeticError) as error:  # the last: another answer than before
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    print(f"exported: {args.dir} (run {folder})")
    if args.license == card.NO_LICENCE:
        print("ilkd_bench: the card has no licence yet: choose one with --license", file=sys.stderr)
    return 0


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
