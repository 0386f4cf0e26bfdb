"""Triton kernels of the suite, how they are compiled without a GPU, and how their results are checked.

One module per kernel holds the device source and its description (:class:`workflow.kernels.spec.KernelSpec`).
:mod:`workflow.kernels.registry` finds them by name, :mod:`workflow.kernels.build` compiles them,
:mod:`workflow.kernels.cases` makes inputs and references (needs torch), :mod:`workflow.kernels.wheels`
fetches pinned third-party libraries.
"""
