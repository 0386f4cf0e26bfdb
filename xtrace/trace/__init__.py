"""From buffer bytes to events, phases, summaries, files and pictures."""

from xtrace.trace.accesses import accesses, addresses_per_site
from xtrace.trace.decode import decode
from xtrace.trace.spans import CountCheck, check_counts, counts_per_site, phase_times, roles, spans
from xtrace.trace.store import Trace, load, save
from xtrace.trace.tables import TraceTables
from xtrace.verbs import make_callable

__all__ = [
    "CountCheck",
    "Trace",
    "TraceTables",
    "accesses",
    "addresses_per_site",
    "check_counts",
    "counts_per_site",
    "decode",
    "load",
    "phase_times",
    "roles",
    "save",
    "spans",
]

make_callable(__name__)
