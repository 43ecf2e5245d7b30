"""The numbers behind each figure, from the records and from the CSVs in the runs' folders.

Every function takes (results_dir, records) and returns a table, empty where there is nothing; each
row says which section, pair and task it belongs to. No drawing here, and no torch.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ilkd_bench.comparison import scores
from ilkd_bench.plumbing import own_files
from ilkd_bench.plumbing.command import line
from ilkd_bench.records.record import Done, Record
from ilkd_bench.types import BadInput

Records = Sequence[Record]

GROUP = ["section", "teacher", "student", "task", "method"]
RUN = [*GROUP, "lr", "batch_size", "seed", "id"]
PAPER_PAIRS = ((1, 2), (2, 4), (3, 6))
"""RAIL-KD's Figure 2: (student layer, teacher layer)."""


def runs(records: Records) -> pd.DataFrame:
    """Return the done runs, one a row; `chosen`: made with the settings that the tables show."""
    table = scores.frame(records)
    if table.empty:
        return pd.DataFrame(columns=[*RUN, "chosen", "folder", "seconds"]).astype({"chosen": bool})
    keys = [*scores.CELL, "lr", "batch_size"]
    best = scores.summarise(table)[keys].drop_duplicates().assign(chosen=True)
    runs = table[table["monitor"]][RUN].merge(best, on=keys, how="left")
    by_id = {record.id: record for record in records if isinstance(record, Done)}
    return runs.assign(
        chosen=runs["chosen"].notna(),
        folder=[by_id[i].folder for i in runs["id"]],
        seconds=[by_id[i].seconds.get("train", math.nan) for i in runs["id"]],
    )


TEXT = ("pooling", "plane", "model", "label")
COUNTS = ("epoch", "student_layer", "teacher_layer", "layer", "row")
LAYERS = re.compile(r"\d{1,3}( \d{1,3})*")
DEEPEST = 200
"""Layers of a model that a figure has room for."""


def _read(folder: Path, name: str, columns: Sequence[str], again: str) -> pd.DataFrame:
    """Read a run's CSV; a number that is none (of a loss that has diverged) is missing.

    Raises:
        BadInput: it is not what this version writes.
    """
    path = folder / name
    try:
        table = pd.read_csv(io.BytesIO(own_files.read_file(folder, name)), dtype={"layers": str})
    except OSError as error:
        raise BadInput(f"{path} cannot be used, {error.strerror}: {again}") from error
    except (ValueError, OverflowError) as error:  # no columns, or no CSV
        raise BadInput(f"{path} is damaged ({error}): {again}") from error
    lacking = [column for column in columns if column not in table]
    if lacking:
        raise BadInput(f"{path} has no column {', '.join(lacking)}: {again}")
    for column in table:
        problem = _flaw(table, str(column), columns)
        if problem:
            raise BadInput(f"{path} is damaged, {problem} in its column {column}: {again}")
    return table


def _flaw(table: pd.DataFrame, column: str, columns: Sequence[str]) -> str:
    """Return what is wrong with a column, and make its values numbers where they must be some."""
    if column == "layers":
        return "" if table[column].dropna().map(_drawn).all() else "there are no layers"
    if column in TEXT or not (column in columns or column.startswith(("loss/", "dev/"))):
        return ""
    numbers = pd.to_numeric(table[column], errors="coerce").astype(float)
    if (numbers.isna() & table[column].notna()).any():
        return "there is text"
    numbers = numbers.where(np.isfinite(numbers))
    if column in COUNTS:
        most = DEEPEST if column.endswith("layer") else 2**31
        if not numbers.between(0, most).all() or (numbers % 1 != 0).any():
            return "there are no counts"
    table[column] = numbers.astype(int) if column in COUNTS else numbers
    return ""


def _drawn(text: str) -> bool:
    numbers = text.split() if LAYERS.fullmatch(text) else []
    return bool(numbers) and all(int(number) <= DEEPEST for number in numbers)


def _collect(
    results_dir: Path, runs: pd.DataFrame, name: str, columns: Sequence[str], again: str
) -> pd.DataFrame:
    """Join the CSVs of that name of some runs, each row with its run."""
    parts = []
    for run in runs.to_dict("records"):
        folder = results_dir / str(run["folder"])
        if os.path.lexists(folder / name):
            part = _read(folder, name, columns, again)
            parts.append(part.assign(**{key: run[key] for key in [*RUN, "chosen"]}))
    if not parts:
        return pd.DataFrame(columns=[*RUN, "chosen", *columns])
    return pd.concat(parts, ignore_index=True)


def _analysed(
    results_dir: Path, records: Records, name: str, columns: Sequence[str]
) -> pd.DataFrame:
    """Return what was analysed of each cell: its chosen runs; others where none of these was."""
    again = f"type {line('analyse', '--force')}"
    table = _collect(results_dir, runs(records), f"analysis/{name}.csv", columns, again)
    best = table.groupby(scores.CELL)["chosen"].transform("max")
    return table[table["chosen"] == best][[*RUN, *columns]]


def _over_seeds(table: pd.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Average over the runs of a cell, and count them in `n`."""
    by = table.groupby([*GROUP, *keys], as_index=False, sort=True)
    return by.agg(**{value: (value, "mean") for value in values}, n=("id", "nunique"))


# ------------------------------------------------------------------------------ what models show

PAIR = ["pooling", "student_layer", "teacher_layer"]


def cosine(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the cosine of all pairs of layers, averaged over seeds."""
    return _all_pairs(results_dir, records, "cosine")


def cka(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the linear CKA of all pairs of layers, averaged over seeds."""
    return _all_pairs(results_dir, records, "cka")


def _all_pairs(results_dir: Path, records: Records, value: str) -> pd.DataFrame:
    table = _over_seeds(
        _analysed(results_dir, records, "similarity", [*PAIR, value]), PAIR, [value]
    )
    defined = table.groupby([*GROUP, "pooling"])[value].transform("count") > 0
    return table[defined].reset_index(drop=True)  # unequal widths have no cosine


def paper_pairs(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the cosine of RAIL-KD's three pairs of layers, of every run."""
    table = _analysed(results_dir, records, "similarity", [*PAIR, "cosine"])
    pairs = zip(table["student_layer"], table["teacher_layer"], strict=True)
    in_paper = pd.Series([pair in PAPER_PAIRS for pair in pairs], table.index, dtype=bool)
    return _ordered(table[in_paper].dropna(subset="cosine"), PAIR)


def distance(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the distance of every student layer to its teacher layer under PKD's skip map."""
    table = _analysed(results_dir, records, "similarity", [*PAIR, "distance"])
    by = table.groupby("id")
    n, m = by["teacher_layer"].transform("max"), by["student_layer"].transform("max")
    layer = table["student_layer"]
    counterpart = table["teacher_layer"] == layer * n // m
    pairs = table[counterpart & (layer > 0) & (layer < m)]
    return _ordered(pairs.dropna(subset="distance"), PAIR)


def attention(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the mean attention of student layers to teacher layers, averaged over seeds."""
    columns = ["student_layer", "teacher_layer", "weight"]
    table = _analysed(results_dir, records, "attention", columns)
    return _over_seeds(table, columns[:2], ["weight"])


def pca(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return, for one run of each cell, the means of all layers and the rows of the last one.

    `kind`: mean, or row; `layer`: intermediate ones. The run is the one of the lowest seed.
    """
    keys = ["pooling", "plane", "model", "layer"]
    columns = [*keys, "row", "label", "pc1", "pc2", "share_1", "share_2"]
    table = _analysed(results_dir, records, "pca", columns)
    table = table[table["seed"] == table.groupby(scores.CELL)["seed"].transform("min")]
    table = table[table["id"] == table.groupby(scores.CELL)["id"].transform("min")]
    shares = ["share_1", "share_2"]
    means = table.groupby([*RUN, *keys, *shares], as_index=False)[["pc1", "pc2"]].mean()
    last = table.groupby([*scores.CELL, "pooling", "model"])["layer"].transform("max")
    rows = table[table["layer"] == last].assign(kind="row")
    joined = pd.concat([means.assign(kind="mean"), rows], ignore_index=True)
    return _ordered(joined, ["pooling", "model", "kind", "layer", "row"])[
        [*RUN, "pooling", "plane", "model", "kind", "layer", "row", "label", "pc1", "pc2", *shares]
    ]


def _ordered(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    return table.sort_values([*RUN, *keys], ignore_index=True)


# ---------------------------------------------------------------------------- scores and training


def seeds(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the main score of every chosen run on every split."""
    table = scores.frame(records)
    all_runs = runs(records)
    chosen = all_runs.loc[all_runs["chosen"], "id"]
    main = table[table["main"] & table["id"].isin(chosen)]
    return _ordered(main[[*RUN, "split", "metric", "value"]], ["split", "metric"])


def time(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the mean score on dev and the mean training seconds of every cell."""
    dev = seeds(results_dir, records).query("split == 'dev'")
    table = dev.merge(runs(records)[["id", "seconds"]].dropna(), on="id")
    by = table.groupby([*GROUP, "metric"], as_index=False, sort=True)
    return by.agg(
        seconds=("seconds", "mean"), score=("value", "mean"), std=("value", "std"), n=("id", "size")
    )


def ood(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the mean scores on dev and out of domain of every cell."""
    table = seeds(results_dir, records)
    by = table.groupby([*GROUP, "split", "metric"], as_index=False, sort=True)
    means = by.agg(score=("value", "mean"), std=("value", "std"), n=("id", "size"))
    dev = means[means["split"] == "dev"].drop(columns="split")
    other = means[means["split"].str.startswith("ood/")]
    return dev.merge(other, on=GROUP, suffixes=("_dev", "_ood"))


def curves(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return every loss term and the dev scores per epoch: mean, least and most over seeds."""
    table = _history(results_dir, records)
    names = [c for c in table if str(c).startswith(("loss/", "dev/")) and c != "dev/n"]
    keys = [*RUN, "epoch"]
    values = table.melt(keys, names, "quantity", "value").dropna(subset="value")
    by = values.groupby([*GROUP, "quantity", "epoch"], as_index=False, sort=True)
    return by.agg(
        mean=("value", "mean"), least=("value", "min"), most=("value", "max"), n=("id", "size")
    )


def layers(results_dir: Path, records: Records) -> pd.DataFrame:
    """Return the teacher layers that were drawn per epoch, for every student layer of every run."""
    table = _history(results_dir, records)
    if "layers" not in table:
        return pd.DataFrame(columns=[*RUN, "epoch", "student_layer", "teacher_layer"])
    table = table.dropna(subset="layers")[[*RUN, "epoch", "layers"]]
    drawn = table.assign(teacher_layer=table["layers"].astype(str).str.split()).drop(
        columns="layers"
    )
    drawn["student_layer"] = [range(1, len(layers) + 1) for layers in drawn["teacher_layer"]]
    long = drawn.explode(["student_layer", "teacher_layer"]).astype(
        {"student_layer": int, "teacher_layer": int}
    )
    columns = ["epoch", "student_layer", "teacher_layer"]
    return _ordered(long[[*RUN, *columns]], columns)


def _history(results_dir: Path, records: Records) -> pd.DataFrame:
    table = runs(records)
    again = "run it again with force=true"
    return _collect(results_dir, table[table["chosen"]], "history.csv", ["epoch"], again)
