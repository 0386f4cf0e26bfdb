"""Independent checks of a traced image against its original. Must not import the splicer or its analyses."""

from xtrace.verbs import make_callable
from xtrace.verify.certificate import PROMISES, Certificate, Promise, Status, Witness
from xtrace.verify.check import verify

__all__ = ["PROMISES", "Certificate", "Promise", "Status", "Witness", "verify"]

make_callable(__name__)
