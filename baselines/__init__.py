"""Baseline tracers: the tools that Xtrace is compared with, all behind one small interface.

See :mod:`baselines.api` for the interface and the ``result.json`` schema, and ``configs/matched_sites.yaml`` for the
places at which every tool probes.
"""

from __future__ import annotations

from baselines.api import Baseline, BuildResult, create, tracers

__all__ = ["Baseline", "BuildResult", "create", "tracers"]
