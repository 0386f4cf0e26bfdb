"""Paired overhead estimates, their intervals, and the gate. Pure: no files, no device, no clock."""

from __future__ import annotations

from xtrace.stats.dose import DoseResponse, dose_response
from xtrace.stats.families import SuiteMean, holm, suite_mean
from xtrace.stats.gate import Decision, Flag, Rule, Verdict, decide, decide_change, worst
from xtrace.stats.intervals import (
    Equivalence,
    Interval,
    equivalence,
    hodges_lehmann,
    signed_rank_interval,
    t_interval,
    walsh_averages,
)
from xtrace.stats.modes import Modes, find_modes
from xtrace.stats.paired import Comparison, compare, log_ratio, percent
from xtrace.stats.samples import Cell, CellSummary, group, summarise

__all__ = [
    "Cell",
    "CellSummary",
    "Comparison",
    "Decision",
    "DoseResponse",
    "Equivalence",
    "Flag",
    "Interval",
    "Modes",
    "Rule",
    "SuiteMean",
    "Verdict",
    "compare",
    "decide",
    "decide_change",
    "dose_response",
    "equivalence",
    "find_modes",
    "group",
    "hodges_lehmann",
    "holm",
    "log_ratio",
    "percent",
    "signed_rank_interval",
    "suite_mean",
    "summarise",
    "t_interval",
    "walsh_averages",
    "worst",
]
