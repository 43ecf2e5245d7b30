"""What every method is, and the checks and maps that several of them use."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ilkd_bench.types import BadInput, Clock, Incompatible, Outputs, Phase, Rows, Spec


class Method(nn.Module):
    """A way of teaching: phases and unweighted loss terms.

    Weights live in the method's YAML and are applied by the training module. A loss has no side
    effect and draws random numbers from (clock.seed, clock.epoch, clock.step) and the row numbers
    only, so calling it twice gives the same value twice. What a method keeps from step to step it
    keeps in `remember`, in persistent buffers, so that a training that was killed finds it again.
    """

    needs: frozenset[str] = frozenset({"logits"})
    """What the teacher and the student must show; empty: the teacher is not run at all."""

    same_tokens: bool = False
    """Whether tokens are compared one by one, so that both models must read the same ones.

    A pair of models that do not is `Incompatible`.
    """

    assistants: tuple[int | str, ...] = ()
    """Models between teacher and student, from the teacher downwards; the last one teaches.

    Numbers of layers, or names of students. Each is taught once for all runs, by the one before and
    with the method's loss, so that a method that has some has no parameters.
    """

    attends: bool = False
    """Whether student layers attend to teacher layers: `layer_attention` then says how."""

    def phases(self, epochs: int) -> list[Phase]:
        """Split `epochs`, the total, into phases.

        Raises:
            BadInput: there are fewer epochs than the method has phases.
        """
        return [Phase("distill", epochs, self.needs)]

    def general(self, epochs: int) -> Phase:
        """Return how a student learns from plain text, before any task and without labels.

        Called once, before the first step.

        Raises:
            Incompatible: the method learns from labels, or from logits of a task.
        """
        raise Incompatible("it learns from the labels or the logits of a task")

    def prepare(self, labels: Tensor, index: Tensor) -> None:
        """Look at the training rows, once per run and before any loss.

        Random numbers may be drawn from torch's generator, which the run's seed has set.

        Args:
            labels: [N], as in `Rows`.
            index: [N], row numbers within the split, not always 0..N-1.

        Raises:
            BadInput: the method cannot learn from these rows.
        """

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        """Return the unweighted terms (scalars); `t` is None in a phase that needs no teacher."""
        raise NotImplementedError

    def remember(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> None:
        """Keep what later losses need of this batch.

        Called once per training step, right after its loss and before the weights change, without
        gradients.
        """

    def diagnose(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Any]:
        """Return what is worth a column of the run's history; called once per epoch."""
        return {}

    def layer_attention(self, s: Outputs, t: Outputs) -> Tensor:
        """Return how much of each teacher layer each student layer looks at, [B, L_s+1, L_t+1].

        Index 0 is the embedding output; NaN stands where nothing is looked at. Only of a method
        that `attends`.
        """
        raise NotImplementedError


def one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return `value` if it is allowed; 1 and true are not the same.

    Raises:
        BadInput: it is not; the message lists what is.
    """
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        choices = ", ".join(str(choice) for choice in allowed)
        raise BadInput(f"method.{name}={_shown(value)} is not one of: {choices}")
    return value


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def positive(
    name: str, value: Any, *, least: float = 0, most: float = 1e6, whole: bool = False
) -> Any:
    """Return `value` if it is a number above 0, not below `least` and not above `most`.

    Raises:
        BadInput: it is not.
    """
    kinds = (int,) if whole else (int, float)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if is_number and value > 0 and least <= value <= most:  # which NaN is not
        return value
    kind = "a whole number" if whole else "a number"
    bound = f"of at least {least:g}" if least > 0 else "above 0"
    upper = f" and at most {most:g}" if is_number and value > most else ""
    raise BadInput(f"method.{name}={_shown(value)}: allowed is {kind} {bound}{upper}")


def temperature_of(name: str, value: Any, *, least: float = 0.01) -> float:
    """Return a temperature.

    Far below 0.01 logits overflow; at 1000 the difference of two softened predictions, which is
    then multiplied by T^2, is as small as the rounding of a float32.

    Raises:
        BadInput: it is beyond that, or no number.
    """
    temperature: float = positive(name, value, least=least, most=1000)
    return temperature


def width_of(name: str, value: Any) -> int:
    """Return the width of a projection.

    Raises:
        BadInput: it is no whole number, or wider than any model.
    """
    width: int = positive(name, value, most=2**16, whole=True)
    return width


def follow_then_labels(name: str, epochs: int, label_share: float) -> tuple[int, int]:
    """Split `epochs` into those of a stage with the teacher and those of one with labels alone.

    The second gets the whole number next to its share, and each at least one epoch.

    Raises:
        BadInput: there is one epoch only.
    """
    if epochs < 2:
        raise BadInput(f"epochs={epochs}: {name} has two phases and needs at least 2 epochs")
    labels = min(epochs - 1, max(1, round(epochs * label_share)))
    return epochs - labels, labels


def share_below_one(name: str, value: Any) -> Any:
    """Return `value` if it is a number above 0 and below 1.

    Raises:
        BadInput: it is not.
    """
    if positive(name, value) >= 1:
        raise BadInput(f"method.{name}={value}: allowed is a number below 1")
    return value


def check_heads(student: Spec, teacher: Spec, what: str) -> None:
    """Refuse attention heads that have no partner.

    Raises:
        Incompatible: the models have other numbers of heads.
    """
    if student.heads != teacher.heads:
        raise Incompatible(
            f"the student has {student.heads} attention heads and the teacher {teacher.heads}: "
            f"{what} are compared head by head"
        )


def intermediate_layers(model: Spec, whose: str) -> list[int]:
    """Return 1..L-1.

    Raises:
        Incompatible: the model has a single layer.
    """
    if model.layers < 2:
        raise Incompatible(f"the {whose} has {model.layers} layer, so no intermediate one")
    return list(range(1, model.layers))


def common_space(
    student: Spec, teacher: Spec, projection_width: int | str
) -> tuple[nn.Module, nn.Module]:
    """Return maps of student and teacher vectors into one space, [..., H] -> [..., W].

    Args:
        projection_width: W. `auto`: no map where the widths are equal, else 128 (RAIL-KD's authors
            map PKD and ALP-KD so for RoBERTa-large -> DistilRoBERTa; the size is not stated).
    """
    if projection_width == "auto":
        if student.width == teacher.width:
            return nn.Identity(), nn.Identity()
        projection_width = 128
    width = width_of("projection_width", projection_width)
    return nn.Linear(student.width, width), nn.Linear(teacher.width, width)
