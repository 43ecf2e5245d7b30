"""What libraries say stays out of the terminal."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import logging
from ilkd_bench.plumbing.logs import hush
hush()
logging.getLogger("transformers.modeling_utils").warning("LOAD REPORT")
logging.getLogger("some.library").warning("fell back")
"""


def test_warnings_of_libraries_are_not_printed_where_there_is_no_log() -> None:
    """As where runs are checked, before the first has a log."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
