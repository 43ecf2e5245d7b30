"""Tables from the records: `python -m ilkd_bench.tables [--results-dir results]`.

Learning rate and batch size are chosen per task and method by the mean dev score over seeds, never
per seed. Then mean, standard deviation (ddof 1) and the number of seeds. What is missing is a dash.
Needs neither torch nor a network.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ilkd_bench import store
from ilkd_bench.settings import method_defaults

SWEPT = ("seed", "lr", "batch_size")
"""What a cell of a table averages over or selects."""

LIMITS = ("limit_train", "limit_eval")
CELL = ["section", "method", "task"]
SUMMARY = "teacher student method task split metric lr batch_size mean std n ids".split()
DASH = "\N{EN DASH}"


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level of dotted keys; lists become text."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = str(value) if isinstance(value, list) else value
    return result


def difference(settings: dict[str, Any], others: Iterable[dict[str, Any]]) -> str:
    """Return the settings that are not the same in all of `others`, as `key=value` words."""
    mine, theirs = flat(settings), [flat(other) for other in others]
    absent = object()
    keys = [key for key, value in mine.items() if any(o.get(key, absent) != value for o in theirs)]
    return " ".join(f"{key}={mine[key]}" for key in sorted(keys))


def frame(records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the scores of all done runs: one row per run, split and metric."""
    rows = []
    for record in records:
        config = record["config"]
        common = {key: config[key] for key in SWEPT}
        if record["status"] == "done":
            for split, scores in record["scores"].items():
                main = _main_metric(config["task"], split)
                for metric in sorted(scores.keys() - {"n"}):
                    rows.append(
                        place(config)
                        | common
                        | {
                            "id": record["id"],
                            "limited": any(config[k] is not None for k in LIMITS),
                            "teacher": config["teacher"]["name"],
                            "student": config["student"]["name"],
                            "split": split,
                            "metric": metric,
                            "main": metric == main,
                            "monitor": f"{split}/{metric}" == record["monitor"],
                            "value": scores[metric],
                        }
                    )
    columns = [*CELL, *SWEPT, "id", "limited", "teacher", "student", "split", "metric"]
    columns += ["main", "monitor", "value"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values([*CELL, "split", "metric", *SWEPT, "id"], ignore_index=True)


def _main_metric(task: dict[str, Any], split: str) -> str:
    """Return the metric that a table shows for a split; the others are in summary.csv."""
    owner = task["ood"][split.removeprefix("ood/")] if split.startswith("ood/") else task
    return str(owner["metric"])


def setting(config: dict[str, Any]) -> dict[str, Any]:
    """Return what all runs of one section share: everything but task, method and what is swept."""
    return {k: v for k, v in config.items() if k not in ("method", "task", "data", *SWEPT)}


def place(config: dict[str, Any]) -> dict[str, str]:
    """Return the section, row and column of a run: runs with other settings never share a cell."""
    method, task = config["method"], config["task"]
    changed = difference(method, [method_defaults(method["name"])])
    return {
        "section": store.digest(setting(config))[:8],
        "method": f"{method['name']} ({changed})" if changed else method["name"],
        "task": f"{task['name']}#{store.digest([task, config['data']])[:6]}",
    }


def summarise(scores: pd.DataFrame) -> pd.DataFrame:
    """Choose learning rate and batch size per cell, then average over the seeds."""
    keys = [*CELL, "limited", "teacher", "student", "split", "metric", "lr", "batch_size"]
    grouped = scores.groupby(keys, as_index=False, sort=True).agg(
        mean=("value", "mean"),
        std=("value", "std"),  # ddof 1
        n=("value", "size"),
        ids=("id", " ".join),
        main=("main", "all"),
        monitor=("monitor", "all"),
    )
    selecting = grouped[grouped["monitor"]]
    most = selecting.groupby(CELL)["n"].transform("max")
    best = (
        selecting[selecting["n"] == most]  # a mean over fewer seeds is not comparable
        .sort_values(["mean", "lr", "batch_size"], ascending=[False, True, True])
        .drop_duplicates(CELL)
    )
    chosen = grouped.merge(best[[*CELL, "lr", "batch_size"]], on=[*CELL, "lr", "batch_size"])
    return chosen.sort_values(keys, ignore_index=True)


def cell(mean: float, std: float, n: int, most: int) -> str:
    """Return `mean ± std (n)` in points; a dagger marks fewer seeds than elsewhere."""
    spread = "" if n == 1 else f" ± {100 * std:.1f}"
    return f"{100 * mean:.1f}{spread} ({n})" + ("†" if n < most else "")


def matrix(summary: pd.DataFrame, teacher: dict[str, float]) -> pd.DataFrame:
    """Return methods x columns as text, with the teacher on top and the average at the right.

    Args:
        summary: one row per method and column (`column`, `mean`, `std`, `n`).
        teacher: its score per column, where it was measured.
    """
    most = summary["n"].max()
    columns = list(dict.fromkeys(summary["column"]))
    rows = {}
    if teacher:
        rows["teacher"] = {c: f"{100 * teacher[c]:.1f}" if c in teacher else DASH for c in columns}
        if set(teacher) == set(columns):
            rows["teacher"]["average"] = f"{100 * sum(teacher.values()) / len(teacher):.1f}"
    for method, part in summary.groupby("method", sort=True):
        means = part.set_index("column")["mean"]
        rows[str(method)] = {
            r["column"]: cell(r["mean"], r["std"], r["n"], most) for r in part.to_dict("records")
        }
        if len(columns) > 1:  # an average needs every task
            whole = set(means.index) == set(columns)
            rows[str(method)]["average"] = f"{100 * means.mean():.1f}" if whole else DASH
    table = pd.DataFrame.from_dict(rows, orient="index").fillna(DASH)
    return table.rename_axis("method")[[*columns, *(["average"] if len(columns) > 1 else [])]]


def overview(records: Sequence[dict[str, Any]]) -> str:
    """Return all results as Markdown: a section per pair and setting, methods x tasks in each."""
    summary = summarise(frame(records))
    shared: dict[str, dict[str, Any]] = {}
    for record in records:
        shared.setdefault(place(record["config"])["section"], setting(record["config"]))
    parts = ["# Results\n"]
    order = sorted(shared, key=lambda key: (shared[key]["teacher"]["name"], key))
    for key in order:
        own = [r for r in records if place(r["config"])["section"] == key]
        parts.append(section(shared[key], list(shared.values()), own, summary))
    return "\n".join(parts)


def section(
    shared: dict[str, Any],
    others: Sequence[dict[str, Any]],
    records: Sequence[dict[str, Any]],
    summary: pd.DataFrame,
) -> str:
    """Return one section of the overview."""
    pair = f"{shared['teacher']['name']} -> {shared['student']['name']}"
    same = [o for o in others if _pair(o) == _pair(shared)]
    limits = {k: shared[k] for k in LIMITS if shared[k] is not None}
    lines = [f"## {pair}" + (" (limited)" if limits else ""), ""]
    if limits:
        told = ", ".join(f"{k}={v}" for k, v in limits.items())
        lines += [f"**Limited runs ({told}): for trying out, not for comparing.**", ""]
    apart = difference(shared, same)
    general = ", ".join(f"{k} {shared[k]}" for k in ("epochs", "max_length", "precision"))
    lines += [
        f"Settings: {general}{'; apart from others of this pair: ' + apart if apart else ''}. "
        "Scores times 100, mean ± standard deviation (number of seeds); learning rate and batch "
        "size chosen per task and method by the mean dev score over seeds.",
        "",
    ]
    own = summary[(summary["section"] == place(records[0]["config"])["section"]) & summary["main"]]
    for title, part in (
        ("Dev", own[own["split"] == "dev"]),
        ("Out of domain", own[own["split"].str.startswith("ood/")]),
        ("Other splits", own[~own["split"].str.startswith("ood/") & (own["split"] != "dev")]),
    ):
        if not part.empty:
            table = matrix(_with_column(part), _teacher(records) if title == "Dev" else {})
            lines += [f"### {title}", "", table.to_markdown(disable_numparse=True), ""]
    if not own.empty:
        lines += ["### Chosen settings", "", _chosen(own).to_markdown(disable_numparse=True), ""]
    return "\n".join(lines + _footnotes(records, own))


def _pair(shared: dict[str, Any]) -> tuple[str, str]:
    return shared["teacher"]["name"], shared["student"]["name"]


def _name(task: str) -> str:
    return task.partition("#")[0]


def _with_column(part: pd.DataFrame) -> pd.DataFrame:
    """Name the columns: task, split unless it is dev, metric; the data's hash only if it tells."""
    variants = part.groupby(part["task"].map(_name))["task"].nunique()

    def column(row: Any) -> str:
        name = row.task if variants[_name(row.task)] > 1 else _name(row.task)
        if row.split.startswith("ood/"):
            name += f" -> {row.split.removeprefix('ood/')}"
        elif row.split != "dev":
            name += f" {row.split}"
        return f"{name} {row.metric}"

    return part.assign(column=[column(row) for row in part.itertuples()])


def _teacher(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    rows = [
        place(r["config"]) | {"split": "dev", "metric": metric, "value": value}
        for r in records
        if r["status"] == "done"
        for metric, value in r["teacher"]["dev"].items()
        if metric == r["config"]["task"]["metric"]
    ]
    table = _with_column(pd.DataFrame(rows))
    return {str(k): v for k, v in table.groupby("column")["value"].first().items()}


def _chosen(own: pd.DataFrame) -> pd.DataFrame:
    dev = own[own["split"] == "dev"].drop_duplicates(["method", "task"])
    text = [f"lr {lr:g}, batch {b}" for lr, b in zip(dev["lr"], dev["batch_size"], strict=True)]
    table = dev.assign(text=text, task=dev["task"].map(_name))
    return table.pivot_table(index="method", columns="task", values="text", aggfunc="first").fillna(
        DASH
    )


def _footnotes(records: Sequence[dict[str, Any]], own: pd.DataFrame) -> list[str]:
    notes = []
    seeds = frame(records).query("monitor").groupby([*CELL, "lr", "batch_size"])["id"].size()
    if not seeds.empty and (seeds.groupby(CELL).min() < seeds.groupby(CELL).max()).any():
        notes.append(
            "Not a full grid: some learning rates and batch sizes were run with fewer seeds, and "
            "those chose the setting (select, then repeat)."
        )
    if not own.empty and own["n"].min() < own["n"].max():
        notes.append("† fewer seeds than the other cells.")
    skipped = {
        f"{r['config']['method']['name']} on {r['config']['task']['name']}: {r['reason']}."
        for r in records
        if r["status"] == "skipped"
    }
    notes += [f"Not possible: {reason}" for reason in sorted(skipped)]
    unfinished = sorted(r["folder"] for r in records if r["status"] in ("failed", "running"))
    if unfinished:
        notes.append(f"Not counted, failed or unfinished: {', '.join(unfinished)}.")
    return [line for note in notes for line in (note, "")]


def write(results_dir: Path) -> str:
    """Write `tables/summary.csv` and `tables/overview.md`; return the latter.

    Raises:
        FileNotFoundError: there are no records.
    """
    records = list(store.records(results_dir))
    if not records:
        raise FileNotFoundError(
            f"no records in {results_dir / 'runs'}: run something first, e.g. "
            "python -m ilkd_bench.run -m method=rail_l,pkd,alp seed=0,1,2,3,4"
        )
    summary = summarise(frame(records))
    summary[["task", "data"]] = summary["task"].str.split("#", expand=True)
    text = overview(records)
    folder = results_dir / "tables"
    columns = [*SUMMARY, "limited", "section", "data"]
    store.write_text(folder / "summary.csv", summary[columns].to_csv(index=False))
    store.write_text(folder / "overview.md", text)
    return text


def main(argv: Sequence[str]) -> int:
    """Write the tables and print the overview."""
    parser = argparse.ArgumentParser(
        prog="python -m ilkd_bench.tables", description="Write tables from the records."
    )
    parser.add_argument(
        "--results-dir", type=Path, default=Path("results"), help="where runs/ lies (results)"
    )
    results_dir = parser.parse_args(argv).results_dir
    try:
        text = write(results_dir)
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    folder = results_dir / "tables"
    print(text)
    print(f"table: {folder / 'overview.md'}; all numbers: {folder / 'summary.csv'}")
    return 0


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
