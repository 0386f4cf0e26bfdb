"""Paired overhead estimates and their intervals. Pure: no files, no device, no clock."""

from __future__ import annotations

from xtrace.stats.gate import Decision, Flag, Rule, Verdict, decide
from xtrace.stats.intervals import (
    Equivalence,
    Interval,
    equivalence,
    hodges_lehmann,
    signed_rank_interval,
    t_interval,
    walsh_averages,
)
from xtrace.stats.paired import Comparison, compare, log_ratio, percent
from xtrace.stats.samples import Cell, CellSummary, group, summarise

__all__ = [
    "Cell",
    "CellSummary",
    "Comparison",
    "Decision",
    "Equivalence",
    "Flag",
    "Interval",
    "Rule",
    "Verdict",
    "compare",
    "decide",
    "equivalence",
    "group",
    "hodges_lehmann",
    "log_ratio",
    "percent",
    "signed_rank_interval",
    "summarise",
    "t_interval",
    "walsh_averages",
]
