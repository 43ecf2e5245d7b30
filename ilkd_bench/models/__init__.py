"""Teachers and students; `_target_` in conf/ names what builds them."""

from ilkd_bench.models.build import converted, pretrained, tiny, untrained
from ilkd_bench.models.model import Model

__all__ = ["Model", "converted", "pretrained", "tiny", "untrained"]
