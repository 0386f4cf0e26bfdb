"""Xtrace: splice trace probes into finished GPU binaries, prove it, run it, read the trace."""

__version__ = "0.1.0"
