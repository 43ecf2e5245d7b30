"""Banks on disk: whole or built again, gone on with after a kill, listed and removed."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from multiprocessing.synchronize import Event
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ilkd_bench import banks
from ilkd_bench.plumbing import files
from ilkd_bench.plumbing.files import log
from ilkd_bench.teachers import bank, cache
from ilkd_bench.types import BadInput

ROWS, BATCH, FLUSH = 40, 4, 3
SHAPES = {"logits": ((ROWS, 2), "float32"), "mean": ((ROWS, 3, 4), "float16")}
BYTES = ROWS * 2 * 4 + ROWS * 3 * 4 * 2
ABOUT = {"teacher": "tiny12", "epoch": None, "task": "demo_sentiment", "split": "train"}
DAY = 86400


def values(rows: np.ndarray, shapes: bank.Shapes = SHAPES) -> dict[str, np.ndarray]:
    """What a teacher would show for these rows: other numbers in every place."""
    found = {}
    for name, (shape, _) in shapes.items():
        inner = np.arange(np.prod(shape[1:])).reshape(shape[1:]) / 16
        found[name] = (rows.reshape(-1, *[1] * inner.ndim) + inner).astype(np.float32)
    return found


class Filler:
    """Fills a bank in batches of mixed rows and notes which; `stop` is called before batch `at`."""

    def __init__(
        self,
        *,
        at: int | None = None,
        stop: Callable[[], None] | None = None,
        shapes: bank.Shapes = SHAPES,
    ) -> None:
        self.batches: list[int] = []
        self.at, self.stop, self.shapes = at, stop, shapes

    def __call__(self, draft: bank.Draft) -> None:
        order = np.random.default_rng(0).permutation(ROWS)
        for number in range(draft.done, ROWS // BATCH):
            if number == self.at:
                assert self.stop is not None
                self.stop()
            rows = order[number * BATCH : (number + 1) * BATCH]
            draft.write(rows, values(rows, self.shapes))
            self.batches.append(number)
            if (number + 1) % FLUSH == 0:
                draft.flush(number + 1)


ALL = list(range(ROWS // BATCH))


def stop() -> None:
    raise RuntimeError("stopped")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def get(
    root: Path,
    fill: Callable[[bank.Draft], None],
    *,
    key: str = "k",
    shapes: bank.Shapes = SHAPES,
    about: Mapping[str, Any] = ABOUT,
) -> dict[str, np.ndarray]:
    return bank.obtain(root / "banks" / key, shapes, about, fill)


def right(arrays: dict[str, np.ndarray]) -> bool:
    expected = values(np.arange(ROWS))
    return set(arrays) == set(SHAPES) and all(
        np.array_equal(arrays[name], expected[name].astype(dtype)) and arrays[name].dtype == dtype
        for name, (_, dtype) in SHAPES.items()
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "banks").iterdir() if path.is_dir())


# ------------------------------------------------------------------------------------------- files


def test_a_bank_is_built_once_and_then_read(tmp_path: Path) -> None:
    first, second = Filler(), Filler()
    assert right(get(tmp_path, first)) and first.batches == ALL
    before = contents(tmp_path / "banks/k")
    assert right(get(tmp_path, second)) and second.batches == []
    assert contents(tmp_path / "banks/k") == before
    assert folders(tmp_path) == ["k"], "nothing is left aside"


def test_a_bank_is_one_numpy_file_per_field_and_a_description(tmp_path: Path) -> None:
    get(tmp_path, Filler(), about=ABOUT | {"epoch": 3})
    folder = tmp_path / "banks/k"
    assert set(contents(folder)) == {"logits.npy", "mean.npy", "meta.json", "used"}
    assert right({name: np.load(folder / f"{name}.npy") for name in SHAPES})
    meta = json.loads((folder / "meta.json").read_text())
    assert {name: meta[name] for name in ABOUT} == ABOUT | {"epoch": 3}
    assert meta["rows"] == ROWS and meta["format"] == bank.FORMAT
    for name in SHAPES:
        content = (folder / f"{name}.npy").read_bytes()
        assert meta["files"][name] == {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }


def test_arrays_stay_on_the_disk_and_cannot_be_written(tmp_path: Path) -> None:
    arrays = get(tmp_path, Filler())
    assert all(isinstance(array, np.memmap) for array in arrays.values())
    with pytest.raises(ValueError, match="read-only"):
        arrays["mean"][0] = 0


def test_banks_of_two_keys_do_not_meet(tmp_path: Path) -> None:
    get(tmp_path, Filler(), key="a")
    other = Filler()
    get(tmp_path, other, key="b")
    assert other.batches == ALL and folders(tmp_path) == ["a", "b"]


def test_reading_notes_the_time_of_use(tmp_path: Path) -> None:
    get(tmp_path, Filler())
    used = tmp_path / "banks/k/used"
    os.utime(used, (1, 1))
    get(tmp_path, Filler())
    assert time.time() - used.stat().st_mtime < 3600


def test_size_is_what_the_numbers_take() -> None:
    assert bank.size(SHAPES) == BYTES


# ------------------------------------------------------------------------------------------ damage


def flip(path: Path, at: int = -5) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))  # file times may be coarser than the test is fast


def other_json(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "meta.json").write_text(text)


def wrong_checksum(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    meta["files"]["mean"]["sha256"] = "0" * 64
    (folder / "meta.json").write_text(json.dumps(meta))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "logits flipped": lambda f: flip(f / "logits.npy"),
    "mean flipped": lambda f: flip(f / "mean.npy"),
    "truncated": lambda f: os.truncate(f / "mean.npy", BYTES // 2),
    "empty": lambda f: os.truncate(f / "logits.npy", 0),
    "array missing": lambda f: (f / "mean.npy").unlink(),
    "meta missing": lambda f: (f / "meta.json").unlink(),
    "meta empty": other_json(""),
    "meta half": lambda f: os.truncate(f / "meta.json", 40),
    "meta no text": lambda f: (f / "meta.json").write_bytes(b"\xff\xfe\x00"),
    "meta {}": other_json("{}"),
    "meta list": other_json("[1]"),
    "meta null": other_json("null"),
    "meta of others": other_json('{"files": {"cls": {"bytes": 3, "sha256": "00"}}}'),
    "wrong checksum": wrong_checksum,
    "all gone": lambda f: [path.unlink() for path in f.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_bank_is_noticed_and_built_again(
    damage: Callable[[Path], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    get(tmp_path, Filler())
    whole = contents(tmp_path / "banks/k")
    damage(tmp_path / "banks/k")
    assert not caplog.records
    again, then = Filler(), Filler()
    assert right(get(tmp_path, again)) and again.batches == ALL
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "the bank k is damaged" in warning.getMessage()
    assert contents(tmp_path / "banks/k") == whole
    assert right(get(tmp_path, then)) and then.batches == [], "and then it is whole"
    assert folders(tmp_path) == ["k"]


def test_arrays_of_an_earlier_reader_outlive_a_rebuild(tmp_path: Path) -> None:
    arrays = get(tmp_path, Filler())
    (tmp_path / "banks/k/meta.json").unlink()
    get(tmp_path, Filler())
    assert right(arrays)


# -------------------------------------------------------------------------------------- half-built


def test_a_build_that_was_broken_off_goes_on_where_it_was_flushed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        get(tmp_path, Filler(at=7, stop=stop))
    assert not (tmp_path / "banks/k").exists(), "half a bank is none"
    with pytest.raises(RuntimeError, match="stopped"):
        get(tmp_path, (second := Filler(at=9, stop=stop)))
    assert second.batches == [6, 7, 8]
    last = Filler()
    assert right(get(tmp_path, last)) and last.batches == [9]
    get(tmp_path / "undisturbed", Filler())
    assert contents(tmp_path / "banks/k") == contents(tmp_path / "undisturbed/banks/k")
    assert folders(tmp_path) == ["k"]


def test_a_build_that_was_broken_off_before_its_first_flush_starts_over(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        get(tmp_path, Filler(at=2, stop=stop))
    again = Filler()
    assert right(get(tmp_path, again)) and again.batches == ALL


def _killed(root: Path) -> None:
    """In another process: die of signal 9 in the middle."""
    get(root, Filler(at=8, stop=die))


def test_a_killed_build_frees_its_lock_and_is_gone_on_with(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(tmp_path,))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    rest = Filler()
    assert right(get(tmp_path, rest)) and rest.batches == [6, 7, 8, 9]
    get(tmp_path / "undisturbed", Filler())
    assert contents(tmp_path / "banks/k") == contents(tmp_path / "undisturbed/banks/k")


WRITTEN = 128 + 24 * int(np.random.default_rng(0).permutation(ROWS)[0])
"""In `mean.npy`, where the row lies that is written first: after the header, 24 bytes a row."""


def aside(root: Path) -> Path:
    (folder,) = [path for path in (root / "banks").iterdir() if path.is_dir()]
    return folder


def progress(**changes: Any) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        path = aside(root) / "progress.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def text(content: str) -> Callable[[Path], Any]:
    return lambda root: (aside(root) / "progress.json").write_text(content)


LEFTOVERS: dict[str, Callable[[Path], Any]] = {
    "empty progress": text(""),
    "half progress": lambda root: os.truncate(aside(root) / "progress.json", 20),
    "progress is a list": text("[6]"),
    "progress is null": text("null"),
    "progress without number": progress(done=None),
    "progress without shapes": progress(shapes=None),
    "progress missing": lambda root: (aside(root) / "progress.json").unlink(),
    "progress says more": progress(done=9),
    "order missing": lambda root: (aside(root) / bank.ORDER).unlink(),
    "order flipped": lambda root: flip(aside(root) / bank.ORDER, at=0),
    "a written row flipped": lambda root: flip(aside(root) / "mean.npy", at=WRITTEN),
    "array shorter": lambda root: os.truncate(aside(root) / "mean.npy", 300),
    "array missing": lambda root: (aside(root) / "logits.npy").unlink(),
    "all gone": lambda root: [path.unlink() for path in aside(root).iterdir()],
}


@pytest.mark.parametrize("spoil", LEFTOVERS.values(), ids=LEFTOVERS)
def test_a_leftover_that_cannot_be_gone_on_with_is_discarded(
    spoil: Callable[[Path], Any], tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        get(tmp_path, Filler(at=7, stop=stop))
    spoil(tmp_path)
    again = Filler()
    assert right(get(tmp_path, again)) and again.batches == ALL
    assert folders(tmp_path) == ["k"]


@pytest.mark.parametrize(
    "other",
    [
        {"logits": ((ROWS, 2), "float32"), "mean": ((ROWS, 4, 3), "float16")},  # bytes as many
        {"logits": ((ROWS, 2), "float32"), "mean": ((ROWS, 3, 4), "float32")},
        {"logits": ((ROWS, 2), "float32")},
        {"logits": ((ROWS, 2), "float32"), "cls": ((ROWS, 3, 4), "float16")},
    ],
    ids=["turned", "dtype", "fewer", "others"],
)
def test_a_leftover_of_other_shapes_is_discarded(other: bank.Shapes, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        get(tmp_path, Filler(at=7, stop=stop, shapes=other), shapes=other)
    again = Filler()
    assert right(get(tmp_path, again)) and again.batches == ALL
    assert set(contents(tmp_path / "banks/k")) == {"logits.npy", "mean.npy", "meta.json", "used"}


# ---------------------------------------------------------------------------------- disk and range


def disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    usage = SimpleNamespace(total=10**12, used=10**12 - free, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


def test_too_little_space_is_told_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk(monkeypatch, 700)
    fill = Filler()
    with pytest.raises(BadInput) as error:
        get(tmp_path, fill)
    message = str(error.value)
    assert "the bank of tiny12 on train needs 1.3 kB" in message and "700 bytes free" in message
    assert str(tmp_path / "banks") in message
    for way_out in ("python -m ilkd_bench.banks prune", "cache_dir=", "bank=off"):
        assert way_out in message
    assert fill.batches == [] and folders(tmp_path) == []


def test_just_enough_space_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, BYTES - 1)
    with pytest.raises(BadInput, match="bank=off"):
        get(tmp_path, Filler())
    disk(monkeypatch, BYTES)
    assert right(get(tmp_path, Filler()))


def test_what_is_half_built_needs_no_more_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        get(tmp_path, Filler(at=7, stop=stop))
    disk(monkeypatch, 0)
    rest = Filler()
    assert right(get(tmp_path, rest)) and rest.batches == [6, 7, 8, 9]


def write(folder: Path, dtype: str, value: float) -> np.ndarray:
    draft = bank.Draft(folder, {"cls": ((3, 1, 2), dtype)})
    draft.write(np.array([1]), {"cls": np.full((1, 1, 2), value, np.float32)})
    draft.close()
    return np.load(folder / "cls.npy")[:, 0, 0]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float16", 1e5), ("float16", -65520)],
)
def test_a_value_beyond_the_range_is_refused(dtype: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        write(tmp_path / "aside", dtype, value)
    message = str(error.value)
    assert "cls" in message and dtype in message
    assert "bank_dtype=float32" in message and "bank=off" in message
    assert not (tmp_path / "aside").exists()


@pytest.mark.parametrize(
    ("dtype", "value", "what"),
    [("float16", np.nan, "NaN"), ("float16", np.inf, "infinite"), ("float32", np.inf, "infinite")],
)
def test_a_broken_teacher_is_refused_and_named(
    dtype: str, value: float, what: str, tmp_path: Path
) -> None:
    """No other dtype helps, nor does running it at every step."""

    def fill(draft: bank.Draft) -> None:
        draft.write(np.array([1]), {"cls": np.full((1, 1, 2), value, np.float32)})

    with pytest.raises(BadInput) as error:
        get(tmp_path, fill, shapes={"cls": ((3, 1, 2), dtype)})
    message = str(error.value)
    assert f"the teacher tiny12 answers with {what}" in message and "cls" in message
    assert "teacher.checkpoint=" in message and "teacher.recipe.lr=" in message
    assert "bank" not in message
    assert folders(tmp_path) == []


@pytest.mark.parametrize(("dtype", "value"), [("float16", 65504), ("float32", 1e5)])
def test_a_value_within_the_range_is_kept(dtype: str, value: float, tmp_path: Path) -> None:
    assert write(tmp_path / "aside", dtype, value).tolist() == [0, value, 0]


def peak(folder: Path, rows: int) -> int:
    """The most bytes that Python and numpy hold at once while a bank is written.

    A row's values take 768 bytes in the bank, a batch's about 100 kB in memory.
    """
    shapes = {"mean": ((rows, 3, 128), "float16")}
    draft = bank.Draft(folder, shapes)
    part = np.ones((64, 3, 128), np.float32)
    tracemalloc.start()
    try:
        for start in range(0, rows, 64):
            draft.write(np.arange(start, start + 64), {"mean": part})
            if start % 4096 == 0:
                draft.flush(start // 64)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        draft.close()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peak(tmp_path / "warm", 1024)  # what is imported or cached once
    few, many = peak(tmp_path / "few", 1024), peak(tmp_path / "many", 8192)
    assert many - few < 0.1 * few
    assert many < 8192 * 768 / 10


# ----------------------------------------------------------------------------------- two processes


def _hold(root: Path, started: Event, other_waits: Event) -> None:
    """In another process: build the bank, but not before the other one waits for it."""

    def wait() -> None:
        started.set()
        assert other_waits.wait(120)

    get(root, Filler(at=4, stop=wait))


def test_two_processes_build_a_bank_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    started, waiting = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, started, waiting))
    process.start()

    class Waits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == (
                "waiting: another run is building the bank of tiny12 on train"
            ):
                waiting.set()

    handler, level = Waits(), log.level
    try:
        assert started.wait(120)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        fill = Filler()
        arrays = get(tmp_path, fill)
        process.join(120)
        assert process.exitcode == 0
        assert waiting.is_set() and fill.batches == [] and right(arrays)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        if process.is_alive():
            process.kill()
        process.join()


# ------------------------------------------------------------------------------------ command line


def stocked(root: Path, key: str, *, kilobytes: int = 100, days: float, built: float = 9) -> None:
    """A bank that was last used so many days ago."""
    shapes = {"logits": ((kilobytes, 250), "float32")}

    def fill(draft: bank.Draft) -> None:
        rows = np.arange(kilobytes)
        draft.write(rows, {"logits": np.ones((kilobytes, 250), np.float32)})

    get(root, fill, key=key, shapes=shapes, about=ABOUT | {"teacher": f"of_{key}"})
    now = time.time()
    os.utime(root / "banks" / key / "used", (now - days * DAY,) * 2)
    os.utime(root / "banks" / key / "meta.json", (now - built * DAY,) * 2)


def half_built(root: Path, key: str) -> None:
    with pytest.raises(RuntimeError, match="stopped"):
        get(root, Filler(at=7, stop=stop), key=key)


def command(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> list[str]:
    """The lines that the command says."""
    capsys.readouterr()
    assert banks.main([*words, "--cache-dir", str(root)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [line.strip() for line in out.splitlines()]


def line_of(key: str, lines: list[str]) -> str:
    (line,) = [line for line in lines if line.startswith(f"{key} ")]
    return line


@pytest.mark.parametrize("words", [[], ["list"]], ids=["nothing", "list"])
def test_the_command_lists_banks_last_used_first(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    get(tmp_path, Filler(), key="features", about=ABOUT | {"epoch": 7, "split": "dev"})
    stocked(tmp_path, "old", days=6, built=8)
    stocked(tmp_path, "middle", days=4, kilobytes=300)
    before = sorted(tmp_path.rglob("*"))
    head, *lines, total = command(capsys, tmp_path, *words)
    assert (
        head.split() == "name kind teacher epoch task split rows fields size age last use".split()
    )
    first, second, third = (line.split() for line in lines)
    assert first[:9] == "features bank tiny12 7 demo_sentiment dev 40 logits mean".split()
    assert second[:7] == "middle bank of_middle demo_sentiment train 300 logits".split()
    assert third[:7] == "old bank of_old demo_sentiment train 100 logits".split()
    assert 300 <= float(second[7]) < 320 and 100 <= float(third[7]) < 120
    assert second[8] == third[8] == "kB"
    assert third[9:] == "8 days 6 days".split() and second[9:] == "9 days 4 days".split()
    assert first[-1] == "seconds" and float(first[-2]) < 120
    assert total.startswith("3 banks in") and str(tmp_path) in total
    assert sorted(tmp_path.rglob("*")) == before, "listing changes nothing"


def test_what_is_half_built_is_listed_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half_built(tmp_path, "begun")
    stocked(tmp_path, "whole", days=1)
    lines = command(capsys, tmp_path)
    assert "half-built" in line_of("begun", lines)
    assert "half-built" not in line_of("whole", lines)


def test_all_that_is_stored_is_listed_and_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stocked(tmp_path, "whole", days=1)
    half_built(tmp_path, "begun")
    files.file_hash(Path(__file__), tmp_path)
    folders_of = {
        "teachers/tiny12-sst2-0a": {"teacher.json": '{"files": {"model.safetensors": ""}}'},
        "teachers/.tiny12-rte-0b.best": {"model.safetensors": "w" * 9000},
        "teachers/.tiny12-rte-0c.snapshots": {"checkpoint/last.ckpt": "w" * 9000},
        "teachers/.tiny12-rte-0d.gone": {"model.safetensors": "w"},
        "teachers/bert.v1-sst2-0e": {"model.safetensors": "w"},
        "tokens/77aa": {"meta.json": '{"files": {}}', "ids.npy": "i" * 9000},
        "models/e5-88dd": {"converted.json": '{"files": {}}', "model.safetensors": "w" * 9000},
        "models/.e5-88ee.4711": {"model.safetensors": "w"},
        "tokens/.77bb.4711": {"ids.npy": "i"},
        "tokens/77cc": {"meta.json": '{"ids": "0", "types": "1", "offsets": "2"}'},
    }
    for folder, content in folders_of.items():
        for name, text in content.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    _, *lines, total = command(capsys, tmp_path)
    kinds = {line.split()[0]: line.split()[1:3] for line in lines}
    assert kinds["tiny12-sst2-0a"][0] == "teacher" and kinds["77aa"][0] == "tokens"
    assert kinds["77cc"][0] == "tokens", "of an earlier version"
    assert kinds["tiny12-rte-0b"] == kinds["tiny12-rte-0c"] == ["half-trained", "teacher"]
    assert kinds["bert.v1-sst2-0e"] == ["damaged", "teacher"]
    assert kinds["begun"] == ["half-built", "bank"] and kinds["whole"][0] == "bank"
    assert kinds["tiny12-rte-0d"][0] == kinds["77bb"][0] == "leftover"
    assert kinds["e5-88dd"] == ["converted", "model"] and kinds["e5-88ee"][0] == "leftover"
    assert kinds["hashes"][0] == "hashes"
    assert all("kB" in line or "bytes" in line for line in lines)
    assert total.startswith("1 bank") and "2 half-trained teachers" in total
    with files.locked(tmp_path / "teachers/tiny12-rte-0b", ""):
        command(capsys, tmp_path, "prune", "--older-than", "0")
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert [path.parent.name for path in kept] == [".tiny12-rte-0b.best"], "a run is at it"


@pytest.mark.parametrize("content", ["", "[1]", "null", "3", '{"files": 1}', "{}"])
def test_a_damaged_description_does_not_end_the_command(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("bad", "good"):
        stocked(tmp_path, key, days=3)
    (tmp_path / "banks/bad/meta.json").write_text(content)
    lines = command(capsys, tmp_path)
    assert "damaged" in line_of("bad", lines) and "of_good" in line_of("good", lines)
    command(capsys, tmp_path, "prune", "--max-size", "0")
    assert folders(tmp_path) == []


@pytest.mark.parametrize("name", ["never_made", "[red]in_brackets"])
def test_a_cache_folder_without_banks_is_fine(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([], ["prune", "--older-than", "0"]):
        assert command(capsys, tmp_path / name, *words)[-1].startswith("0 banks")
    assert name in command(capsys, tmp_path / name)[-1]
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--older-than", "10"], "abc"),
        (["--older-than", "2.5"], "ab"),
        (["--older-than", "0.5"], ""),
        (["--max-size", "1"], "abc"),
        (["--max-size", "0.000450"], "ab"),
        (["--max-size", "0.000250"], "a"),
        (["--max-size", "0"], ""),
        (["--older-than", "2.5", "--max-size", "0.000250"], "a"),
        (["--older-than", "1.5", "--max-size", "1"], "a"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "left " + v,
)
def test_prune_removes_what_is_old_or_too_much_the_least_recently_used_first(
    words: list[str], left: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, days in (("b", 2), ("a", 1), ("c", 3)):
        stocked(tmp_path, key, days=days, kilobytes=200, built=9 - days)
    lines = command(capsys, tmp_path, "prune", *words)
    assert folders(tmp_path) == list(left)
    assert sorted(line[0] for line in lines[1:-1]) == [key for key in "abc" if key not in left]
    assert f"{3 - len(left)} banks removed" in lines[-1]
    for key in left:
        rest = get(tmp_path, Filler(), key=key, shapes={"logits": ((200, 250), "float32")})
        assert (rest["logits"] == 1).all(), "what stays is whole"


def test_no_bank_stays_that_was_used_before_one_that_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small old bank would fit where the large newer one does not."""
    for key, days, kilobytes in (("new", 1, 100), ("large", 2, 400), ("old", 3, 100)):
        stocked(tmp_path, key, days=days, kilobytes=kilobytes)
    command(capsys, tmp_path, "prune", "--max-size", "0.000250")
    assert folders(tmp_path) == ["new"]


def test_prune_removes_what_is_half_built_by_its_last_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("fresh", "stale"):
        half_built(tmp_path, key)
    stale = next(f for f in (tmp_path / "banks").glob("*stale*") if f.is_dir())
    for path in stale.iterdir():
        os.utime(path, (time.time() - 5 * DAY,) * 2)
    assert line_of("stale", command(capsys, tmp_path, "prune", "--older-than", "4"))
    assert [name.strip(".") for name in folders(tmp_path)] == ["fresh"]
    rest = Filler()
    assert right(get(tmp_path, rest, key="fresh")) and rest.batches == [6, 7, 8, 9]


def test_a_bank_that_another_command_removes_meanwhile_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("gone", "here"):
        stocked(tmp_path, key, days=50)
    listed = list(cache.entries(tmp_path))
    shutil.rmtree(tmp_path / "banks/gone")
    monkeypatch.setattr(cache, "entries", lambda cache_dir: iter(listed))
    command(capsys, tmp_path, "prune", "--older-than", "10")
    assert folders(tmp_path) == []


def test_a_bank_that_is_being_built_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    half_built(tmp_path, "begun")
    stocked(tmp_path, "held", days=50)
    stocked(tmp_path, "free", days=50)
    begun, held = (tmp_path / "banks" / key for key in ("begun", "held"))
    with files.locked(begun, ""), files.locked(held, ""):
        lines = command(capsys, tmp_path, "prune", "--max-size", "0", "--older-than", "0")
    assert lines[-1].startswith("1 banks removed")
    assert [name.strip(".") for name in folders(tmp_path)] == ["begun", "held"]
    assert "begun" in caplog.text and "held" in caplog.text and "stays" in caplog.text
    command(capsys, tmp_path, "prune", "--max-size", "0")
    assert folders(tmp_path) == [], "and goes when it is free"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["prune"], ["--older-than", "--max-size"]),
        (["--max-size", "3"], ["--max-size", "type prune"]),
        (["list", "--older-than", "3"], ["--older-than", "type prune"]),
        (["prune", "--older-than", "-1"], ["--older-than", "a number from 0"]),
        (["prune", "--max-size", "-0.5"], ["--max-size", "a number from 0"]),
        (["prune", "--max-size", "nan"], ["--max-size", "a number from 0"]),
        (["prune", "--older-than", "ten"], ["--older-than", "a number from 0", "ten"]),
        (["prune", "--max-size", "3GB"], ["--max-size", "a number from 0", "3GB"]),
        (["remove"], ["remove", "list", "prune"]),
        (["prune", "--keep", "3"], ["--keep"]),
    ],
    ids=lambda v: " ".join(v),
)
def test_a_command_that_cannot_be_meant_is_refused_with_help(
    words: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stocked(tmp_path, "k", days=50)
    with pytest.raises(SystemExit) as ended:
        banks.main([*words, "--cache-dir", str(tmp_path)])
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and out == ""
    message = err.splitlines()[-1]
    assert all(part in message for part in expected), message
    assert folders(tmp_path) == ["k"]


def test_the_command_in_a_process_of_its_own(tmp_path: Path) -> None:
    stocked(tmp_path / ".cache", "k", days=2)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ilkd_bench.banks", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    listed = run()
    assert listed.returncode == 0 and listed.stderr == ""
    assert "of_k" in line_of("k", [line.strip() for line in listed.stdout.splitlines()])
    assert run("prune").returncode == 2
    assert run("prune", "--older-than", "1").returncode == 0
    assert folders(tmp_path / ".cache") == []
