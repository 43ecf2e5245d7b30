"""A student as a folder for the model hub: `ilkd-bench export`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("export")

import argparse
from collections.abc import Sequence

from ilkd_bench.plumbing import command
from ilkd_bench.records.card import NO_LICENCE
from ilkd_bench.students.export import LANGUAGE, LICENCE, export


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(
        "export", "Writes the student of a run as a folder for the hub, with a model card."
    )
    add = parser.add_argument
    add("run", metavar="RUN_ID", help="id of the run, the beginning of it, or its folder")
    add("dir", metavar="DIR", type=command.folder, help="where to write; absent or empty")
    add(
        "--license",
        default=NO_LICENCE,
        metavar="ID",
        help=f"licence of the weights, as the hub calls it, e.g. apache-2.0 ({NO_LICENCE})",
    )
    add("--language", metavar="CODE", help="language of the text (en for the tasks of the suite)")
    add("--force", action="store_true", help="replace the files of an earlier export")
    add("--onnx", action="store_true", help="add model.onnx, checked against the student")
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """Export a student; return 0, or 2 if nothing was written."""
    parser = _parser()
    args = parser.parse_args(argv)
    if not LICENCE.fullmatch(args.license):
        parser.error(f"--license {args.license}: allowed is an id of the hub, e.g. apache-2.0, mit")
    if args.language is not None and not LANGUAGE.fullmatch(args.language):
        parser.error(f"--language {args.language}: allowed is a code of two or three letters")
    folder = export(
        args.run,
        args.dir,
        results_dir=args.results_dir,
        licence=args.license,
        language=args.language,
        force=args.force,
        onnx=args.onnx,
    )
    command.say(f"exported: {args.dir} (run {folder})")
    if args.license == NO_LICENCE:
        command.complain("the card has no licence yet: choose one with --license")
    return 0
