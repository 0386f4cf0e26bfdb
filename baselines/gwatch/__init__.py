"""G-Watch 0.0.35 as a baseline: the released wheel of the published SASS-splicing tracer, run as its user would.

The wheel is never part of this project: the user installs it (version and hash: ``configs/packages.yaml``), and it runs
in a process and an interpreter of its own, because it needs CPython 3.12 and libraries of CUDA 12.
"""
