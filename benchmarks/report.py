"""Tables from the measurements, and their places in benchmarks/README.md."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from benchmarks import step

UNIT = 640  # rows that the seconds of an epoch are given for


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Return a Markdown table for each part that was measured, by the part's name."""
    makers = {
        "peak": _peak,
        "operators": _operators,
        "step": _step,
        "methods": _methods,
        "methods_cuda": _methods,
        "sweep": _sweep,
        "peers": _peers,
        "growth": _growth,
    }
    return {
        part: f"{makers[part](pd.DataFrame(found['rows']))}\n\n{_where(found)}"
        for part, found in results.items()
    }


def filled(text: str, made: dict[str, str]) -> str:
    """Put each table between its marks, `<!-- NAME -->` and `<!-- end -->`."""
    for name, table in made.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda m, t=table: f"{m[1]}\n{t}\n\n{m[2]}", text, flags=re.DOTALL)
    return text


def _where(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("torch", "transformers"))
    quick = " **Quick run: small sizes, no result.**" if found["quick"] else ""
    return (
        f"{found['date']}, {found['processor']}, {found['device']}, {versions}; "
        f"{found['text']} text, {found['minutes']:.0f} minutes.{quick}"
    )


def _markdown(frame: pd.DataFrame) -> str:
    return frame.to_markdown(index=False, floatfmt=".2f")


def _spread(values: pd.Series) -> str:
    return f"{values.median():.2f} ({values.quantile(0.25):.2f} to {values.quantile(0.75):.2f})"


def _peak(rows: pd.DataFrame) -> str:
    table = pd.DataFrame(
        {
            "of the step at 32 x 128": ["forward and backward", "with clipping and AdamW"],
            "GFLOP/s": [rows["passes"].median(), rows["step"].median()],
            "share of the peak": [
                f"{(rows[name] / rows['peak']).median():.0%}" for name in ("passes", "step")
            ],
        }
    )
    return f"Matrix product: {rows['peak'].median():.0f} GFLOP/s.\n\n{_markdown(table)}"


def _operators(rows: pd.DataFrame) -> str:
    table = rows.sort_values("share", ascending=False).head(10)
    return _markdown(table.assign(share=[f"{share:.0%}" for share in table["share"]]))


def _step(rows: pd.DataFrame) -> str:
    kinds, key = ["student", "rows", "variant"], ["student", "rows", "batch", "repetition"]
    base = rows[rows["variant"] == step.PLAIN].set_index(key)["seconds"].rename("base")
    joined = rows.join(base, on=key)
    joined["ratio"] = joined["seconds"] / joined["base"]
    groups = joined.groupby(kinds, sort=False)
    table = groups["seconds"].median().mul(1e3).rename("ms / step").to_frame()
    table[f"/ {step.PLAIN} (quartiles)"] = groups["ratio"].apply(_spread)
    return _markdown(table.reset_index())


def _methods(rows: pd.DataFrame) -> str:
    key = ["task", "batch", "repetition"]
    base = rows[rows["method"] == "finetune"].set_index(key)["seconds"].rename("base")
    joined = rows.join(base, on=key)
    joined["ratio"] = joined["seconds"] / joined["base"]
    groups = joined.groupby(["task", "method", "teacher"], sort=True)
    table = groups["seconds"].median().mul(1e3).rename("ms / step").to_frame()
    table["/ finetune (quartiles)"] = groups["ratio"].apply(_spread)
    return _markdown(table.reset_index())


def _sweep(rows: pd.DataFrame) -> str:
    sums = rows.groupby("bank")["seconds"].sum()
    pairs = rows.pivot(index=["method", "seed"], columns="bank", values="seconds")
    steps = rows.pivot(index=["method", "seed"], columns="bank", values="train")
    table = pd.DataFrame(
        {
            "": ["15 runs, building the bank included", "a run (median)", "its training steps"],
            "live, s": [sums["off"], pairs["off"].median(), steps["off"].median()],
            "bank, s": [sums["on"], pairs["on"].median(), steps["on"].median()],
            "live / bank": [
                f"{sums['off'] / sums['on']:.2f}",
                _spread(pairs["off"] / pairs["on"]),
                _spread(steps["off"] / steps["on"]),
            ],
        }
    )
    return _markdown(table)


def _peers(rows: pd.DataFrame) -> str:
    rows = rows.assign(seconds=rows["seconds"] * UNIT / rows["rows"])
    wide = rows.pivot(index=["task", "repetition"], columns="contender", values="seconds")
    ratios = wide.div(wide["ours"], axis=0)
    lines = []
    for task, part in ratios.groupby("task"):
        for contender in part.columns:
            lines.append(
                {
                    "task": task,
                    "contender": contender,
                    f"s / {UNIT} rows": wide.loc[task, contender].median(),
                    "/ ours (quartiles)": _spread(part[contender]),
                }
            )
    frame = pd.DataFrame(lines)
    return _markdown(frame.sort_values(["task", f"s / {UNIT} rows"], ascending=[True, False]))


def _growth(rows: pd.DataFrame) -> str:
    table = rows.rename(
        columns={"what": "of", "seconds": "s", "peak_mb": "peak MB", "work_mb": "grown MB"}
    )
    table["ms each"] = rows["seconds"] / rows["size"] * 1e3
    return _markdown(table)
