"""The command line: one thin module per subcommand, all behind one error boundary.

A subcommand ``verb`` is the click command named ``command`` in ``xtrace/cli/<verb>.py``. It is listed here with the
line that ``xtrace --help`` shows, so that the help never imports (or breaks on) a subcommand's module.
"""

from __future__ import annotations

__all__ = ["VERBS"]

VERBS: dict[str, str] = {
    "inspect": "Show kernels, sizes, registers, loops and free resources of an image.",
    "plan": "Dry run: which sites get a probe, which are refused and why, what it costs.",
    "splice": "Write a copy of an image with probes in it, and its trace map.",
    "verify": "Check, independently of the splicer, that nothing but probes was added.",
    "diff": "Measure how much of a kernel another image of it preserves, at five levels.",
    "extract": "Take images out of shared libraries and fatbins.",
    "run": "Trace a live program.",
    "show": "Show a trace as tables and a timeline.",
    "export": "Convert a trace for other viewers.",
    "gate": "Decide from overhead samples: pass, fail, inconclusive or invalid environment.",
    "results": "List overhead samples, or merge those of several machines.",
    "doctor": "Say what this machine can do, and what is missing.",
}
