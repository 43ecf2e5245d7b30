"""The terminal that progress bars and log lines share."""

from __future__ import annotations

import logging

from rich.console import Console

console = Console(stderr=True)


class Lines(logging.Handler):
    """Write each message as one line above the bar, never broken by the terminal's width."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        console.print(self.format(record), soft_wrap=True, markup=False, highlight=False)
