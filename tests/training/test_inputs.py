"""What is refused when models are built and rows are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toys

from ilkd_bench.training.inputs import build_student, build_teacher, read_splits
from ilkd_bench.types import BadInput


def test_an_error_says_which_of_the_models_it_is_about() -> None:
    run = toys.run("teacher.heads=0", "student.width=0")
    with pytest.raises(BadInput, match=r"^teacher\.heads=0: allowed is"):
        build_teacher(run)
    with pytest.raises(BadInput, match=r"^student\.width=0: allowed is"):
        build_student(run)


def test_text_that_a_tokenizer_loses_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "custom").mkdir()
    for split in ("train", "validation"):
        rows = [
            {"sentence": text, "label": label}
            for text, label in (("an enthralling picture", 1), ("utterly tedious", 0))
        ]
        lines = "\n".join(json.dumps(row) for row in rows * 4)
        (tmp_path / "custom" / f"{split}.jsonl").write_text(lines)
    run = toys.run("task=custom", f"data_dir={tmp_path}", f"cache_dir={tmp_path / 'cache'}")
    student, teacher = build_student(run), build_teacher(run)
    with pytest.raises(BadInput, match="the student's tokenizer does not know") as error:
        read_splits(run, student, teacher.model)
    assert "The tiny models know the words of the demo tasks only" in str(error.value)
