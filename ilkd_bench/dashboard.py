"""The comparison at Weights & Biases: `ilkd-bench dashboard`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.comparison.scores import read
from ilkd_bench.reporting.wandb_views import send, spec, workspaces
from ilkd_bench.types import BadInput


def account(entity: str | None) -> str:
    """Return the entity that the views go to.

    Raises:
        BadInput: there is no key, or W&B cannot be reached.
    """
    import wandb

    if not wandb.login(prompt=False, verify=False):
        raise BadInput(
            "no key for Weights & Biases: type wandb login, or set WANDB_API_KEY. "
            "--dry-run shows what would be sent"
        )
    try:
        name = entity or wandb.Api().default_entity
    except Exception as error:  # W&B raises whatever it meets
        raise BadInput(f"W&B cannot be asked for your default entity: {error}") from error
    if not name:
        raise BadInput("W&B names no default entity: give --entity NAME")
    return str(name)


def main(argv: Sequence[str]) -> int:
    """Make the dashboard, or print what would be sent."""
    parser = argparse.ArgumentParser(
        prog="python -m ilkd_bench.dashboard",
        description="Make the comparison of methods at Weights & Biases.",
    )
    parser.add_argument(
        "--results-dir", type=Path, default=Path("results"), help="where runs/ lies (results)"
    )
    parser.add_argument("--project", default="ilkd_bench", help="the runs' project (ilkd_bench)")
    parser.add_argument("--entity", help="whose project (your default at W&B)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent, as JSON")
    args = parser.parse_args(argv)
    try:
        records = read(args.results_dir).records
        views = workspaces(records, entity=args.entity or "", project=args.project)
        if args.dry_run:
            print(json.dumps([spec(view) for view in views.values()], indent=1))
            return 0
        for address in send(views, account(args.entity)):
            print(address)
    except BadInput as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    return 0


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
