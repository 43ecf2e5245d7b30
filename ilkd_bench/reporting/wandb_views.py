"""The comparison at Weights & Biases: `python -m ilkd_bench.dashboard [--results-dir results]`.

One saved view per pair, task and settings, as the tables have them: scores by method with seeds
grouped, other domains against dev, seconds against score, and all loss terms. What a view shows is
found in the records; W&B fills it with the runs that `logger=wandb` sent there, also later ones.
A second call updates the views.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from ilkd_bench.comparison.scores import frame
from ilkd_bench.plumbing import files
from ilkd_bench.plumbing.command import FIRST_WORDS, run_line
from ilkd_bench.plumbing.text import plain
from ilkd_bench.records.record import Done, Record
from ilkd_bench.types import BadInput

SEEDS_GROUPED = ("row", "lr", "batch_size")
"""Runs of a view that agree in these differ in their seed only (`wandb_logger.opening`)."""

SECONDS = "seconds/train"


def workspaces(records: Sequence[Record], *, entity: str, project: str) -> dict[str, Any]:
    """Return the views by their keys, as `wandb-workspaces` has them; nothing is sent.

    Raises:
        BadInput: `wandb-workspaces` is not installed, or no run is done.
    """
    ws, _ = _library()
    scores = frame(records)
    scores = scores[scores["main"]]
    if scores.empty:
        raise BadInput(
            "no run is done, so there is nothing to compare: run something first, e.g. "
            f"{run_line(FIRST_WORDS, 'logger=wandb')}"
        )
    terms_of = {record.id: _terms(record) for record in records if isinstance(record, Done)}
    result = {}
    for (section, task), name in _names(scores).items():
        part = scores[(scores["section"] == section) & (scores["task"] == task)]
        terms = sorted({term for run in part["id"] for term in terms_of[run]})
        view = ws.Workspace(
            entity=entity,
            project=project,
            name=name,
            sections=sections(part, terms),
            settings=ws.WorkspaceSettings(x_axis="epoch", max_runs=100),
            runset_settings=_runs(part, section, task),
            auto_generate_panels=True,  # below ours: all else that is logged, the layers drawn too
        )
        result[files.digest([section, task])[:11]] = view
    return result


def _terms(record: Record) -> list[str]:
    """Return the loss terms of a run's method, as its settings name them."""
    weights = record.config["method"].get("weights")
    return [plain(term) for term in weights] if isinstance(weights, dict) else []


def sections(part: pd.DataFrame, terms: Sequence[str]) -> list[Any]:
    """Return the panels of a view.

    Args:
        part: its scores, as `scores.frame` gives them.
        terms: loss terms of its methods.
    """
    ws, wr = _library()
    grouped = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    pairs = _split_metrics(part)
    dev = [score for score in pairs if score[0] == "dev"]
    ood = [score for score in pairs if score[0].startswith("ood/")]
    bars = [
        wr.BarPlot(title=plain(f"{split} {metric}"), metrics=[_key(split, metric)], **grouped)
        for split, metric in pairs
    ]
    domains = [_scatter(wr, x, y) for x in dev for y in ood]
    times = [
        wr.ScatterPlot(
            title=plain(f"{split} {metric} against seconds of training"),
            x=wr.SummaryMetric(SECONDS),
            y=wr.SummaryMetric(_key(split, metric)),
        )
        for split, metric in dev
    ]
    epochs = [plain(f"dev/{metric}") for _, metric in dev]
    epochs += [f"loss/{term}" for term in [*terms, "total"]]
    lines = [
        wr.LinePlot(title=key, x=wr.Metric("epoch"), y=[wr.Metric(key)], **grouped)
        for key in epochs
    ]
    panels_by_section = {
        "Scores by method": bars,
        "Other domains against dev": domains,
        "Seconds against score": times,
        "Loss terms and dev by epoch": lines,
    }
    return [
        ws.Section(name=name, panels=panels, is_open=True)
        for name, panels in panels_by_section.items()
        if panels
    ]


def _split_metrics(part: pd.DataFrame) -> list[tuple[str, str]]:
    """Return split and metric of what a view shows: dev, then other domains, then the rest."""
    pairs = set(zip(part["split"], part["metric"], strict=True))
    return sorted(pairs, key=lambda p: (p[0] != "dev", not p[0].startswith("ood/"), p))


def _key(split: str, metric: str) -> str:
    """Return the name of a final score in a run's summary (`wandb_logger.flat`)."""
    return plain(f"scores/{split}/{metric}")


def _scatter(wr: Any, x: tuple[str, str], y: tuple[str, str]) -> Any:
    return wr.ScatterPlot(
        title=plain(f"{' '.join(y)} against {' '.join(x)}"),
        x=wr.SummaryMetric(_key(*x)),
        y=wr.SummaryMetric(_key(*y)),
    )


def _runs(part: pd.DataFrame, section: str, task: str) -> Any:
    """Return which runs a view shows, and how they are grouped."""
    ws, _ = _library()
    columns = [f"summary:{_key(split, metric)}" for split, metric in _split_metrics(part)]
    return ws.RunsetSettings(
        filters=ws.And(
            ws.Config("section") == section,
            ws.Config("column") == _literal(task),
            ws.Metric("State").isin(["finished", "running"]),  # what died was run again
        ),
        groupby=[ws.Config(key) for key in SEEDS_GROUPED],
        pinned_columns=[*columns, f"summary:{SECONDS}"],
    )


def _literal(text: str) -> str:
    """Return a text as it stands between the quotes that the library puts around it.

    What it reads it as is Python, after it has doubled every `=`.
    """
    escaped = text.encode("unicode_escape").decode()
    return escaped.replace("'", "\\x27").replace("=", "\\x3d")


def _names(scores: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return a name per view; what it compares, and its hashes only where they tell it apart."""
    views = scores.drop_duplicates(["section", "task"]).to_dict("records")
    titles = [
        f"{view['task'].partition('#')[0]}: {view['teacher']} to {view['student']}"
        + (" (limited)" if view["limited"] else "")
        for view in views
    ]
    names = {}
    for view, name in zip(views, titles, strict=True):
        section, task = view["section"], view["task"]
        mark = f" ({task.partition('#')[2]} {section})" if titles.count(name) > 1 else ""
        names[section, task] = re.sub(r"[^\w .,:()-]", "-", plain(name + mark))
    return names


def _library() -> tuple[Any, Any]:
    """Import `wandb-workspaces`, which is slow and optional."""
    try:
        import wandb_workspaces.reports.v2 as wr
        import wandb_workspaces.workspaces as ws
    except ImportError as error:
        raise BadInput(f"{error}: type pip install -c constraints.txt -e '.[wandb]'") from error
    return ws, wr


def spec(view: Any) -> dict[str, Any]:
    """Return what W&B gets for a view."""
    model = view._to_model()  # what `save` sends
    return {
        "entity": view.entity,
        "project": view.project,
        "name": view.name,
        "spec": json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True)),
    }


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


def send(views: dict[str, Any], entity: str) -> list[str]:
    """Save the views at W&B, over those of an earlier call, and return name and address of each.

    Raises:
        BadInput: W&B does not take them.
    """
    ws, _ = _library()
    addresses = []
    for key, view in views.items():
        view.entity = entity
        view._internal_name = f"nw-{key}-v"  # gives the view an address before it is saved
        try:
            try:
                saved = ws.Workspace.from_url(view.url)
            except ValueError:  # there is none yet
                saved = view
            else:
                saved.name, saved.settings = view.name, view.settings
                saved.sections, saved.runset_settings = view.sections, view.runset_settings
            addresses.append(f"{view.name}: {saved.save().url}")
        except Exception as error:  # W&B raises whatever it meets
            raise BadInput(f"W&B did not take {view.name}: {error}") from error
    return addresses
