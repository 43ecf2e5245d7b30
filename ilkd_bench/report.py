"""One page with everything: `ilkd-bench report`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ilkd_bench.comparison import results
from ilkd_bench.plumbing import files
from ilkd_bench.reporting.page.page import page
from ilkd_bench.tables import parser


def main(argv: Sequence[str]) -> int:
    """Write the report; return the exit code."""
    given = parser("report", "Write all results as one HTML page.").parse_args(argv)
    try:
        found = results.load(given.results_dir)
        path = given.results_dir / "report" / "index.html"
        files.write_text(path, page(found))
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
