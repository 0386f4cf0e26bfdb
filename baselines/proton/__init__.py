"""Triton's Proton in its intra-kernel instrumentation mode, driven without a GPU."""
