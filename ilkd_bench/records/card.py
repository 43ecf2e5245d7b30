"""The model card of a student, for people and for the hub.

The front matter follows huggingface.co/docs/hub/model-cards. All that a record says is escaped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from ilkd_bench.data.tasks import Task, is_demo
from ilkd_bench.plumbing import files
from ilkd_bench.plumbing import text as escape
from ilkd_bench.plumbing.command import run_line, typable
from ilkd_bench.records.public import public
from ilkd_bench.records.read import read_record
from ilkd_bench.settings.identity import run_id

HUB_METRICS = {
    "accuracy": "accuracy",
    "f1": "f1",
    "mcc": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
"""Our names of the metrics -> the hub's."""

NO_LICENCE = "other"
MODEL = "FOLDER_OR_HUB_ID"
"""What stands for the model in the examples."""


def plain(value: Any) -> str:
    """Return a value as one line of text in which Markdown and HTML find nothing."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&!])", r"\\\1", " ".join(escape.plain(str(value)).split()))


def card(
    record: dict[str, Any],
    *,
    licence: str = NO_LICENCE,
    language: str | None = None,
    inputs: list[str] | None = None,
) -> str:
    """Return the README of a student.

    Args:
        record: of the run, without private things (`public`).
        licence: the hub's id of the licence of the weights.
        language: code of the text's language; None: it is not known.
        inputs: names of the inputs of `model.onnx`; None: there is no such file.
    """
    config = record["config"]
    names = {key: config[key]["name"] for key in ("student", "teacher", "task", "method")}
    title = "{student} taught by {teacher} on {task} with {method}".format(**names)
    parts = [
        f"---\n{front_matter(record, title, licence, language)}\n---",
        f"# {plain(title)}",
        _warning(record),
        _method(record),
        _models(record),
        _data(record),
        _scores(record),
        _cost(record),
        _repeat(record.get("argv")),
        _licence(licence),
        _loading(config["task"], inputs),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_card(folder: Path, science: dict[str, Any], measured: dict[str, Any]) -> None:
    """Write the card of the student in a run's folder, for which nobody has chosen a licence yet.

    Args:
        science: the run's identity.
        measured: that part of its record.
    """
    begun = read_record(folder)
    known: dict[str, Any] = {"id": run_id(science)} if begun is None else begun.content()
    record = public(known | {"config": science} | measured)
    text = card(record, language=language_of(Task(**science["task"])))
    files.write_text(folder / "student" / "README.md", text)


def language_of(task: Task) -> str | None:
    """Return the code of the language of a task's text; None: it is not known."""
    return "en" if task.hub is not None or is_demo(task) else None


# --------------------------------------------------------------------------------- the front matter


def front_matter(record: dict[str, Any], title: str, licence: str, language: str | None) -> str:
    """Return the YAML that the hub reads: licence, language, tags, data, and the scores."""
    config = record["config"]
    results = _results(record)
    sources = [part["hub"] for part in (config["task"], *config["task"]["ood"].values())]
    base = str(config["student"].get("path", "")).rpartition("@")[0]
    data = ModelCardData(
        license=licence,
        license_name="not-chosen" if licence == NO_LICENCE else None,
        language=language,
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["knowledge-distillation", "ilkd_bench", str(config["method"]["name"])],
        base_model=base or None,
        datasets=sorted({hub["path"] for hub in sources if hub}) or None,
        metrics=sorted({result.metric_type for result in results}),
        model_name=title if results else None,
        eval_results=results,
    )
    return data.to_yaml().strip()


def _results(record: dict[str, Any]) -> list[EvalResult]:
    return [
        EvalResult(
            task_type="text-classification",
            dataset_type=hub["path"] if hub else part["name"],
            dataset_name=part["name"],
            dataset_config=hub["config"] if hub else None,
            dataset_split=source,
            dataset_revision=hub["revision"] if hub else None,
            metric_type=HUB_METRICS.get(metric, metric),
            metric_value=value,
            metric_name=f"{metric} on {split}, {scores['n']} rows",
        )
        for split, scores in record["scores"].items()
        for part, source in [_place(record["config"]["task"], split)]
        for hub in [part["hub"]]
        for metric, value in sorted(scores.items())
        if metric != "n"
    ]


def _place(task: dict[str, Any], split: str) -> tuple[dict[str, Any], str]:
    """Return the task that a scored split belongs to, and the split's name at its source."""
    if split.startswith("ood/"):
        part = task["ood"][split.removeprefix("ood/")]
        return part, next(iter(part["splits"].values()))
    return task, task["splits"].get(split, split)


# ---------------------------------------------------------------------------------------- the text


def _warning(record: dict[str, Any]) -> str:
    if not record["limited"]:
        return ""
    limits = {k: record["config"][k] for k in ("limit_train", "limit_eval")}
    words = [f"{key} {plain(value)}" for key, value in limits.items() if value is not None]
    limited = f"A limited run ({', '.join(words)})"
    return f"**{limited}: for trying out. Its scores are not to be compared.**"


def _method(record: dict[str, Any]) -> str:
    config = record["config"]
    keys = "seed lr batch_size epochs max_length patience warmup_ratio weight_decay".split()
    settings = ", ".join(f"{plain(key)} {plain(config[key])}" for key in keys)
    method = {k: v for k, v in config["method"].items() if k not in ("name", "_target_")}
    return (
        f"## Method\n\nKnowledge distillation with ilkd\\_bench, method "
        f"**{plain(config['method']['name'])}** (run {plain(record['id'])}). The best epoch on "
        f"{plain(record['monitor'])} was kept: epoch {plain(record['best_epoch'])}. Settings: "
        f"{settings}. Settings of the method:\n\n```json\n{_json(method)}\n```"
    )


def _json(value: Any) -> str:
    """Return JSON that cannot end a fenced block: no line of it begins with a fence."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False)


def _models(record: dict[str, Any]) -> str:
    config, parameters = record["config"], record["parameters"]
    rows = [
        f"| {whose} | {plain(config[whose]['name'])} | {parameters[whose]:,} |"
        for whose in ("teacher", "student")
    ]
    scores = {k: v for k, v in record["teacher"]["dev"].items() if k != "n"}
    on_dev = ", ".join(f"{plain(k)} {v:.4f}" for k, v in sorted(scores.items()))
    return "\n".join(
        [
            "## Teacher and student",
            "",
            "| | model | parameters |",
            "|---|---|---|",
            *rows,
            "",
            f"The teacher was fine-tuned on the task; on dev it scores {on_dev} "
            f"({plain(record['teacher']['dev']['n'])} rows).",
        ]
    )


def _data(record: dict[str, Any]) -> str:
    task, data = record["config"]["task"], record["data"]
    trained = str(data["fingerprint"].get("train", ""))
    if trained.startswith("grammar"):
        source = "Its text is made by the seeded grammar of ilkd\\_bench"
    elif "@" in trained:
        source = f"From the hub: {plain(trained)}"
    else:
        source = "Read from files; their hashes are in record.json"
    if task["labels"] is not None:
        answers = ", ".join(map(plain, task["labels"]))
    elif task["score_range"] is not None:
        answers = "a score from {} to {}".format(*map(plain, task["score_range"]))
    else:
        answers = "a score"
    return (
        f"## Data\n\nTask **{plain(task['name'])}**. {source}. Trained on "
        f"{plain(data['train'])} rows. Answers: {answers}."
    )


def _scores(record: dict[str, Any]) -> str:
    lines = ["## Scores", "", "| data | split | metric | student | n |", "|---|---|---|---|---|"]
    for split, scores in record["scores"].items():
        part, source = _place(record["config"]["task"], split)
        named = split if split in (source, f"ood/{part['name']}") else f"{split} ({source})"
        for metric, value in sorted(scores.items()):
            if metric != "n":
                cells = (part["name"], named, metric, f"{value:.4f}", scores["n"])
                lines.append(f"| {' | '.join(map(plain, cells))} |")
    lines += ["", "In the metric's own unit. The dev split chose the epoch, so its scores are"]
    lines += ["optimistic. Splits with hidden labels are not scored."]
    return "\n".join(lines)


def _cost(record: dict[str, Any]) -> str:
    seconds = {key: f"{value:.1f} s" for key, value in record["seconds"].items()}
    return (
        f"## Cost\n\nTraining steps {seconds['train']}, getting the teacher ready "
        f"{seconds['teacher']}, evaluation {seconds['evaluate']}; "
        f"{record['examples_per_second']:.0f} rows a second in training. Device: "
        f"{plain(record['device'])}; precision {plain(record['precision'])}."
    )


def _repeat(words: list[str] | None) -> str:
    words = typable(words or ())
    if not words or not all(word.isprintable() for word in words):
        return ""
    return f"## Repeat it\n\nPaths are left out.\n\n```\n{run_line(words)}\n```"


def _licence(licence: str) -> str:
    if licence == NO_LICENCE:
        text = (
            "No licence was chosen yet. It depends on the licences of the student's first weights, "
            "of the teacher and of the data; choose one before sharing (`--license` of the export)."
        )
    else:
        text = f"{plain(licence)}, chosen by who exported the model."
    return f"## Licence\n\n{text}"


def _loading(task: dict[str, Any], inputs: list[str] | None) -> str:
    pair = len(task["text_columns"]) == 2
    example = '{"text": "One text.", "text_pair": "Another."}' if pair else '"A text."'
    parts = [
        "## How to load it",
        "",
        "```python",
        "from transformers import pipeline",
        "",
        f'classify = pipeline("text-classification", model="{MODEL}")',
        f"print(classify({example}, truncation=True))",
        "```",
    ]
    if task["labels"] is None:
        parts += ["", "It answers with the score itself, which may lie a little out of the range."]
    if inputs is not None:
        parts += ["", *_onnx(pair, inputs)]
    return "\n".join(parts)


def _onnx(pair: bool, inputs: list[str]) -> list[str]:
    text = '"One text.", "Another."' if pair else '"A text."'
    return [
        f"`model.onnx` takes {', '.join(f'`{name}`' for name in inputs)} (whole numbers, batch x",
        "length) and gives `logits`:",
        "",
        "```python",
        "from onnxruntime import InferenceSession",
        "from transformers import AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{MODEL}")',
        f'session = InferenceSession("{MODEL}/model.onnx")',
        f'encoded = tokenizer({text}, return_tensors="np")',
        "names = [i.name for i in session.get_inputs()]",
        '(logits,) = session.run(["logits"], {n: encoded[n].astype("int64") for n in names})',
        "```",
    ]
