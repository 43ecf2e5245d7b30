"""What is computed from stored students: against plain numpy, on whole small runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toys
from closeness import close
from toys import write_record

from ilkd_bench import analyse
from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import attempt
from ilkd_bench.records.read import load_records
from ilkd_bench.settings import identity
from ilkd_bench.students import inspect, similarity
from ilkd_bench.types import Outputs

pytestmark = pytest.mark.runs

# ---------------------------------------------------------------------------------- the numbers


def test_similarities_by_hand() -> None:
    x = np.array([[1.0, 0.0], [0.0, 2.0]])
    y = np.array([[3.0, 4.0], [0.0, 5.0]])
    s = {p: x[:, None] for p in ("cls", "mean")}  # one layer each
    t = {p: y[:, None] for p in ("cls", "mean")}
    table = similarity.similarity(s, t)
    assert table["pooling"].tolist() == ["cls", "mean"]
    assert table["rows"].tolist() == [2, 2]
    assert table["cosine"][0] == pytest.approx((0.6 + 1.0) / 2)
    # the first pair: (1, 0) and (0.6, 0.8) are sqrt(0.16 + 0.64) apart; the second is equal
    assert table["distance"][0] == pytest.approx(0.8**0.5 / 2)
    # two rows, centred, are +-v and +-w: any two such sets have CKA 1
    assert table["cka"][0] == pytest.approx(1)


def cka(x: np.ndarray, y: np.ndarray) -> float:
    """Kornblith et al., section 3: HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)), with H = I - 1/n."""
    n = len(x)
    h = np.eye(n) - 1 / n

    def hsic(k: np.ndarray, m: np.ndarray) -> float:
        return float(np.trace(k @ h @ m @ h)) / (n - 1) ** 2

    k, m = x @ x.T, y @ y.T
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def test_similarities_against_another_computation() -> None:
    generator = np.random.default_rng(0)
    s = {p: generator.normal(size=(7, 3, 5)) for p in ("cls", "mean")}
    t = {p: generator.normal(size=(7, 4, 5)) + 1 for p in ("cls", "mean")}
    table = similarity.similarity(s, t).set_index(["pooling", "student_layer", "teacher_layer"])
    assert len(table) == 2 * 3 * 4
    for (pooling, i, j), row in table.iterrows():
        cosines, distances = [], []
        for a, b in zip(s[pooling][:, i], t[pooling][:, j], strict=True):
            cosine = sum(a * b) / (sum(a * a) * sum(b * b)) ** 0.5
            cosines.append(cosine)
            distances.append((2 - 2 * cosine) ** 0.5)
        assert row["cosine"] == pytest.approx(np.mean(cosines))
        assert row["distance"] == pytest.approx(np.mean(distances))
        assert row["cka"] == pytest.approx(cka(s[pooling][:, i], t[pooling][:, j]))


def test_unequal_widths_have_cka_alone_and_constants_not_even_that() -> None:
    generator = np.random.default_rng(0)
    s = {p: generator.normal(size=(7, 2, 5)) for p in ("cls", "mean")}
    t = {p: generator.normal(size=(7, 2, 3)) for p in ("cls", "mean")}
    s["cls"][:, 0] = s["cls"][:1, 0] * (1 + 1e-8 * generator.normal(size=(7, 1)))
    table = similarity.similarity(s, t)
    assert table[["cosine", "distance"]].isna().all(axis=None)
    constant = (table["pooling"] == "cls") & (table["student_layer"] == 0)
    assert table["cka"].isna().tolist() == constant.tolist()


def test_components_against_the_eigenvectors_of_the_covariance() -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(40, 4)) * [5, 1, 3, 0.5] + 7
    points, share = similarity.components(x)
    values, vectors = np.linalg.eigh(np.cov(x.T))
    for number, column in enumerate((-1, -2)):
        expected = (x - x.mean(axis=0)) @ vectors[:, column]
        expected *= np.sign(expected @ points[:, number])
        np.testing.assert_allclose(points[:, number], expected, atol=1e-9)
        assert share[number] == pytest.approx(values[column] / values.sum())


def test_the_plane_is_shared_where_widths_are_equal() -> None:
    generator = np.random.default_rng(2)
    labels, index = np.array([1, 0, 1]), np.array([4, 7, 9])

    def draw(layers: int, width: int) -> dict[str, np.ndarray]:
        return {p: generator.normal(size=(3, layers + 1, width)) for p in ("cls", "mean")}

    s, t = draw(3, 4), draw(4, 4)
    table = similarity.pca(s, t, index, labels)
    assert set(table["plane"]) == {"shared"}
    assert len(table) == 2 * 3 * (2 + 3)  # layers 1..L-1
    stacked = np.concatenate([t["mean"][:, 1:4].reshape(-1, 4), s["mean"][:, 1:3].reshape(-1, 4)])
    points, _ = similarity.components(stacked)
    mine = table[table["pooling"] == "mean"].reset_index()
    one = mine[(mine["model"] == "student") & (mine["layer"] == 2) & (mine["row"] == 7)]
    place = 9 + 2 * 1 + 1  # after the teacher's 9 vectors: row 1 of 3, the second of two layers
    assert one[["pc1", "pc2", "label"]].to_numpy().tolist() == [[*points[place], 0]]
    own = similarity.pca(draw(3, 5), t, index, labels)
    assert set(own["plane"]) == {"own"}
    assert set(own["model"]) == {"teacher", "student"}


def test_a_model_of_one_layer_has_no_intermediate_vectors() -> None:
    vectors = {p: np.ones((3, 2, 4)) for p in ("cls", "mean")}
    assert similarity.pca(vectors, vectors, np.arange(3), np.zeros(3)).empty


def test_the_sample_is_the_same_every_time_and_never_too_large() -> None:
    one = inspect.sample(50, 10, 3)
    assert len(set(one.tolist())) == 10 and (np.diff(one) > 0).all() and one.max() < 50
    assert (inspect.sample(50, 10, 3) == one).all()
    assert (inspect.sample(50, 10, 4) != one).any()
    assert inspect.sample(5, 10, 0).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("scale", ["none", "sqrt_width"])
@pytest.mark.parametrize("include_last", [False, True])
def test_the_attention_of_alp_against_a_softmax_in_numpy(scale: str, include_last: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    small, big = toys.spec(3, width=4), toys.spec(5, width=4)
    method = toys.method("alp", small, big, scale=scale, include_last=include_last)
    shown = [toys.raw(spec, generator).outputs(frozenset({"cls"})) for spec in (small, big)]
    s, t = shown
    found = method.layer_attention(s, t).numpy()
    layers = [1, 2, 3][: 3 if include_last else 2], [1, 2, 3, 4, 5][: 5 if include_last else 4]
    expected = np.full((4, 4, 6), np.nan)
    for row in range(4):
        for i in layers[0]:
            query = s.cls[row, i].double().numpy() / (2 if scale == "sqrt_width" else 1)
            products = np.array([query @ t.cls[row, j].double().numpy() for j in layers[1]])
            weights = np.exp(products - products.max())
            expected[row, i, layers[1]] = weights / weights.sum()
    assert (np.isnan(found) == np.isnan(expected)).all()
    close(np.nan_to_num(found), np.nan_to_num(expected))


def test_methods_that_attend_say_so_and_the_others_do_not() -> None:
    small, big = toys.spec(3), toys.spec(6)
    s, t = (toys.raw(spec, torch.Generator()).outputs(frozenset({"cls"})) for spec in (small, big))
    attending = set()
    for name in toys.METHODS:
        method = toys.method(name, small, big)
        if method.attends:
            attending.add(name)
            assert method.layer_attention(s, t).shape == (4, 4, 7)
    assert "alp" in attending and "pkd" not in attending


# --------------------------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def made(once: Callable[..., tuple[Path, Any]]) -> Path:
    """One run of ALP-KD with unequal widths, and one of PKD with equal ones."""

    def make(folder: Path) -> None:
        for words in (["method=alp", "student.width=32"], ["method=pkd"], ["method=finetune"]):
            keep = "none" if words == ["method=finetune"] else "all"
            (job,) = plan.plan(toys.small(folder, *words, f"keep_student={keep}"))
            attempt(job)

    return once("analysed-runs", make)[0]


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    """A copy of the results; the caches stay where they were made."""
    shutil.copytree(made / "results", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def places(made: Path) -> inspect.Places:
    return inspect.Places(None, made / "cache")


def folder_of(results: Path, method: str) -> Path:
    (found,) = results.glob(f"runs/*/*/{method}/s*")
    return found


@pytest.mark.runs
def test_runs_are_analysed_once_and_alike(
    results: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--results-dir", str(results), "--rows", "20", "--cache-dir", str(made / "cache")]
    assert analyse.main(where) == 0
    assert "3 runs: 2 analysed, 1 left out" in capsys.readouterr().out
    alp, pkd = (folder_of(results, m) / "analysis" for m in ("alp", "pkd"))
    assert {p.name for p in pkd.iterdir()} == {"similarity.csv", "pca.csv", "about.json"}
    before = {p: p.read_bytes() for p in results.glob("runs/*/*/*/*/analysis/*")}
    assert analyse.main(where) == 0
    assert "2 analysed before" in capsys.readouterr().out
    assert analyse.main([*where, "--force"]) == 0
    assert {p: p.read_bytes() for p in before} == before
    table = pd.read_csv(pkd / "similarity.csv")
    assert len(table) == 2 * 3 * 4 and set(table["rows"]) == {20}  # layers 0..2 and 0..3
    assert table["cosine"].notna().all()
    table = pd.read_csv(alp / "similarity.csv")
    assert table["cosine"].isna().all() and table["cka"].notna().any()
    weights = pd.read_csv(alp / "attention.csv")
    assert weights[["student_layer", "teacher_layer"]].to_numpy().tolist() == [[1, 1], [1, 2]]
    assert weights["weight"].sum() == pytest.approx(1) and set(weights["rows"]) == {64}


@pytest.mark.runs
def test_the_numbers_are_those_of_the_stored_student_and_the_fine_tuned_teacher(
    made: Path, results: Path, places: inspect.Places
) -> None:
    """Both models are loaded by transformers alone, and read the rows one at a time."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from ilkd_bench.data import tasks

    record = next(r for r in load_records(results).records if r.method == "pkd")
    folder = results / record.folder
    tables = inspect.analyse(record, folder, places, rows=6, seed=5)
    task = tasks.Task(**record.config["task"])
    dev = tasks.read(task, "dev", data_dir=None, limit=64)
    chosen = np.sort(np.random.default_rng(5).permutation(64)[:6])
    (teacher,) = (made / "cache/teachers").glob("*/model.safetensors")
    vectors = []
    for where in (folder / "student", teacher.parent):
        model = AutoModelForSequenceClassification.from_pretrained(where).eval()
        tokenizer = AutoTokenizer.from_pretrained(where)
        rows = []
        for row in chosen:
            inputs = tokenizer(dev.texts[0][row], return_tensors="pt")
            with torch.no_grad():
                hidden = model(**inputs, output_hidden_states=True).hidden_states
            rows.append(np.stack([h[0].mean(dim=0).double().numpy() for h in hidden]))
        vectors.append(np.stack(rows))  # [6, L+1, H]
    s, t = vectors
    found = tables["similarity"].query("pooling == 'mean'")
    for row in found.itertuples():
        a, b = s[:, row.student_layer], t[:, row.teacher_layer]
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        assert row.cosine == pytest.approx(((a * b).sum(axis=1) / lengths).mean(), abs=2e-3)
        assert row.cka == pytest.approx(cka(a, b), abs=5e-3)  # the bank is in 16 bit
    assert sorted(set(tables["pca"]["row"])) == sorted(dev.index[chosen].tolist())


def test_the_mean_attention_counts_every_row_once() -> None:
    """Batches of 4 out of 10 rows; the weights are the row number, so that their mean is 4.5."""

    class Counting:
        attends, needs = True, frozenset({"cls"})

        def layer_attention(self, s: Outputs, t: Outputs) -> torch.Tensor:
            weights = torch.full((len(t.logits), 2, 3), float("nan"))
            weights[:, 1, 2] = t.logits[:, 0]
            return weights

    class Numbers:
        def outputs(self, batch: Any, needs: Any, at: Any = None) -> Outputs:
            return Outputs(logits=batch["index"][:, None].float(), mask=torch.ones(1))

    student = toys.model()
    split = toys.split(10)
    found = inspect.attention(Counting(), student, Numbers(), split, 4, torch.device("cpu"))  # type: ignore[arg-type]
    assert found.to_dict("records") == [
        {"student_layer": 1, "teacher_layer": 2, "rows": 10, "weight": 4.5}
    ]


# ----------------------------------------------------------------------------------- the command


@pytest.mark.runs
def test_what_cannot_be_analysed_is_told_and_the_others_go_on(
    results: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pkd = folder_of(results, "pkd")
    (pkd / "student/model.safetensors").write_bytes(b"no weights")
    where = ["--results-dir", str(results), "--rows", "5"]
    assert analyse.main([*where, "--cache-dir", str(made / "cache")]) == 1
    shown = capsys.readouterr()
    assert "1 analysed" in shown.out and "1 failed" in shown.out and "1 left out" in shown.out
    assert "cannot be loaded" in shown.err
    assert "keep_student=all force=true" in shown.err
    assert not (pkd / "analysis").exists()


HOSTILE = "an_executed_file"


@pytest.mark.runs
def test_what_a_record_names_is_neither_run_nor_written_to(
    results: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code in argv, settings and the student's folder, and places to write to."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / HOSTILE)!r}, 'w')")
    pkd = folder_of(results, "pkd")
    record = json.loads((pkd / "record.json").read_text())
    record["argv"] += [
        *("method._target_=evil.run", "student={_target_: evil.run}", f"plugins={tmp_path}"),
        *(
            "hydra.launcher._target_=evil.run",
            f"cache_dir={tmp_path}/c",
            f"results_dir={tmp_path}/r",
        ),
    ]
    record["config"]["method"]["_target_"] = "evil.run"
    record["id"] = identity.run_id(record["config"])
    write_record(pkd, record)
    (pkd / "student/evil.py").write_text((tmp_path / "evil.py").read_text())
    before = sorted(path for path in tmp_path.rglob("*") if not path.is_relative_to(results))
    where = ["--results-dir", str(results), "--rows", "5", "--cache-dir", str(made / "cache")]
    assert analyse.main(where) == 0
    assert "2 analysed" in capsys.readouterr().out
    path = pkd / "student/config.json"
    model = json.loads(path.read_text()) | {"auto_map": {"AutoConfig": "evil.Config"}}
    path.write_text(json.dumps(model))
    assert analyse.main([*where, "--force"]) == 1
    said = capsys.readouterr()
    assert "1 analysed" in said.out and "auto_map in its config.json" in said.err
    assert before == sorted(p for p in tmp_path.rglob("*") if not p.is_relative_to(results))


@pytest.mark.runs
def test_what_is_not_stored_is_named_and_nothing_is_trained(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "empty"
    assert analyse.main(["--results-dir", str(results), "--cache-dir", str(cache)]) == 1
    said = capsys.readouterr()
    assert said.err.count("its teacher tiny12-demo_sentiment-") == 2
    assert f"is not in {cache}/teachers: give --cache-dir" in said.err
    assert not list(cache.rglob("*.safetensors"))


@pytest.mark.runs
def test_a_folder_with_links_is_not_analysed(
    results: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (folder_of(results, "pkd") / "analysis").symlink_to(tmp_path / "mine")
    where = ["--results-dir", str(results), "--rows", "5", "--cache-dir", str(made / "cache")]
    assert analyse.main(where) == 1
    assert "analysis: it is a link" in capsys.readouterr().err
    assert list((tmp_path / "mine").iterdir()) == []


def test_unknown_ids_and_empty_folders_are_refused(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyse.main(["--results-dir", str(tmp_path / "no")]) == 2
    assert "python -m ilkd_bench.run" in capsys.readouterr().err
    assert analyse.main(["--results-dir", str(results), "zzz"]) == 2
    assert "has an id that begins with 'zzz'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        analyse.main(["--rows", "1"])
    assert stop.value.code == 2


def test_an_analysis_of_another_student_or_of_other_rows_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "student").mkdir()
    weights = tmp_path / "student" / "model.safetensors"
    weights.write_bytes(b"one")
    inspect.write(tmp_path, {}, inspect.about(tmp_path, 100, 0))
    assert inspect.is_analysed(tmp_path, inspect.about(tmp_path, 100, 0))
    assert not inspect.is_analysed(tmp_path, inspect.about(tmp_path, 50, 0))
    assert not inspect.is_analysed(tmp_path, inspect.about(tmp_path, 100, 1))
    weights.write_bytes(b"two")
    assert not inspect.is_analysed(tmp_path, inspect.about(tmp_path, 100, 0))
    (tmp_path / "analysis" / "about.json").write_text("{")
    assert not inspect.is_analysed(tmp_path, inspect.about(tmp_path, 100, 0))
