"""The only room that changes code: plan, emit, relocate."""

from xtrace.verbs import make_callable

from .apply import SpliceResult, apply
from .model import Form, KernelPlan, Options, PlacedSite, Plan, RefusedSite
from .plan import plan, plan_kernel

__all__ = [
    "Form",
    "KernelPlan",
    "Options",
    "PlacedSite",
    "Plan",
    "RefusedSite",
    "SpliceResult",
    "apply",
    "plan",
    "plan_kernel",
]

make_callable(__name__)
