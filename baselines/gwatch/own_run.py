"""Runs inside G-Watch's interpreter, on a GPU: a suite kernel under the tool's own ``do_trace``, start to end.

    python own_run.py JOB.json RESULT.json

It shows that the tool works here as its user would run it, and keeps the image that it made. ``launcher``: ``triton``
launches through Triton's own launcher, ``driver`` through cuda-bindings; both load the corpus image, so that the
instruction indices mean the same. JOB: ``workload, variant, sizes, seed, image, kernel, sites, clock, schedule,
records, keep, launcher, grid, block, shared``. Needs torch; the repository must be on the path.
"""

import collections
import importlib
import importlib.metadata
import itertools
import json
import os
import sys
import traceback


def tensors(torch, spec, full, inputs):
    """Arguments in kernel order; outputs by name."""
    kinds = {"bf16": torch.bfloat16, "fp32": torch.float32, "i32": torch.int32}
    arguments, outputs = [], {}
    for argument in spec.arguments:
        if not argument.is_pointer:
            arguments.append(argument.value(full))
        elif argument.output:
            outputs[argument.name] = torch.zeros(argument.dims(full), dtype=kinds[argument.element], device="cuda")
            arguments.append(outputs[argument.name])
        else:
            array = inputs[argument.name]
            bits = torch.from_numpy(array.view("int16").copy() if array.dtype.itemsize == 2 else array.copy())
            arguments.append(bits.cuda().view(kinds[argument.element]))
    return arguments, outputs


def through_triton(job, spec, choice, arguments, image):
    """A callable that launches; the module is loaded in its first call, as the tool wants it."""
    triton = importlib.import_module("triton")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    source = importlib.import_module("triton.compiler").ASTSource(
        getattr(importlib.import_module(spec.module), spec.entry),
        signature={a.name: a.type for a in spec.arguments} | dict.fromkeys(choice.constants, "constexpr"),
        constexprs=dict(choice.constants),
        attrs={(i,): [["tt.divisibility", 16]] for i, a in enumerate(spec.arguments) if a.aligned},
    )
    options = {"num_warps": choice.num_warps, "num_stages": choice.num_stages}
    if choice.maxnreg:
        options["maxnreg"] = choice.maxnreg
    compiled = triton.compile(source, target=target, options=options)
    compiled.kernel = image  # the same kernel as the corpus has it: not even the line table differs
    grid = tuple(job["grid"])
    return lambda: compiled[grid](*arguments, *choice.constants.values())


def through_driver(job, spec, arguments, image):
    torch = importlib.import_module("torch")
    device_module = importlib.import_module("xtrace.runtime.device")
    config = device_module.LaunchConfig(tuple(job["grid"]), tuple(job["block"]), job["shared"])
    state = {}

    def launch():
        if not state:
            device = device_module.open_device()
            kernel = device.load(image).kernel(job["kernel"])
            values = []
            for argument, value in zip(spec.arguments, arguments, strict=True):
                kind = "ptr" if argument.is_pointer else {"fp32": "f32"}.get(argument.type, argument.type)
                values.append((kind, value.data_ptr() if torch.is_tensor(value) else value))
            state.update(kernel=kernel, prepared=kernel.prepare([*values, ("ptr", 0), ("ptr", 0)]))
        state["kernel"].launch(config, state["prepared"])

    return launch


def run(job):
    torch = importlib.import_module("torch")
    gwatch_cuda = importlib.import_module("gwatch.cuda")
    gwatch_cuda.start()  # before anything of the kernel is loaded
    trace = importlib.import_module("gwatch.cuda.xtrace._runner").do_trace
    site = importlib.import_module("gwatch.cuda.xtrace._schema").SassTraceSite
    cases = importlib.import_module("workflow.kernels.cases")
    spec = importlib.import_module("workflow.kernels.registry").spec(job["workload"])
    choice = spec.variants[job["variant"]]
    case = cases.make(job["workload"], job["sizes"], job["seed"])
    arguments, outputs = tensors(torch, spec, case.shape, case.inputs)
    with open(job["image"], "rb") as file:
        image = file.read()
    if job["launcher"] == "triton":
        launch = through_triton(job, spec, choice, arguments, image)
    else:
        launch = through_driver(job, spec, arguments, image)
    kept = []

    def traced():
        for output in outputs.values():
            output.view(torch.uint8).fill_(0xFF)
        launch()
        torch.cuda.synchronize()
        kept.append({name: output.view(torch.uint8).clone() for name, output in outputs.items()})

    os.environ["GWATCH_TRACE_KEEP_CUBIN"] = job["keep"]
    result = trace(
        traced,
        kernel_name_pattern="^" + job["kernel"] + "$",
        instrumentation_tier="sass",
        clock_type=job["clock"],
        sass_trace_sites=[site(insert_index=i, warp_level=True) for i in job["sites"]],
        sass_per_thread_records=job["records"],
        sass_schedule_mode=job["schedule"],
    )
    if not result:
        return {"ok": False, "reason": "do_trace returned nothing: it did not see or not instrument the launch"}
    traced()
    first, second, third = kept[0], kept[1], kept[2]
    records = result["trace_results"]
    times = collections.defaultdict(list)
    for record in records:
        times[record["global_tid"]].append(record["timestamp"])
    return {
        "ok": True,
        "reason": "",
        "version": importlib.metadata.version("gwatch"),
        "launcher": job["launcher"],
        "compile": {k: v for k, v in result["compile_results"].items() if isinstance(v, (int, float, str))},
        "records": len(records),
        "per_site": {str(k + 1): n for k, n in sorted(collections.Counter(r["site_id"] for r in records).items())},
        "warps": len(times),
        "warps_backwards": sum(any(b < a for a, b in itertools.pairwise(t)) for t in times.values()),
        "outputs_equal": all(torch.equal(first[name], second[name]) for name in first),
        "changed_bytes": sum(int((first[name] != second[name]).sum()) for name in first),
        "original_repeats": all(torch.equal(first[name], third[name]) for name in first),
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
