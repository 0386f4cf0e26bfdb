"""A package that answers like G-Watch's, for tests without the wheel: it puts no probes in, and can be told to fail.

``write(folder)`` installs it. Environment: ``FAKE_REFUSES`` indices that it cannot place, ``FAKE_HANGS`` seconds.
"""

from __future__ import annotations

from pathlib import Path

BINARY = """
class Cubin:
    def fill(self, path):
        self.data = open(path, "rb").read()
    def parse(self):
        pass
    def get_kerneldef_by_name(self, name):
        return Kernel(self)
    def add_kerneldef(self, kernel):
        self.data = kernel.cubin.data
    def serialize(self):
        return self.data

class Kernel:
    list_param_offsets_reversed = [48, 40, 32, 24, 20, 16, 8, 0]
    class params:
        num_registers = 63
    def __init__(self, cubin):
        self.cubin = cubin
    def parse_cfg(self):
        pass
    def parse_register_liveness(self):
        pass
"""
SCHEMA = """
from dataclasses import dataclass

@dataclass
class SassTraceSite:
    insert_index: int
    warp_level: bool = False

class TraceSchema_SASS:
    def __init__(self, sites, grid_dim, block_dim, clock_type, per_thread_records):
        self.sites = sites
        self.warp_header_bytes = {"anchor": 40, "gpu": 16, "sm": 8}[clock_type]
        self.warp_site_id_bits = 5 if clock_type == "gpu" else 6
        self.warp_record_bytes = 4
        self.warp_records = per_thread_records
        self.warp_slab_bytes = (self.warp_header_bytes + 4 * per_thread_records + 31) // 32 * 32
"""
INSTRUMENTER = """
import os, time

class TraceInstrumenter_SASS:
    def __init__(self, name, kernel, cubin, buffer, schema, clock_type, splice_mode, schedule_mode):
        self.kernel_def_sass, self.schema = kernel, schema
        self.map_site_reports, self.map_site_probe_pcs = {}, {-1: [16] * 29}
    def instrument(self):
        print("noise on standard output")
        time.sleep(float(os.environ.get("FAKE_HANGS", "0")))
        refused = set(map(int, os.environ.get("FAKE_REFUSES", "").split()))
        order = sorted(range(len(self.schema.sites)), key=lambda n: -self.schema.sites[n].insert_index)
        for n in order:
            if self.schema.sites[n].insert_index in refused:
                raise RuntimeError("no feasible schedule?")
            self.map_site_reports[n], self.map_site_probe_pcs[n] = {}, [0] * 7
"""


def write(folder: Path) -> Path:
    """Install into ``folder``; returns it."""
    package = folder / "gwatch"
    inner = package / "cuda" / "xtrace"
    inner.mkdir(parents=True)
    for place in (package, package / "cuda", inner):
        (place / "__init__.py").write_text("")
    (package / "cuda" / "binary.py").write_text(BINARY)
    (inner / "_schema.py").write_text(SCHEMA)
    (inner / "_sass_instrumenter.py").write_text(INSTRUMENTER)
    metadata = folder / "gwatch-0.0.35.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gwatch\nVersion: 0.0.35\n")
    return folder
