"""The real device, driven through the CUDA driver API (Python package ``cuda-bindings`` 12.8 or newer).

The primary context is used, so that PyTorch in the same process sees the same memory and the same default stream.
Signatures: documentation of cuda-bindings 13, ``cuda.bindings.driver``: every call returns ``(CUresult, values...)``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from xtrace.errors import BadInput, MissingTool, XtraceError
from xtrace.runtime.device import DeviceInfo, LaunchConfig, MachineState, Telemetry
from xtrace.runtime.failures import driver_error
from xtrace.runtime.nvml import Nvml, driver_version
from xtrace.runtime.params import PackedParams, pack

__all__ = ["CudaDevice", "CudaEvent", "CudaKernel", "CudaModule"]

_NOT_READY = 600
_STREAM = 0  # the legacy default stream: ordered with PyTorch's default stream
_STATIC_SHARED_LIMIT = 48 * 1024  # above this a kernel must opt in


def _check(result: tuple[Any, ...], doing: str, where: str = "") -> Any:
    """Value(s) of a driver call, or the typed error."""
    code = int(result[0])
    if code:
        raise driver_error(code, _name(result[0]), doing, where)
    return result[1] if len(result) == 2 else result[1:]


def _name(code: Any) -> str:
    return str(getattr(code, "name", code))


class CudaEvent:
    """A timing event on the default stream; resolution about half a microsecond."""

    __slots__ = ("handle",)

    def __init__(self) -> None:
        self.handle = _check(cu.cuEventCreate(0), "creating an event")

    def record(self) -> None:
        _check(cu.cuEventRecord(self.handle, _STREAM), "recording an event")

    def done(self) -> bool:
        (code,) = cu.cuEventQuery(self.handle)
        if int(code) == _NOT_READY:
            return False
        _check((code,), "waiting for the device")
        return True


class CudaKernel:
    """A kernel of a loaded module."""

    def __init__(self, name: str, handle: Any) -> None:
        self.name = name
        self._handle = handle
        self._dynamic_limit = 0  # what was asked for so far

    def attribute(self, name: str) -> int:
        """A function attribute by its driver name without prefix, e.g. ``NUM_REGS``, ``LOCAL_SIZE_BYTES``."""
        attribute = getattr(cu.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(_check(cu.cuFuncGetAttribute(attribute, self._handle), f"reading {name}", self.name))

    def prepare(self, params: Sequence[tuple[str, int | float]]) -> PackedParams:
        return pack(params)

    def _allow_shared(self, size: int) -> None:
        """Opt in to more than 48 KiB of shared memory, as Triton's own launcher does."""
        if size + self.attribute("SHARED_SIZE_BYTES") > _STATIC_SHARED_LIMIT:
            _check(
                cu.cuFuncSetCacheConfig(self._handle, cu.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED),
                "preferring shared memory",
                self.name,
            )
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(
                cu.cuFuncSetAttribute(self._handle, attribute, size), f"allowing {size} B of shared memory", self.name
            )
        self._dynamic_limit = size

    def launch(self, config: LaunchConfig, prepared: PackedParams) -> None:
        if config.shared > self._dynamic_limit:
            self._allow_shared(config.shared)
        if config.cluster is not None and config.cluster != (1, 1, 1):
            result = cu.cuLaunchKernelEx(_cluster_config(config), self._handle, prepared.address, 0)
        else:
            result = cu.cuLaunchKernel(
                self._handle, *config.grid, *config.block, config.shared, _STREAM, prepared.address, 0
            )
        _check(result, f"launching grid {config.grid} block {config.block} shared {config.shared}", self.name)


def _cluster_config(config: LaunchConfig) -> Any:
    launch = cu.CUlaunchConfig()
    launch.gridDimX, launch.gridDimY, launch.gridDimZ = config.grid
    launch.blockDimX, launch.blockDimY, launch.blockDimZ = config.block
    launch.sharedMemBytes = config.shared
    launch.hStream = cu.CUstream(_STREAM)
    attribute = cu.CUlaunchAttribute()
    attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    # Assign through one value object: the struct copies it back when the attribute is set.
    value = cu.CUlaunchAttributeValue()
    value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = config.cluster or (1, 1, 1)
    attribute.value = value
    launch.attrs = [attribute]
    launch.numAttrs = 1
    return launch


class CudaModule:
    """A loaded image."""

    def __init__(self, image: bytes) -> None:
        self._handle: Any = _check(cu.cuModuleLoadData(image), f"loading an image of {len(image)} bytes")

    def kernel(self, name: str) -> CudaKernel:
        handle = _check(cu.cuModuleGetFunction(self._handle, name.encode()), "looking up the kernel", name)
        return CudaKernel(name, handle)

    def unload(self) -> None:
        if self._handle is not None:
            _check(cu.cuModuleUnload(self._handle), "unloading an image")
            self._handle = None


class CudaDevice:
    """GPU ``ordinal`` with its primary context made current in this thread."""

    def __init__(self, ordinal: int = 0) -> None:
        try:
            (code,) = cu.cuInit(0)
        except Exception as error:  # the package raises its own types when libcuda is not there
            raise MissingTool(
                "XT5001",
                f"the NVIDIA driver library cannot be loaded: {type(error).__name__}",
                hint="run on a machine with an NVIDIA driver; xtrace doctor shows what is there",
            ) from error
        _check((code,), "starting the driver")
        count = int(_check(cu.cuDeviceGetCount(), "counting devices"))
        if not 0 <= ordinal < count:
            raise MissingTool("XT5002", f"there is no GPU {ordinal}: {count} visible", hint="see CUDA_VISIBLE_DEVICES")
        self._device = _check(cu.cuDeviceGet(ordinal), "opening the device")
        self._context = _check(cu.cuDevicePrimaryCtxRetain(self._device), "retaining the primary context")
        self.make_current()
        self.info = self._describe()
        self._nvml = Nvml(self.info.uuid)

    def make_current(self) -> None:
        """Make the primary context current in the calling thread."""
        _check(cu.cuCtxSetCurrent(self._context), "making the context current")

    def _attribute(self, name: str) -> int:
        attribute = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_check(cu.cuDeviceGetAttribute(attribute, self._device), f"reading {name}"))

    def _describe(self) -> DeviceInfo:
        get_uuid = getattr(cu, "cuDeviceGetUuid_v2", None) or cu.cuDeviceGetUuid
        raw = bytes(_check(get_uuid(self._device), "reading the UUID").bytes).hex()
        name = bytes(_check(cu.cuDeviceGetName(128, self._device), "reading the name"))
        version = int(_check(cu.cuDriverGetVersion(), "reading the driver's CUDA version"))
        capability = (self._attribute("COMPUTE_CAPABILITY_MAJOR"), self._attribute("COMPUTE_CAPABILITY_MINOR"))
        return DeviceInfo(
            name=name.split(b"\0", 1)[0].decode(errors="replace").strip(),
            uuid=f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}",
            driver=driver_version(),
            cuda=f"{version // 1000}.{version % 1000 // 10}",
            arch=f"sm_{capability[0]}{capability[1]}",
            multiprocessors=self._attribute("MULTIPROCESSOR_COUNT"),
            l2_bytes=self._attribute("L2_CACHE_SIZE"),
            memory_bytes=int(_check(cu.cuDeviceTotalMem(self._device), "reading the memory size")),
            max_shared_bytes=self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            clock_khz=self._attribute("CLOCK_RATE"),
        )

    def allocate(self, size: int) -> int:
        if size <= 0:
            raise BadInput("XT5042", f"cannot allocate {size} bytes")
        return int(_check(cu.cuMemAlloc(size), f"allocating {size} bytes of device memory"))

    def free(self, address: int) -> None:
        _check(cu.cuMemFree(cu.CUdeviceptr(address)), "freeing device memory")

    def fill(self, address: int, size: int, byte: int) -> None:
        """Set memory in stream order; wide words where possible, they reach full bandwidth."""
        if address % 4 == 0 and size % 4 == 0:
            word = byte * 0x01010101
            _check(cu.cuMemsetD32Async(cu.CUdeviceptr(address), word, size // 4, _STREAM), "filling device memory")
        else:
            _check(cu.cuMemsetD8Async(cu.CUdeviceptr(address), byte, size, _STREAM), "filling device memory")

    def release_l2(self) -> None:
        result = cu.cuCtxResetPersistingL2Cache()
        if result[0] != cu.CUresult.CUDA_ERROR_NOT_SUPPORTED:  # a device that cannot keep lines has none to release
            _check(result, "releasing lines of the L2 cache")

    def upload(self, address: int, data: bytes | bytearray | memoryview) -> None:
        host = np.frombuffer(data, dtype=np.uint8)
        _check(cu.cuMemcpyHtoD(cu.CUdeviceptr(address), host.ctypes.data, host.nbytes), "copying to the device")

    def download(self, address: int, size: int) -> bytes:
        host = np.empty(size, dtype=np.uint8)
        _check(cu.cuMemcpyDtoH(host.ctypes.data, cu.CUdeviceptr(address), size), "copying from the device")
        return host.tobytes()

    def download_rows(self, address: int, pitch: int, width: int, rows: int) -> bytes:
        host = np.empty(width * rows, dtype=np.uint8)
        copy = cu.CUDA_MEMCPY2D()
        copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice = cu.CUdeviceptr(address)
        copy.srcPitch = pitch
        copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.dstHost = host.ctypes.data
        copy.dstPitch = width
        copy.WidthInBytes = width
        copy.Height = rows
        _check(cu.cuMemcpy2D(copy), "copying from the device")
        return host.tobytes()

    def load(self, image: bytes) -> CudaModule:
        return CudaModule(image)

    def event(self) -> CudaEvent:
        return CudaEvent()

    def elapsed_ns(self, start: Any, end: Any) -> float:
        return 1e6 * float(_check(cu.cuEventElapsedTime(start.handle, end.handle), "reading a time"))

    def synchronize(self, timeout_s: float = 60.0) -> None:
        """Wait by polling, so that a kernel that never ends becomes an error of this process instead of a hang."""
        started = time.monotonic()
        while int((result := cu.cuStreamQuery(_STREAM))[0]) == _NOT_READY:
            waited = time.monotonic() - started
            if waited > timeout_s:
                raise XtraceError(
                    "XT5007",
                    f"the device did not finish within {timeout_s:.0f} s",
                    where=self.info.name,
                    hint="the kernel may hang; end this process, the driver then frees the device",
                )
            if waited > 0.01:
                time.sleep(0.0005)
        _check(result, "waiting for the device")

    def telemetry(self) -> Telemetry:
        return self._nvml.read()

    def machine(self) -> MachineState:
        return self._nvml.machine()
