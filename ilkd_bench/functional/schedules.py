"""Schedules as pure functions of time."""

from __future__ import annotations


def linear_warmup(step: int, *, steps: int, warmup: int) -> float:
    """Return the learning-rate factor: up from 0 over `warmup` steps, then down to 0 at `steps`."""
    if step < warmup:
        return step / max(1, warmup)
    return max(0.0, (steps - step) / max(1, steps - warmup))


def falling_temperature(epoch: int, epochs: int, max_temperature: float) -> float:
    """Return the temperature of an epoch, from `max_temperature` down to 1.

    With at least `max_temperature` epochs every value is held for floor(epochs / max_temperature)
    epochs and the schedule stays at 1 once there (Annealing-KD, arXiv 2104.07163; Pro-KD, arXiv
    2110.08532). With fewer epochs the steps grow so that the last epoch has temperature 1.

    Args:
        epoch: within the stage, from 0.
        epochs: of the stage.
    """
    hold = int(epochs // max_temperature)
    if hold >= 1:
        return max(1.0, max_temperature - epoch // hold)
    if epochs == 1:
        return 1.0
    return max_temperature - (max_temperature - 1) * epoch / (epochs - 1)


def smoothing_factor(temperature: float, max_temperature: float) -> float:
    """Return 1 - (T - 1) / T_max, the factor on the teacher's logits (arXiv 2104.07163, eq. 4)."""
    return 1 - (temperature - 1) / max_temperature
