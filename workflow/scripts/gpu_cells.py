"""Binds suite workloads to the runtime: files of the corpus, inputs on the device, arms to time."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baselines.run import BaselineArm
from workflow.kernels import cases
from workflow.scripts.gpu_files import Folders, flat_bytes, load_inputs
from xtrace.errors import BadInput
from xtrace.runtime import extension
from xtrace.runtime.checks import Region, TraceFacts
from xtrace.runtime.device import Device, LaunchConfig
from xtrace.runtime.expect import Explanation, Trips, explain, explain_totals
from xtrace.runtime.launch import DirectArm, TracedArm, bind
from xtrace.runtime.patching import kernel_entry
from xtrace.runtime.repack import copy_package
from xtrace.runtime.replicate import INTERVAL, Instrumented
from xtrace.sampling import Sampling

BUFFER_SETS = 3  # rotated by short kernels, so that L2 stays nearly cold
SPARE_LETTERS = "abcdeghijklmnopqrstuvwxyz"  # first letter of operator namespaces of library copies


class Expected(NamedTuple):
    """What a workload's source says about its records."""

    trips: Trips  # trip count of every source loop for every CTA
    per_warp: Callable[[Mapping[str, Any], int], int | None]  # (map entry, CTA) -> ring records of each warp


def source_expectation(workload: str, variant: str, sizes: Mapping[str, int], seed: int, ctas: int) -> Expected | None:
    """From the kernel's description in the suite; None if it cannot be loaded here (it imports the compiler)."""
    try:
        from workflow.kernels.expected import records_per_warp
        from workflow.kernels.registry import spec

        kernel = spec(workload)
        full = cases.resolve(workload, sizes, seed)
        choice = kernel.variants[variant]
        trips = {loop.name: [loop.trips(full, choice.constants, cta) for cta in range(ctas)] for loop in kernel.loops}
    except Exception as error:  # an expectation that cannot be had must not cost the measurement
        print(f"{workload}: no expectation: {error}", file=sys.stderr)
        return None

    def per_warp(entry: Mapping[str, Any], cta: int) -> int | None:
        try:
            return records_per_warp(kernel, choice, full, cta, entry)
        except Exception as error:
            print(f"{workload}: no prediction: {error}", file=sys.stderr)
            return None

    return Expected(trips, per_warp)


def predicted(expected: Expected, entry: Mapping[str, Any], ctas: int) -> list[int | None]:
    """Ring records per warp for every CTA; CTAs with the same trip counts are computed once."""
    known: dict[tuple[int, ...], int | None] = {}
    out = []
    for cta in range(ctas):
        key = tuple(values[cta] for values in expected.trips.values())
        if key not in known:
            known[key] = expected.per_warp(entry, cta)
        out.append(known[key])
    return out


class DirectCase:
    """A workload whose cubin is launched directly."""

    interval = INTERVAL

    def __init__(self, device: Device, folders: Folders, workload: str, shape: str, sets: int = BUFFER_SETS) -> None:
        self.device = device
        self.folders = folders
        self.workload = workload
        image, self.meta = folders.original(workload)
        launch = self.meta["launch"]
        self.shape = _shape(launch, shape, workload)
        if launch.get("global_scratch_per_cta") or launch.get("profile_scratch_per_cta"):
            raise BadInput("XT7434", "the kernel needs scratch memory", where=workload)
        cluster = tuple(launch.get("cluster") or (1, 1, 1))
        self.config = LaunchConfig(
            grid=tuple(self.shape["grid"]),
            block=tuple(launch["block"]),
            shared=int(launch["shared"]),
            cluster=None if cluster == (1, 1, 1) else cluster,
        )
        self.sizes = dict(self.shape["sizes"])
        self.seed = int(self.meta["seed"])
        self.inputs = load_inputs(workload, self.sizes, self.seed, folders.inputs)
        self._allocated: list[int] = []
        self.addresses = [self._upload() for _ in range(sets)]
        self.parameters = [bind(launch["parameters"], {**self.shape["scalars"], **a}) for a in self.addresses]
        self.kernel = str(self.meta["kernel"])
        self.original = DirectArm(device, image, self.kernel, self.config, self.parameters)
        self.again = DirectArm(device, image, self.kernel, self.config, self.parameters)

    def _upload(self) -> dict[str, int]:
        addresses = {}
        for name, buffer in self.shape["buffers"].items():
            address = self.device.allocate(int(buffer["bytes"]))
            self._allocated.append(address)
            if buffer["role"] == "input":
                data = flat_bytes(self.inputs[name])
                if data.nbytes != int(buffer["bytes"]):
                    raise BadInput(
                        "XT7434", f"{name} has {data.nbytes} bytes, not {buffer['bytes']}", where=self.workload
                    )
                self.device.upload(address, data)
            addresses[name] = address
        return addresses

    def _outputs(self) -> list[Region]:
        return [
            (self.addresses[0][name], int(b["bytes"]))
            for name, b in self.shape["buffers"].items()
            if b["role"] == "output"
        ]

    @property
    def warps(self) -> int:
        return self.config.warps

    def outputs(self, arm: Any) -> Sequence[Region]:
        return self._outputs()

    def poison(self) -> Sequence[Region]:
        return self._outputs()

    def output_arrays(self) -> dict[str, tuple[int, int]]:
        """Regions of set 0 by output name."""
        return dict(
            zip([n for n, b in self.shape["buffers"].items() if b["role"] == "output"], self._outputs(), strict=True)
        )

    def instrument(self, tracer: str, probes: str) -> Instrumented:
        if tracer != "xtrace":
            folder = self.folders.baselines / tracer / self.workload / probes
            arm = BaselineArm.load(self.device, folder, self.config, self.parameters)
            return Instrumented(arm, arm.close)
        return self.traced(*self.folders.traced_image(self.workload, probes))

    def untraced(self, image: bytes) -> Instrumented:
        """An image with the same kernel, launched as it is."""
        arm = DirectArm(self.device, image, self.kernel, self.config, self.parameters)
        return Instrumented(arm, arm.close)

    def traced(self, image: bytes, trace_map: Mapping[str, Any]) -> Instrumented:
        traced = TracedArm.load(self.device, image, trace_map, self.kernel, self.config, self.parameters)
        rule = Sampling.of_kernel(kernel_entry(trace_map, self.kernel))
        warps = np.array([rule.warps_of(cta, self.config.warps_per_cta) for cta in range(self.config.ctas)], np.int64)
        source = source_expectation(self.workload, str(self.meta["variant"]), self.sizes, self.seed, self.config.ctas)

        def explained(entry: Mapping[str, Any], facts: TraceFacts) -> Explanation:
            found = explain(entry, facts.per_cta, warps, source.trips if source else {})
            if source is None:
                return found
            seen = facts.per_cta.sum(axis=1).tolist()
            wanted = predicted(source, entry, self.config.ctas)
            checked = [(n, w * k) for n, w, k in zip(seen, wanted, warps.tolist(), strict=True) if w is not None]
            wrong = sum(n != w for n, w in checked)
            return replace(found, ctas_predicted=len(checked), ctas_wrong=wrong)

        return Instrumented(
            arm=traced,
            close=traced.close,
            buffers={traced.kernel: traced.buffer},
            trace_map=trace_map,
            warps_per_cta=self.config.warps_per_cta,
            warps=int(warps.sum()),
            explain=explained,
        )

    def close(self) -> None:
        self.original.close()
        self.again.close()
        for address in self._allocated:
            self.device.free(address)
        self._allocated = []


class AttentionCase:
    """FlashAttention-3 inside PyTorch; each arm is a library copy of its own."""

    interval = "library call (CUDA events around one call: attention kernel and its scheduler's memory clear)"

    def __init__(self, device: Device, folders: Folders, workload: str, shape: str, sets: int = BUFFER_SETS) -> None:
        self.device = device
        self.folders = folders
        self.workload = workload
        self.image, self.meta = folders.original(workload)
        torch = extension.import_torch()
        self.torch = torch
        self.shape = _shape(self.meta["launch"], shape, workload)
        self.sizes = dict(self.shape["sizes"])
        self.seed = int(self.meta["seed"])
        self.inputs = load_inputs(workload, self.sizes, self.seed, folders.inputs)
        host = {name: torch.from_numpy(np.array(self.inputs[name]).view(np.int16)) for name in "QKV"}
        self.sets = []
        for _ in range(sets):
            q, k, v = (host[name].to("cuda").view(torch.bfloat16) for name in "QKV")
            self.sets.append(extension.Tensors(q, k, v, torch.empty_like(q)))
        self.causal = bool(self.meta["launch"]["python"]["arguments"].get("causal", False))
        self.work = Path(tempfile.mkdtemp(prefix="xtrace-library-"))
        self.source = extension.find_package(folders.library)
        if self.source.is_file():  # a wheel: unpack once, not for every copy
            package = extension.ATTENTION
            self.source = copy_package(self.source, self.work / "package", package.library, package.names).root
        self._letters = iter(SPARE_LETTERS)
        plain = self._copy(None)
        self.original = self._arm(*plain)
        self.again = self._arm(*self._copy(None))

    def _copy(self, images: tuple[bytes, bytes] | None) -> tuple[Path, str]:
        letter = next(self._letters)
        return extension.ATTENTION.copy(self.source, self.work / letter, letter, images)

    def _arm(self, library: Path, namespace: str) -> extension.AttentionArm:
        arm = extension.AttentionArm(library, namespace, self.sets, self.causal)
        library.unlink()  # mapped by now: the disk has room for the next copy
        return arm

    def outputs(self, arm: Any) -> Sequence[Region]:
        regions: list[Region] = arm.outputs()
        return regions

    def poison(self) -> Sequence[Region]:
        """The output, and the memory from which PyTorch will hand out the log-sum-exp."""
        s = self.sizes
        lse = self.torch.empty((s["batch"], s["heads"], s["seqlen"]), dtype=self.torch.float32, device="cuda")
        lse.fill_(float("nan"))
        del lse
        out = self.sets[0].out
        return [(out.data_ptr(), out.numel() * out.element_size())]

    def output_arrays(self) -> dict[str, tuple[int, int]]:
        out = self.sets[0].out
        return {"OUT": (out.data_ptr(), out.numel() * out.element_size())}

    def instrument(self, tracer: str, probes: str) -> Instrumented:
        if tracer != "xtrace":
            from baselines.run import read_result

            read_result(self.folders.baselines / tracer / self.workload / probes)  # says why it is unsupported
            raise BadInput("XT7434", f"{tracer} images of a library kernel cannot be launched", where=self.workload)
        return self.traced(*self.folders.traced_image(self.workload, probes))

    def untraced(self, image: bytes) -> Instrumented:
        """A library copy with another image in the original's place, used as it is."""
        return Instrumented(self._arm(*self._copy((self.image, image))), lambda: None)

    def traced(self, image: bytes, trace_map: Mapping[str, Any]) -> Instrumented:
        patched, buffers = extension.trace_buffers(self.device, image, trace_map, self.meta["kernel"], self.warps)
        arm = self._arm(*self._copy((self.image, patched)))
        totals = self._totals()
        rule = Sampling.of_kernel(kernel_entry(trace_map, self.meta["kernel"]))

        def close() -> None:
            for buffer in buffers.values():
                buffer.free()

        return Instrumented(
            arm=arm,
            close=close,
            buffers=buffers,
            trace_map=trace_map,
            warps_per_cta=self.warps_per_cta,
            warps=rule.warps(self.device.info.multiprocessors, self.warps_per_cta),
            explain=lambda entry, facts: explain_totals(entry, facts.per_site, totals),
        )

    warps_per_cta = 12  # 384 threads: one producer and two consumer warp groups

    @property
    def warps(self) -> int:
        """The persistent schedulers launch one CTA per SM, tiles or not."""
        return self.device.info.multiprocessors * self.warps_per_cta

    @property
    def tiles(self) -> int:
        return int(self.sizes["batch"] * self.sizes["heads"] * -(-self.sizes["seqlen"] // 128))

    def _totals(self) -> dict[str, int]:
        """Totals that causal attention with 128 x 128 tiles allows: row block m meets m + 1 key blocks."""
        heads = self.sizes["batch"] * self.sizes["heads"]
        rows = -(-self.sizes["seqlen"] // 128)
        ctas = self.device.info.multiprocessors
        out = {}
        for warps in (1, 2, 3, 4, 8, 9, 12):
            for extra, tiles in (("", self.tiles), (" and once per CTA", self.tiles + ctas)):
                out[f"{warps} warps per tile{extra}"] = warps * tiles
            out[f"{warps} warps per CTA"] = warps * ctas
            for less in range(4):
                counts = [max(m + 1 - less, 0) for m in range(rows)]
                words = f"{warps} warps per key block" + (f" less {less}" if less else "")
                out[words] = warps * heads * sum(counts)
                for unrolled in (2, 4):
                    out[f"{words}, {unrolled} at a time"] = warps * heads * sum(n // unrolled for n in counts)
                    out[f"{words}, rest of {unrolled}"] = warps * heads * sum(n % unrolled for n in counts)
        return out

    def close(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)


def _shape(launch: Mapping[str, Any], label: str, workload: str) -> dict[str, Any]:
    if label not in launch["shapes"]:
        known = ", ".join(launch["shapes"])
        raise BadInput("XT7434", f"no shape named {label!r}", where=workload, hint=f"known: {known}")
    return dict(launch["shapes"][label])


def make_case(device: Device, folders: Folders, workload: str, shape: str, sets: int = BUFFER_SETS) -> Any:
    """The case of a workload, its inputs on the device."""
    _, meta = folders.original(workload)
    kind = AttentionCase if "python" in meta["launch"] else DirectCase
    return kind(device, folders, workload, shape, sets)
