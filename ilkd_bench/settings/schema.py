"""The version of the layout of records, part of the identity of runs; alone, to load nothing."""

from __future__ import annotations

SCHEMA = 2
