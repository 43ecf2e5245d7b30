"""One page with everything: `ilkd-bench report`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ilkd_bench.comparison.results import load
from ilkd_bench.plumbing import files
from ilkd_bench.reporting.page.page import page
from ilkd_bench.tables import parser


def main(argv: Sequence[str]) -> int:
    """Write the report; return the exit code."""
    args = parser("report", "Write all results as one HTML page.").parse_args(argv)
    try:
        results = load(args.results_dir)
        path = args.results_dir / "report" / "index.html"
        files.write_text(path, page(results))
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    print(f"report: {path}")
    return 0


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
