"""The only room that changes code: plan, emit, relocate."""

from xtrace.verbs import make_callable

from .apply import SpliceResult, apply
from .model import Clocks, Form, KernelPlan, Options, PlacedSite, Plan, RefusedSite, Stripes
from .plan import plan, plan_kernel

__all__ = [
    "Clocks",
    "Form",
    "KernelPlan",
    "Options",
    "PlacedSite",
    "Plan",
    "RefusedSite",
    "SpliceResult",
    "Stripes",
    "apply",
    "plan",
    "plan_kernel",
]

make_callable(__name__)
