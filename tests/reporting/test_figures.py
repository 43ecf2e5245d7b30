"""Figures from hand-made runs: numbers by hand, and files that are whole and always the same."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made import record
from toys import write_record

from ilkd_bench import figures
from ilkd_bench.records.read import load_records
from ilkd_bench.reporting.figures import catalogue, data, plots, style, write

pytestmark = pytest.mark.runs

HOSTILE = "a$b_c%d{\\frac}^2<script>&amp;--$\\alpha$"


def put(
    results: Path,
    method: str,
    seed: int,
    *,
    dev: float = 0.8,
    seconds: float = 10.0,
    history: str | None = None,
    analysis: dict[str, str] | None = None,
    **other: Any,
) -> dict[str, Any]:
    """Write a made-up run, and return its record."""
    splits = {"dev": {"accuracy": dev, "f1": dev / 2, "n": 400}}
    found = record(method, seed=seed, dev=dev, ood={"paws": dev - 0.3}, splits=splits, **other)
    pair = f"{found['config']['teacher']['name']}-{found['config']['student']['name']}"
    place = results / "runs" / found["config"]["task"]["name"] / pair
    folder = place / method.replace("/", "_") / f"s{seed}-{found['id']}"
    found |= {"seconds": {"train": seconds, "teacher": 1.0, "evaluate": 1.0}}
    write_record(folder, {k: v for k, v in found.items() if k != "folder"})
    if history is not None:
        (folder / "history.csv").write_text(history)
    for name, text in (analysis or {}).items():
        (folder / "analysis").mkdir(exist_ok=True)
        (folder / "analysis" / f"{name}.csv").write_text(text)
    return found


def similarity(values: dict[tuple[str, int, int], tuple[Any, Any, Any]]) -> str:
    lines = ["pooling,student_layer,teacher_layer,rows,cosine,cka,distance"]
    for (pooling, i, j), (cosine, cka, distance) in values.items():
        lines.append(f"{pooling},{i},{j},100,{cosine},{cka},{distance}")
    return "\n".join(lines)


def every_pair(base: float, student: int = 3, teacher: int = 6, equal: bool = True) -> str:
    """All pairs of layers of both poolings; the values tell their pair."""
    return similarity(
        {
            (p, i, j): (v, v, v / 2) if equal else ("", v, "")
            for p in ("cls", "mean")
            for i in range(student + 1)
            for j in range(teacher + 1)
            for v in [round(base + i / 10 + j / 100, 3)]
        }
    )


HISTORY = (
    "phase,epoch,seconds,rows,lr,loss/ce,loss/kd,loss/total,dev/accuracy,dev/n,layers\n"
    "distill,1,1,10,0.1,{0},2.0,3.0,0.5,400,{1}\n"
    "distill,2,1,10,0.1,{2},1.0,1.5,0.6,400,{3}\n"
)
PCA = "pooling,model,layer,row,label,plane,pc1,pc2,share_1,share_2\n" + "\n".join(
    f"{pooling},{model},{layer},{row},{row % 2},shared,{layer + row},{-layer * row},0.5,0.25"
    for pooling in ("cls",)
    for model, depth in (("teacher", 3), ("student", 2))
    for layer in range(1, depth + 1)
    for row in (4, 9)
)
ATTENTION = "student_layer,teacher_layer,rows,weight\n" + "\n".join(
    f"{i},{j},64,{w}"
    for (i, j), w in {(1, 1): 0.75, (1, 2): 0.25, (2, 1): 0.5, (2, 2): 0.5}.items()
)


SMALL = "\n".join(
    line
    for line in every_pair(0.1, student=2, teacher=3).splitlines()
    if not line.startswith("mean,")  # half the figures, half the time
)


def whole(results: Path, methods: list[str], seeds: int = 2, **other: Any) -> None:
    """Runs that every figure has data of."""
    for n, (method, seed) in enumerate(itertools.product(methods, range(seeds))):
        put(
            results,
            method,
            seed,
            dev=0.6 + 0.01 * (n % 30),
            seconds=10.0 + n,
            history=HISTORY.format(1.0, "2 4 7", 0.5, "1 5 6"),
            analysis={"similarity": SMALL, "pca": PCA, "attention": ATTENTION},
            **other,
        )


def records(results: Path) -> list[dict[str, Any]]:
    return load_records(results).records


# ---------------------------------------------------------------------------------- the numbers


def test_cosine_and_cka_are_means_over_seeds(tmp_path: Path) -> None:
    values = [(0.5, 0.25), (0.75, 0.5), (0.25, 0.9)]
    for seed, (cosine, cka) in enumerate(values):
        put(
            tmp_path,
            "pkd",
            seed,
            analysis={"similarity": similarity({("cls", 1, 2): (cosine, cka, 1)})},
        )
    (row,) = data.cosine(tmp_path, records(tmp_path)).to_dict("records")
    assert (row["student_layer"], row["teacher_layer"], row["n"]) == (1, 2, 3)
    assert row["cosine"] == pytest.approx(0.5)
    (row,) = data.cka(tmp_path, records(tmp_path)).to_dict("records")
    assert row["cka"] == pytest.approx(0.55)


def test_unequal_widths_have_cka_and_no_cosine(tmp_path: Path) -> None:
    put(tmp_path, "pkd", 0, analysis={"similarity": every_pair(0.1, equal=False)})
    found = records(tmp_path)
    for prepare in (data.cosine, data.paper_pairs, data.distance):
        assert prepare(tmp_path, found).empty
    assert len(data.cka(tmp_path, found)) == 2 * 4 * 7


def test_the_paper_s_pairs_and_the_counterparts_of_the_distance(tmp_path: Path) -> None:
    put(tmp_path, "pkd", 3, analysis={"similarity": every_pair(0.1, student=4, teacher=12)})
    found = data.paper_pairs(tmp_path, records(tmp_path)).query("pooling == 'mean'")
    got = {(r.student_layer, r.teacher_layer): r.cosine for r in found.itertuples()}
    assert got == {(1, 2): 0.22, (2, 4): 0.34, (3, 6): 0.46}
    found = data.distance(tmp_path, records(tmp_path)).query("pooling == 'cls'")
    got = {(r.student_layer, r.teacher_layer): r.distance for r in found.itertuples()}
    assert got == pytest.approx({(1, 3): 0.115, (2, 6): 0.18, (3, 9): 0.245})


def test_analyses_are_those_of_the_chosen_setting_where_there_are_any(tmp_path: Path) -> None:
    one = {"similarity": similarity({("cls", 1, 2): (0.2, 0.2, 1)})}
    two = {"similarity": similarity({("cls", 1, 2): (0.8, 0.8, 1)})}
    put(tmp_path, "pkd", 0, lr=1e-5, dev=0.7, analysis=one)
    put(tmp_path, "pkd", 0, lr=2e-5, dev=0.9, analysis=two)
    (row,) = data.cosine(tmp_path, records(tmp_path)).to_dict("records")
    assert (row["cosine"], row["n"]) == (0.8, 1)
    for path in tmp_path.rglob("analysis/similarity.csv"):
        if "0.8" in path.read_text():
            path.unlink()
    (row,) = data.cosine(tmp_path, records(tmp_path)).to_dict("records")
    assert (row["cosine"], row["n"]) == (0.2, 1)


def test_attention_is_the_mean_over_seeds(tmp_path: Path) -> None:
    for seed, weight in enumerate((0.5, 0.25)):
        text = f"student_layer,teacher_layer,rows,weight\n1,3,64,{weight}\n1,4,64,{1 - weight}"
        put(tmp_path, "alp", seed, analysis={"attention": text})
    found = data.attention(tmp_path, records(tmp_path))
    assert found["weight"].tolist() == [0.375, 0.625]
    assert found["n"].tolist() == [2, 2]


def test_the_picture_of_components_has_layer_means_and_the_last_layer_s_rows(
    tmp_path: Path,
) -> None:
    put(tmp_path, "pkd", 1, analysis={"pca": PCA})
    put(tmp_path, "pkd", 2, analysis={"pca": PCA.replace("0.5", "0.9")})
    found = data.pca(tmp_path, records(tmp_path)).query("pooling == 'cls'")
    assert set(found["seed"]) == {1}
    means = found[(found["kind"] == "mean") & (found["model"] == "teacher")]
    assert means["pc1"].tolist() == [7.5, 8.5, 9.5]  # rows 4 and 9: layer + 6.5
    assert means["pc2"].tolist() == [-6.5, -13.0, -19.5]
    rows = found[(found["kind"] == "row") & (found["model"] == "student")]
    assert rows[["layer", "row", "label"]].astype(int).to_numpy().tolist() == [[2, 4, 0], [2, 9, 1]]


def test_time_seeds_and_ood_by_hand(tmp_path: Path) -> None:
    for seed, (dev, seconds) in enumerate([(0.8, 10.0), (0.82, 20.0), (0.87, 60.0)]):
        put(tmp_path, "pkd", seed, dev=dev, seconds=seconds)
    put(tmp_path, "alp", 0, dev=0.9)
    found = records(tmp_path)
    one, row = data.time(tmp_path, found).to_dict("records")
    assert (one["method"], one["n"], one["score"]) == ("alp", 1, 0.9) and np.isnan(one["std"])
    assert (row["method"], row["n"], row["seconds"]) == ("pkd", 3, 30.0)
    assert row["score"] == pytest.approx(0.83) and row["std"] == pytest.approx(0.0013**0.5)
    _, row = data.ood(tmp_path, found).to_dict("records")
    assert (row["score_dev"], row["score_ood"]) == pytest.approx((0.83, 0.53))
    assert row["split_ood" if "split_ood" in row else "split"] == "ood/paws"
    points = data.seeds(tmp_path, found).query("method == 'pkd' and split == 'dev'")
    assert points["value"].tolist() == [0.8, 0.82, 0.87]
    assert set(points["metric"]) == {"accuracy"}  # f1 is measured too, and is not the task's metric


def test_only_the_chosen_learning_rate_is_shown(tmp_path: Path) -> None:
    put(tmp_path, "pkd", 0, lr=1e-5, dev=0.7, history=HISTORY.format(9.0, "1", 9.0, "1"))
    put(tmp_path, "pkd", 0, lr=2e-5, dev=0.9, history=HISTORY.format(1.0, "2", 0.5, "3"))
    found = records(tmp_path)
    assert set(data.seeds(tmp_path, found)["lr"]) == {2e-5}
    assert data.curves(tmp_path, found)["most"].max() == 3.0
    drawn = data.layers(tmp_path, found)
    assert drawn[["epoch", "student_layer", "teacher_layer"]].to_numpy().tolist() == [
        [1, 1, 2],
        [2, 1, 3],
    ]


def test_curves_hold_every_term_and_the_range_over_seeds(tmp_path: Path) -> None:
    put(tmp_path, "pkd", 0, history=HISTORY.format(1.0, "2 4", 0.5, "1 5"))
    put(tmp_path, "pkd", 1, history=HISTORY.format(2.0, "3 4", "", "1 2"))
    found = data.curves(tmp_path, records(tmp_path))
    assert set(found["quantity"]) == {"loss/ce", "loss/kd", "loss/total", "dev/accuracy"}
    ce = found[found["quantity"] == "loss/ce"]
    assert ce[["epoch", "mean", "least", "most", "n"]].to_numpy().tolist() == [
        [1, 1.5, 1, 2, 2],
        [2, 0.5, 0.5, 0.5, 1],  # a term that a phase does not have
    ]
    drawn = data.layers(tmp_path, records(tmp_path)).query("seed == 1 and epoch == 1")
    assert drawn["teacher_layer"].tolist() == [3, 4]


# ------------------------------------------------------------------------------------- the files


@pytest.mark.runs
def test_every_figure_has_whole_files_that_are_the_same_from_process_to_process(
    tmp_path: Path,
) -> None:
    whole(tmp_path, ["pkd"])
    assert figures.main(["--results-dir", str(tmp_path)]) == 0
    folder = tmp_path / "figures"
    names = {path.stem.partition("--")[0] for path in folder.glob("*.svg")}
    assert names == {declared.name for declared in catalogue.FIGURES}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, content in before.items():
        if name.endswith(".svg"):
            assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
            assert b"<dc:date>" not in content
        if name.endswith(".pdf"):
            assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")
            assert b"CreationDate" not in content
    assert {Path(n).stem for n in before} == {p.stem for p in folder.glob("*.csv")}
    some = ["--figure", "curves", "--figure", "attention", "--figure", "time"]
    command = [sys.executable, "-m", "ilkd_bench.figures", "--results-dir", str(tmp_path), *some]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_csv_beside_a_figure_holds_its_numbers(tmp_path: Path) -> None:
    whole(tmp_path, ["pkd", "alp"])
    figures.main(["--results-dir", str(tmp_path), "--figure", "seeds"])
    found = pd.read_csv(tmp_path / "figures/seeds.csv")
    dev = found[found["split"] == "dev"]
    assert dict(zip(zip(dev["method"], dev["seed"]), dev["value"])) == pytest.approx(  # noqa: B905
        {("pkd", 0): 0.6, ("pkd", 1): 0.61, ("alp", 0): 0.62, ("alp", 1): 0.63}
    )


def test_pairs_settings_tasks_and_limited_runs_never_share_a_figure(tmp_path: Path) -> None:
    whole(tmp_path, ["pkd"])
    whole(tmp_path, ["pkd"], limit_train=100)
    whole(tmp_path, ["pkd"], task="rte")
    whole(tmp_path, ["pkd"], teacher="huge")
    for declared in catalogue.FIGURES:
        if declared.name in ("curves", "seeds"):
            write.write(declared, tmp_path, records(tmp_path), ("svg",))
    for name, count, keys in (
        ("curves", 4, ["section", "teacher", "task"]),
        ("seeds", 3, ["section", "teacher"]),
    ):
        files = sorted((tmp_path / "figures").glob(f"{name}--*.csv"))
        assert len(files) == count
        for path in files:
            assert len(pd.read_csv(path)[keys].drop_duplicates()) == 1
            assert ("huge-small" if "huge" in path.name else "big-small") in path.name


def test_a_limited_section_says_so_and_settings_tell_sections_apart(tmp_path: Path) -> None:
    whole(tmp_path, ["pkd"], limit_train=100)
    whole(tmp_path, ["pkd"], epochs=7)
    told = sorted(catalogue.subtitles(records(tmp_path)).values())
    assert told == [
        "big to small; 3 epochs; LIMITED RUNS (limit_train=100), not for comparing; "
        "apart from others of this pair: epochs=3 limit_train=100",
        "big to small; 7 epochs; apart from others of this pair: epochs=7 limit_train=None",
    ]


def test_files_of_earlier_figures_go(tmp_path: Path) -> None:
    whole(tmp_path, ["pkd"])
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in (
        "seeds--old-pair.svg",
        "seeds--old-pair.csv",
        "similarity_pairs--cls.svg",
        "mine.svg",
    ):
        (folder / name).write_text("old")
    figures.main(["--results-dir", str(tmp_path), "--figure", "seeds"])
    assert {path.name for path in folder.iterdir()} == {
        "seeds.svg",
        "seeds.pdf",
        "seeds.csv",
        "similarity_pairs--cls.svg",
        "mine.svg",
    }


@pytest.mark.runs
def test_hostile_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    """Names that are mathematics or mark-up elsewhere, and one longer than a panel."""
    names = [HOSTILE, "long_" * 20, "\\"]
    for number, name in enumerate(names):
        other: dict[str, Any] = {"changes": {"name": name}, "task": "t$a_%<b>"}
        put(
            tmp_path,
            f"m{number}",
            0,
            history=HISTORY.format(1.0, "2 4", 0.5, "1 5").replace("loss/kd", "loss/$k_d$"),
            analysis={"similarity": SMALL, "pca": PCA, "attention": ATTENTION},
            **other,
        )
    found = records(tmp_path)
    written = [write.write(d, tmp_path, found, ("svg",)) for d in catalogue.FIGURES]
    assert all(written)
    for path in itertools.chain(*written):
        root = ElementTree.parse(path).getroot()
        assert not [node for node in root.iter() if node.tag.endswith(("script", "}b"))]


def test_text_is_no_mathematics(tmp_path: Path) -> None:
    with style.style():
        figure = plots.curves(
            pd.DataFrame(
                {
                    "method": "$x^2$",
                    "quantity": ["loss/ce", "loss/ce"],
                    "epoch": [1, 2],
                    "mean": [1.0, 2.0],
                    "least": [1.0, 2.0],
                    "most": [1.0, 2.0],
                }
            ),
            "50 % of $5",
        )
    texts = [figure.axes[0].title, figure._suptitle]
    assert [text.get_text() for text in texts] == ["$x^2$", "50 % of $5"]
    assert not any(text.get_parse_math() for text in texts)


def test_eighteen_methods_have_marks_that_differ_without_colour() -> None:
    marks = [style.mark(number) for number in range(18)]
    assert len({(m["marker"], m["mfc"] == "white") for m in marks}) == 18


def test_no_two_texts_overlap(tmp_path: Path) -> None:
    """Headings, tick labels, axis labels and legends, with 18 methods of long names."""
    methods = [f"a_method_{n} (projection_width=256 temperature={n})" for n in range(18)]
    methods[7] += " and many other settings" * 3
    for n, name in enumerate(methods):
        put(tmp_path, f"m{n:02}", 0, dev=0.5 + n / 100, changes={"name": name})
    for name in ("seeds", "time"):
        (declared,) = [d for d in catalogue.FIGURES if d.name == name]
        table = declared.prepare(tmp_path, records(tmp_path))
        with style.style():
            figure = declared.draw(table, f"{declared.title}\nbig to small; 3 epochs")
            style.place(figure)
            boxes = []
            for ax in figure.axes:
                texts = [ax.title, ax.xaxis.label, ax.yaxis.label]
                for axis in (ax.xaxis, ax.yaxis):
                    low, high = sorted(axis.get_view_interval())
                    ticks = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
                    texts += [text for where, text in ticks if low <= where <= high]
                boxes += [t.get_window_extent() for t in texts if t.get_text() and t.get_visible()]
            boxes += [legend.get_window_extent() for legend in figure.legends]
            boxes.append(figure._suptitle.get_window_extent())
        inside = figure.bbox.padded(1)
        for box in boxes:
            assert inside.x0 <= box.x0 and box.x1 <= inside.x1, (name, box)
            assert inside.y0 <= box.y0 and box.y1 <= inside.y1, (name, box)
        for one, two in itertools.combinations(boxes, 2):
            assert not one.padded(-1).overlaps(two.padded(-1)), (name, one, two)


# ----------------------------------------------------------------------------------- the command


def test_what_is_missing_is_told_with_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "pkd", 0)
    assert figures.main(["--results-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "figure: " in shown.out
    told = {line.split(":")[1].split()[-1] for line in shown.err.splitlines()}
    assert told == {
        *("similarity", "similarity_pairs", "cka", "distance", "attention", "pca"),
        *("curves", "layers"),
    }
    assert "python -m ilkd_bench.analyse" in shown.err
    assert figures.main(["--results-dir", str(tmp_path), "--figure", "cka"]) == 1


def test_without_records_the_message_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert figures.main(["--results-dir", str(tmp_path)]) == 2
    assert "python -m ilkd_bench.run" in capsys.readouterr().err


def test_failed_runs_alone_give_no_figure(tmp_path: Path) -> None:
    put(tmp_path, "pkd", 0, status="failed")
    assert figures.main(["--results-dir", str(tmp_path)]) == 0
    assert not list(tmp_path.glob("figures/*"))


@pytest.mark.parametrize("text", ["", "pooling,student_layer\ncls,1\n"])
def test_a_damaged_analysis_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "pkd", 0, analysis={"similarity": text})
    assert figures.main(["--results-dir", str(tmp_path), "--figure", "cka"]) == 2
    told = capsys.readouterr().err
    assert "similarity.csv" in told and "python -m ilkd_bench.analyse --force" in told


@pytest.mark.parametrize("name", ["x/../../victim", "/etc/passwd", "..", "a" * 5_000, "x\x1b[2J\n"])
def test_names_of_records_are_no_paths(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "deep/results"
    items = [record("pkd", student=student) for student in (name, "small")]
    for number, item in enumerate(items):
        folder = root / f"runs/t/p/m/s{number}-{item['id']}"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(item | {"seconds": {"train": 1.0}}))
    assert figures.main(["--results-dir", str(root), "--figure", "time"]) == 0
    assert len(list((root / "figures").glob("time--*.svg"))) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert {path.name for path in root.iterdir()} == {"runs", "figures"}
    assert "\x1b" not in capsys.readouterr().out


def test_one_damaged_history_leaves_its_figures_out_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "pkd", 0, history="epoch,loss/ce\nmany,0.5\n")
    put(tmp_path, "pkd", 1, history="epoch,loss/ce\n1,0.5\n")
    assert figures.main(["--results-dir", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "seeds.svg" in told.out and "curves" not in told.out
    assert "no figure curves: " in told.err and "there is text in its column epoch" in told.err
