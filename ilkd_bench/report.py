"""One page with everything: `ilkd-bench report`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("report")

from collections.abc import Sequence

from ilkd_bench.comparison.results import load
from ilkd_bench.plumbing import command, files
from ilkd_bench.plumbing.logs import terminal_lines
from ilkd_bench.reporting.page.page import page


@command.verb
def main(argv: Sequence[str]) -> int:
    """Write the report; return the exit code."""
    args = command.parser("report", "Write all results as one HTML page.").parse_args(argv)
    path = args.results_dir / "report" / "index.html"
    with terminal_lines():
        results = load(args.results_dir)
    files.write_text(path, page(results))
    command.say(f"report: {path}")
    return 0
