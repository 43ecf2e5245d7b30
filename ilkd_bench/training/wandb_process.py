"""Weights & Biases in a process of its own, so that no run fails by it or waits for it.

`wandb_logger` starts this file once per run and writes messages to it, one JSON line each: `start`,
then `log`, `summary`, `student` and `finish`. What a person should know comes back as lines of
text. Where the messages end without `finish`, the run died, and its mirror is marked as failed.
Nothing of the package is imported here.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

log = logging.getLogger(__name__)

FOREIGN = ("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID", "WANDB_SERVICE")
"""Variables that would put two jobs into one W&B run."""

CALL = 60
"""Seconds after which a call that only hands something over to W&B counts as stuck."""

SETTINGS: dict[str, Any] = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_save_requirements": False,
    "host": "",
}
"""Nothing of the machine goes out: no name, output, code, hardware, packages or command line."""


def environment() -> dict[str, str]:
    """Return the variables for a process of W&B."""
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return kept | {"WANDB_ERROR_REPORTING": "false", "OMP_NUM_THREADS": "1"}


# ----------------------------------------------------------------------- the process of one run


def mirror(messages: Iterator[tuple[str, Any]], tell: Callable[[str], None]) -> None:
    """Carry messages to W&B until they end."""
    _, start = next(messages)
    with limited(start["timeout"] + CALL, "start", tell):
        import wandb

        run = begin(wandb, start, tell)
    code = 1  # a run that does not say how it ended died
    for kind, value in messages:
        with limited(CALL, kind, tell):
            if kind == "log":
                run.log(value)
            elif kind == "summary":
                run.summary.update(value)
            elif kind == "student":
                artifact = wandb.Artifact(value["name"], "model", metadata=value["metadata"])
                artifact.add_dir(value["folder"], policy="immutable", skip_cache=True)
                run.log_artifact(artifact)
            else:
                code = value
                break
    with limited(start["upload"], "upload", tell):
        run.finish(exit_code=code)
        wandb.teardown()


def begin(wandb: Any, start: dict[str, Any], tell: Callable[[str], None]) -> Any:
    """Start a W&B run; where that fails online, it is kept offline."""
    settings = start["init"] | {
        "settings": wandb.Settings(**SETTINGS, init_timeout=start["timeout"])
    }
    mode = os.environ.get("WANDB_MODE", "online") if start["mode"] == "auto" else start["mode"]
    try:
        run = wandb.init(mode=mode, **settings)
    except Exception as error:
        if mode != "online":
            raise
        tell(f"W&B: {error}; this run is kept offline in {settings['dir']}/wandb, for `wandb sync`")
        run = wandb.init(mode="offline", **settings)
    run.define_metric("epoch")
    run.define_metric("*", step_metric="epoch")
    return run


@contextmanager
def limited(seconds: float, what: str, tell: Callable[[str], None]) -> Iterator[None]:
    """End the process if the code inside takes too long."""

    def end() -> None:
        tell(f"W&B was stuck ({what}) and was ended after {seconds:g} s")
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def received(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield messages; one that was cut off is the last."""
    for line in lines:
        if not line.endswith("\n"):
            return
        kind, value = json.loads(line)
        yield kind, value


def clean(text: str) -> str:
    """Return a text as one line without keys and passwords."""
    key = os.environ.get("WANDB_API_KEY")
    if key:
        text = text.replace(key, "***")
    text = re.sub(r"//[^/@\s]+@", "//***@", text)
    return " ".join(text.split())[:1000]


def check() -> None:
    """Find out whether W&B takes runs.

    Raises:
        Exception: it does not; there are many kinds.
    """
    import wandb

    wandb.login(verify=False)  # without a terminal, a missing key is an error
    reach(wandb.setup().settings.base_url)  # at once, where W&B would try for long
    wandb.login(verify=True)


def reach(address: str) -> None:
    """Connect to a server, or to the proxy on the way to it.

    Raises:
        ConnectionError: there is no connection within 3 seconds.
    """
    url = urlsplit(address)
    proxy = None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
    if proxy:
        url = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    port = url.port or {"http": 80, "https": 443}.get(url.scheme, 1080)
    try:
        socket.create_connection((url.hostname or "", port), timeout=3).close()
    except OSError as error:
        raise ConnectionError(f"{url.hostname} cannot be reached ({error})") from error


def main(argv: Sequence[str]) -> int:
    """Mirror the run whose messages come in, or check whether W&B can be reached."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what W&B prints goes where errors go

    def tell(text: str) -> None:
        try:
            os.write(answers, f"{clean(text)}\n".encode())
        except OSError:
            traceback.print_exc()  # nobody listens any more

    try:
        if list(argv) == ["check"]:
            check()
        else:
            os.nice(10)  # the training comes first
            mirror(received(sys.stdin), tell)
    except Exception as error:  # W&B raises whatever it meets
        traceback.print_exc()
        sys.stderr.flush()
        tell(f"{error}" if list(argv) == ["check"] else f"W&B: {type(error).__name__}: {error}")
        os._exit(1)  # hooks of W&B could hold the process
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
