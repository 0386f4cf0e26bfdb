"""Runs inside G-Watch's interpreter: let it splice probes into one kernel of an image, without a GPU.

    python instrument.py JOB.json RESULT.json

JOB: ``cubin``, ``kernel``, ``sites`` (instruction indices), ``clock``, ``schedule``, ``records`` (per warp),
``grid``, ``block``, ``output``. One site that G-Watch cannot place makes its whole instrumentation fail, so such a site
is taken out, with its error, and the rest is tried again. Standard library and the wheel only: this file knows nothing
of Xtrace.
"""

import importlib
import importlib.metadata
import json
import sys
import time
import traceback

INIT, EXIT = -1, -2  # keys of the tool's own probes in its table of probe addresses


def attempt(job, sites):
    """One instrumentation of a fresh copy of the image; returns (instrumenter, error text)."""
    binary = importlib.import_module("gwatch.cuda.binary")
    schema = importlib.import_module("gwatch.cuda.xtrace._schema")
    instrumenter = importlib.import_module("gwatch.cuda.xtrace._sass_instrumenter")
    cubin = binary.Cubin()
    cubin.fill(job["cubin"])
    cubin.parse()
    kernel = cubin.get_kerneldef_by_name(job["kernel"])
    kernel.parse_cfg()
    kernel.parse_register_liveness()
    layout = schema.TraceSchema_SASS(
        sites=[schema.SassTraceSite(insert_index=i, warp_level=True) for i in sites],
        grid_dim=tuple(job["grid"]),
        block_dim=tuple(job["block"]),
        clock_type=job["clock"],
        per_thread_records=job["records"],
    )
    tool = instrumenter.TraceInstrumenter_SASS(
        job["kernel"],
        kernel,
        cubin,
        None,
        layout,
        clock_type=job["clock"],
        splice_mode="auto",
        schedule_mode=int(job["schedule"] == "least_makespan"),
    )
    try:
        tool.instrument()
    except Exception as error:
        return tool, layout, f"{type(error).__name__}: {error}"
    return tool, layout, ""


def culprit(tool, sites):
    """The site that failed: the tool works from the deepest site upwards and reports each one that it has done."""
    left = [(index, number) for number, index in enumerate(sites) if number not in tool.map_site_reports]
    return max(left)[0] if left else None


def run(job):
    sites, refused, started = list(job["sites"]), [], time.monotonic()
    while True:
        if not sites:
            return {"ok": False, "reason": "no site could be placed", "refused": refused}
        tool, layout, error = attempt(job, sites)
        if not error:
            break
        index = culprit(tool, sites)
        if index is None:
            return {"ok": False, "reason": f"entry or exit probes: {error}", "refused": refused}
        refused.append({"index": index, "reason": error})
        sites.remove(index)
    binary = importlib.import_module("gwatch.cuda.binary")
    image = binary.Cubin()
    image.add_kerneldef(tool.kernel_def_sass)
    with open(job["output"], "wb") as file:
        file.write(bytes(image.serialize()))
    probes = {k: sorted(v) for k, v in tool.map_site_probe_pcs.items()}
    return {
        "ok": True,
        "reason": "",
        "version": importlib.metadata.version("gwatch"),
        "sites": [{"id": n + 1, "index": index, "words": len(probes[n])} for n, index in enumerate(sites)],
        "refused": refused,
        "entry_words": len(probes.get(INIT, [])),
        "exit_words": len(probes.get(EXIT, [])),
        "parameters": len(tool.kernel_def_sass.list_param_offsets_reversed),
        "registers": int(tool.kernel_def_sass.params.num_registers),
        "block_bytes": layout.warp_slab_bytes,
        "header_bytes": layout.warp_header_bytes,
        "id_bits": layout.warp_site_id_bits,
        "record_bytes": layout.warp_record_bytes,
        "records": layout.warp_records,
        "seconds": round(time.monotonic() - started, 3),
    }


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    try:
        result = run(job)
    except BaseException as error:
        result = {"ok": False, "reason": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
