"""Driver result codes turned into errors that say what to do."""

from __future__ import annotations

from xtrace.errors import BadInput, MissingTool, Unsupported, XtraceError

__all__ = ["driver_error"]

_KINDS: dict[int, tuple[type[XtraceError], str, str, str]] = {
    2: (XtraceError, "XT5004", "out of device memory", "use fewer trace slots or a smaller shape, or free the GPU"),
    1: (BadInput, "XT5005", "the driver refused the arguments", "check grid, block and shared memory sizes"),
    3: (MissingTool, "XT5001", "the driver is not initialised", "run xtrace doctor"),
    35: (MissingTool, "XT5001", "the driver is older than this CUDA version", "update the driver"),
    100: (MissingTool, "XT5002", "no GPU is visible", "see CUDA_VISIBLE_DEVICES and nvidia-smi"),
    101: (MissingTool, "XT5002", "no such GPU", "see CUDA_VISIBLE_DEVICES"),
    200: (BadInput, "XT5003", "the driver refused the image as malformed", "run xtrace verify on it"),
    209: (
        Unsupported,
        "XT5003",
        "the image is for another architecture than this GPU",
        "splice an image of its own arch",
    ),
    218: (BadInput, "XT5003", "the driver could not compile the image", "load a cubin, not PTX"),
    222: (Unsupported, "XT5003", "the image is newer than the driver", "update the driver"),
    500: (BadInput, "XT5003", "the image has no such kernel", "xtrace inspect lists the kernels"),
    700: (
        XtraceError,
        "XT5006",
        "a kernel accessed an illegal address",
        "run the original image; then report the splice",
    ),
    701: (
        BadInput,
        "XT5005",
        "the launch needs more resources than the GPU has",
        "check registers, threads and shared memory",
    ),
    702: (XtraceError, "XT5007", "the driver's watchdog ended the kernel", "use a smaller shape"),
    214: (XtraceError, "XT5006", "an uncorrectable memory error (ECC)", "the GPU is not healthy: use another"),
    715: (XtraceError, "XT5006", "a kernel executed an illegal instruction", "the traced code is wrong: report it"),
    716: (XtraceError, "XT5006", "a kernel accessed a misaligned address", "check the alignment of the buffers"),
    717: (XtraceError, "XT5006", "a kernel used an invalid address space", "run the original image first"),
    718: (XtraceError, "XT5006", "a kernel jumped to an invalid address", "the traced code is wrong: report it"),
    719: (XtraceError, "XT5006", "a kernel failed while running", "run the original image first"),
}


def driver_error(code: int, name: str, doing: str, where: str = "") -> XtraceError:
    """The error for driver result ``code`` (``CUresult``) met while ``doing`` something to ``where``."""
    kind, number, what, hint = _KINDS.get(code, (XtraceError, "XT5008", "the driver reported an error", ""))
    return kind(number, f"{doing}: {what} [{name} {code}]", where=where, hint=hint)
