"""What runs without training are said to have measured."""

from __future__ import annotations

from ilkd_bench.records.record import Measured


def measured(seed: int) -> Measured:
    """Return the measured part of such a run's record."""
    return Measured.model_validate(
        {
            "scores": {"dev": {"accuracy": (1 + seed) / 16, "n": 4}},
            "monitor": "dev/accuracy",
            "teacher": {"dev": {"accuracy": 0.9, "n": 4}},
            "seconds": {"train": 1.0, "teacher": 0.5, "evaluate": 0.25},
        }
    )
