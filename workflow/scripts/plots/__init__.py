"""Plots of the pipeline, one module a figure. ``python -m workflow.scripts.plots FIGURE --table T.csv --out STEM``."""
