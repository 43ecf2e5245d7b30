"""A full disk is one sentence, whoever met it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ilkd_bench.plumbing.full_disk import NoSpace, full_disk_told
from ilkd_bench.types import BadInput


def chained() -> Exception:
    """What torch raises: its own error, after the one of the disk."""
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError as error:
        late = RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0")
        late.__context__ = error
        return late


FULL = {
    "the system's": OSError(errno.ENOSPC, "No space left on device"),
    "a quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "torch's": chained(),
    "safetensors'": Exception("I/O error: No space left on device (os error 28)"),
    "tokenizers'": Exception("Disk quota exceeded (os error 122)"),
    "numpy's": OSError("400 requested and 96 written"),
}


@pytest.mark.parametrize("error", FULL.values(), ids=FULL)
def test_a_full_disk_is_one_sentence_whoever_met_it(error: Exception, tmp_path: Path) -> None:
    with (
        pytest.raises(NoSpace) as told,
        full_disk_told(tmp_path / "new", "buy one"),
        full_disk_told(tmp_path, "make room"),
    ):
        raise error
    message = str(told.value)
    assert message.startswith(f"no space left on the disk of {tmp_path}, ")
    assert "make room, then type the same command again" in message and "buy" not in message
    assert isinstance(told.value, BadInput) and isinstance(told.value, OSError)


def test_the_first_disk_counts_whatever_fails_on_the_way_out(tmp_path: Path) -> None:
    with (
        pytest.raises(NoSpace, match="make room"),
        full_disk_told(tmp_path / "other", "buy one"),
    ):
        try:
            with full_disk_told(tmp_path, "make room"):
                raise OSError(errno.ENOSPC, "No space left on device")
        except NoSpace as error:
            raise RuntimeError("not begun yet") from error


def test_the_disk_is_that_of_the_file_where_one_is_named(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "there" / "file"))
    where = f"the disk of {tmp_path / 'there'}, "
    with (
        pytest.raises(NoSpace, match=where),
        full_disk_told(Path("/"), "make room"),
    ):
        raise error


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EACCES, "Permission denied"), RuntimeError("unexpected pos"), KeyError()],
)
def test_other_errors_stay_what_they_are(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as found, full_disk_told(tmp_path, "make room"):
        raise error
    assert found.value is error
