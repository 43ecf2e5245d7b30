"""The comparison at Weights & Biases: `ilkd-bench dashboard`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("dashboard")

import argparse
import json
from collections.abc import Sequence

from ilkd_bench.plumbing import command
from ilkd_bench.records.read import load_records
from ilkd_bench.reporting.wandb_views import account, send, spec, workspaces


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("dashboard", "Make the comparison of methods at Weights & Biases.")
    parser.add_argument("--project", default="ilkd_bench", help="the runs' project (ilkd_bench)")
    parser.add_argument("--entity", help="whose project (your default at W&B)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent, as JSON")
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """Make the dashboard, or print what would be sent."""
    args = _parser().parse_args(argv)
    stored = load_records(args.results_dir)
    for flaw in stored.flaws:
        command.complain(flaw)
    views = workspaces(stored.records, entity=args.entity or "", project=args.project)
    if args.dry_run:
        print(json.dumps([spec(view) for view in views.values()], indent=1))
        return 0
    for address in send(views, account(args.entity)):
        command.say(address)
    return 0
