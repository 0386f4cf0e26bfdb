"""PTX-probe (re-implementation): probes written into PTX, then re-assembled by ptxas.

Our own implementation of the technique that the Neutrino paper (OSDI'25) publishes: an entry prologue that finds the
warp's slot, snippets at chosen instructions, and a full re-run of the assembler. It is not Neutrino and must never be
labelled so. See ``docs`` strings of :mod:`baselines.ptx_probe.rewrite` for the rules that it follows.
"""
