"""Figures of matplotlib from the tables of `data`, in the `style` that all share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ilkd_bench.reporting.figures import style

Table = pd.DataFrame


# ------------------------------------------------------------------------------------- heat maps


def heat(value: str, label: str, most: float | None) -> Callable[[Table, str], Figure]:
    """Return the drawing of a value per pair of layers: a map per method.

    Args:
        most: the largest value there can be; None: the colours end at the largest that there is.
    """

    def draw(table: Table, title: str) -> Figure:
        maps = {
            str(method): part.pivot(index="student_layer", columns="teacher_layer", values=value)
            for method, part in table.groupby("method", sort=True)
        }
        size = [max(m.shape[axis] for m in maps.values()) for axis in (0, 1)]
        figure, axes = style.panels(
            list(maps), 0.3 * size[1] + 0.6, 0.3 * size[0] + 0.9, title, most=14
        )
        low, high = table[value].min(), table[value].max() if most is None else most
        norm = Normalize(math.floor(10 * low) / 10, max(math.ceil(10 * high) / 10, low + 0.1))
        for ax, values in zip(axes, maps.values(), strict=True):
            image = _map(ax, values, norm)
        shrink = min(0.9, 5 / figure.get_figheight())
        undefined = f" ({style.CROSS} undefined)" if table[value].isna().any() else ""
        figure.colorbar(image, ax=axes, label=label + undefined, aspect=30, shrink=shrink, pad=0.01)
        return figure

    return draw


def _map(ax: Axes, table: Table, norm: Any) -> Any:
    """Draw one map with its numbers; a cross stands where there is none."""
    colours = mpl.colormaps["cividis"].with_extremes(bad=style.UNDEFINED)
    values = table.to_numpy(dtype=float)
    image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, norm=norm, aspect="equal")
    for (i, j), number in np.ndenumerate(values):
        dark = np.isfinite(number) and norm(number) < 0.5
        text = f"{number:.2f}".replace("0.", ".", 1) if np.isfinite(number) else style.CROSS
        colour = "white" if dark else style.INK
        ax.text(j, i, text, ha="center", va="center", size=6, color=colour, in_layout=False)
    ax.set_xticks(range(values.shape[1]), [str(c) for c in table.columns], size=7)
    ax.set_yticks(range(values.shape[0]), [str(c) for c in table.index], size=7)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.invert_yaxis()  # the first layer is at the bottom, as in a model
    zero = " (0: embeddings)" if 0 in table.columns else ""
    ax.set_xlabel(f"teacher layer{zero}")
    ax.set_ylabel("student layer")
    return image


# ------------------------------------------------------------------------- seeds and their means


def dots(
    value: str, label: Callable[[Table], str], panel: Callable[[Table], pd.Series], scale: float
) -> Callable[[Table, str], Figure]:
    """Return the drawing of one point per seed and their mean: methods down, a panel per `panel`.

    Args:
        label: of the value's axis, from a panel's rows.
        panel: the heading that each row belongs to.
        scale: what the value is multiplied by.
    """

    def draw(table: Table, title: str) -> Figure:
        methods = sorted(table["method"].unique())
        heading = panel(table)
        names = list(dict.fromkeys(heading))
        labels = [style.wrapped(method, 44) for method in methods]
        room = np.array([0.1 + 0.14 * (text.count("\n") + 1) for text in labels])  # inches
        places = dict(zip(methods, np.cumsum(room) - room / 2, strict=True))
        figure, axes = style.panels(names, 3.1, room.sum() + 0.95, title)
        longest = max(len(line) for text in labels for line in text.split("\n"))
        figure.set_size_inches(figure.get_figwidth() + 0.07 * longest, figure.get_figheight())
        for ax, name in zip(axes, names, strict=True):
            part = table[heading == name]
            _dots(ax, part, places, value, scale)
            ax.set_xlabel(style.wrapped(label(part), 32))
            spec = ax.get_subplotspec()
            first = spec is None or spec.is_first_col()
            ax.set_yticks(list(places.values()), labels if first else [""] * len(labels), size=8)
            ax.set_ylim(room.sum(), 0)
        marks = [
            Line2D([], [], marker="o", ls="", mfc="none", mec=style.BLUE, label="one seed"),
            Line2D([], [], marker="|", ls="", mec=style.INK, ms=12, mew=2, label="mean over seeds"),
        ]
        style.legend(figure, marks)
        return figure

    return draw


def _dots(ax: Axes, part: Table, places: dict[str, float], value: str, scale: float) -> None:
    for method, place in places.items():
        values = scale * part.loc[part["method"] == method, value].to_numpy()
        if len(values):
            ax.plot([values.mean()], [place], "|", color=style.INK, ms=14, mew=2)
            spread = np.linspace(-0.04, 0.04, len(values)) if len(values) > 1 else np.zeros(1)
            ax.plot(values, place + spread, "o", mfc="none", mec=style.BLUE, ms=4.5)
    ax.grid(axis="both")
    ax.margins(x=0.08)
    ax.xaxis.set_major_locator(MaxNLocator(5))


def pair_of_layers(table: Table) -> pd.Series:
    """Return the heading of a pair of layers."""
    student, teacher = table["student_layer"].astype(str), table["teacher_layer"].astype(str)
    return "student layer " + student + ", teacher layer " + teacher


def task_and_split(table: Table) -> pd.Series:
    """Return the heading of a task's split."""
    return table["task"].map(style.task_name) + ", " + table["split"].map(style.split_in_words)


# ----------------------------------------------------------------------------- methods as points


def points(
    x: str,
    y: str,
    panel: Callable[[Table], pd.Series],
    labels: Callable[[Table], tuple[str, str]],
    scales: tuple[float, float],
) -> Callable[[Table, str], Figure]:
    """Return the drawing of methods as points with the spread over seeds, a panel per `panel`.

    Args:
        x, y: (column of the mean, column of the standard deviation or empty) joined by a blank.
    """

    def draw(table: Table, title: str) -> Figure:
        heading = panel(table)
        names = list(dict.fromkeys(heading))
        methods = sorted(table["method"].unique())
        figure, axes = style.panels(names, 4.2, 3.6, title)
        for ax, name in zip(axes, names, strict=True):
            part = table[heading == name]
            for row in part.to_dict("records"):
                _point(ax, row, (x.split(), y.split()), scales, methods.index(row["method"]))
            across, up = labels(part)
            ax.set_xlabel(across)
            ax.set_ylabel(up)
            ax.grid(axis="both")
            ax.margins(0.1)
        marks = [
            Line2D([], [], ls="", label=style.wrapped(method, 34), **style.mark(number))
            for number, method in enumerate(methods)
        ]
        style.legend(figure, marks, "mean ± standard deviation over seeds")
        return figure

    return draw


def _point(ax: Axes, row: Any, columns: Any, scales: tuple[float, float], number: int) -> None:
    place = [scale * row[names[0]] for names, scale in zip(columns, scales, strict=True)]
    spread = [
        scale * row[names[1]] if len(names) > 1 and not math.isnan(row[names[1]]) else None
        for names, scale in zip(columns, scales, strict=True)
    ]
    x, y = place
    ax.errorbar(x, y, xerr=spread[0], yerr=spread[1], lw=0.8, capsize=2, **style.mark(number))


# ------------------------------------------------------------------------------ along the epochs


def curves(table: Table, title: str) -> Figure:
    """Draw each method's loss terms above its dev scores, means over seeds in their range."""
    methods = sorted(table["method"].unique())
    quantities = sorted(table["quantity"].unique(), key=lambda q: (not q.startswith("loss/"), q))
    columns, lines = style.arranged(len(methods), 2.9, 13)
    figure = style.empty(max(2.9 * columns, 5), 4.2 * lines, title)
    grid = figure.add_gridspec(2 * lines, columns, height_ratios=[3, 2] * lines)
    for number, method in enumerate(methods):
        line, column = divmod(number, columns)
        upper = figure.add_subplot(grid[2 * line, column])
        lower = figure.add_subplot(grid[2 * line + 1, column], sharex=upper)
        part = table[table["method"] == method]
        for ax, kind, scale in ((upper, "loss/", 1.0), (lower, "dev/", 100.0)):
            for name, curve in part[part["quantity"].str.startswith(kind)].groupby("quantity"):
                _curve(ax, curve, scale, quantities.index(name))
            ax.grid(axis="both")
        losses = part[part["quantity"].str.startswith("loss/")]
        if len(losses) and losses["least"].min() > 0:
            _logarithmic(upper, losses["most"].max() / losses["least"].min())
        upper.set_title(style.wrapped(method, 32))
        upper.tick_params(labelbottom=False)
        lower.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        upper.set_ylabel("loss")
        lower.set_ylabel("dev (times 100)")
        lower.set_xlabel("epoch")
    handles = [
        Line2D([], [], label=style.wrapped(_quantity(name), 30), **style.line(number))
        for number, name in enumerate(quantities)
    ]
    style.legend(figure, handles)
    return figure


def _logarithmic(ax: Axes, ratio: float) -> None:
    """Use a logarithmic axis with plain numbers; matplotlib's own are mathematics."""
    ax.set_yscale("log")
    subs = (1, 2, 5) if ratio < 100 else (1,)
    ax.yaxis.set_major_locator(LogLocator(10, subs=subs, numticks=8))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _quantity(name: str) -> str:
    kind, _, rest = name.partition("/")
    if kind == "dev":
        return f"dev {style.METRICS.get(rest, rest)}"
    return "total, weighted" if rest == "total" else f"term {rest}"


def _curve(ax: Axes, curve: Table, scale: float, number: int) -> None:
    epochs, every = curve["epoch"], max(1, len(curve) // 8)
    ax.plot(epochs, scale * curve["mean"], **style.line(number), markevery=every)
    colour = style.COLOURS[number % len(style.COLOURS)]
    least, most = scale * curve["least"], scale * curve["most"]
    ax.fill_between(epochs, least, most, color=colour, alpha=0.15, lw=0)


def layers(table: Table, title: str) -> Figure:
    """Draw which teacher layer each student layer was paired with in every epoch, per run."""
    run = table["method"] + ", seed " + table["seed"].astype(str)
    names = list(dict.fromkeys(run))
    epochs, deepest = int(table["epoch"].max()), int(table["teacher_layer"].max())
    width = min(13.0, 0.26 * epochs + 1.2)
    figure, axes = style.panels(names, max(width, 2.2), 0.2 * deepest + 1.0, title)
    for ax, name in zip(axes, names, strict=True):
        for row in table[run == name].to_dict("records"):
            number = row["student_layer"]
            colour = style.COLOURS[(number - 1) % len(style.COLOURS)]
            box: Any = {"boxstyle": "circle,pad=0.12", "fc": "white", "lw": 0.9, "ec": colour}
            x, y = row["epoch"], row["teacher_layer"]
            ax.text(x, y, str(number), ha="center", va="center", size=6.5, bbox=box)
        ax.set_xlim(0.4, epochs + 0.6)
        ax.set_ylim(0.4, deepest + 0.6)
        ax.set_yticks(range(1, deepest + 1))
        ax.tick_params(labelsize=7)
        ax.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        ax.grid(axis="both")
        ax.set_xlabel("epoch")
        ax.set_ylabel("teacher layer")
    return figure


# ------------------------------------------------------------------------------------ components

MODELS = {"teacher": (style.BLUE, "o", "-"), "student": (style.ORANGE, "^", "--")}


def pca(table: Table, title: str) -> Figure:
    """Draw the way through the layers on two principal components, and the last layer's rows."""
    plane = table["method"].where(
        table["plane"] == "shared", table["method"] + ", " + table["model"] + " alone"
    )
    names = sorted(plane.unique())
    figure, axes = style.panels(names, 3.2, 3.2, title)
    for ax, name in zip(axes, names, strict=True):
        part = table[plane == name]
        for model, layers in part.groupby("model", sort=True):
            _way(ax, layers, *MODELS[str(model)])
        share = 100 * part[["share_1", "share_2"]].iloc[0]
        ax.set_xlabel(f"first component ({share.iloc[0]:.0f} % of variance)")
        ax.set_ylabel(f"second ({share.iloc[1]:.0f} %)")
        ax.tick_params(labelsize=7)
        ax.margins(0.08)
    handles = [
        Line2D([], [], color=colour, ls=line, marker=marker, ms=8, mfc="white", label=text)
        for model, (colour, marker, line) in MODELS.items()
        for text in [f"{model}: means of the layers, numbered"]
    ] + [
        Line2D([], [], color=colour, ls="", marker=marker, ms=3.5, label=text)
        for model, (colour, marker, _) in MODELS.items()
        for text in [f"{model}: rows, last intermediate layer"]
    ]
    style.legend(figure, handles)
    return figure


def _way(ax: Axes, layers: Table, colour: str, marker: str, line: str) -> None:
    rows, means = layers[layers["kind"] == "row"], layers[layers["kind"] == "mean"]
    ax.plot(rows["pc1"], rows["pc2"], marker, color=colour, ms=2.6, alpha=0.6, mew=0, zorder=1)
    numbered: Any = {"marker": marker, "ms": 8.5, "mfc": "white"}
    ax.plot(means["pc1"], means["pc2"], color=colour, ls=line, zorder=2, **numbered)
    for row in means.to_dict("records"):
        x, y, number = row["pc1"], row["pc2"], str(row["layer"])
        ax.text(x, y, number, ha="center", va="center", size=5.5, color=style.INK, zorder=3)
