"""Makes torchvision importable: import this before whatever imports torchvision.

torchdistill needs torchvision for its image models, and transformers imports it where it finds it.
A torchvision built for CUDA cannot load its operators beside a torch for CPUs, and then fails to
import. Nothing here calls these operators, so that it is enough to declare them.
"""

from __future__ import annotations

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
