"""Forms of probes for experiments: every one is a traced image like any other, and leaves out what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.splice.conftest import GOLDEN, image
from xtrace.cli.main import cli
from xtrace.errors import BadInput
from xtrace.fidelity import compare
from xtrace.image import parse
from xtrace.isa import for_arch
from xtrace.splice import Form, Options, Plan, SpliceResult, apply, plan
from xtrace.splice.controls import clocks_only, prologue_only
from xtrace.splice.pad import inserted_islands
from xtrace.verify import verify

EARLIER = [form for form in Form if form is not Form.SCHEDULED]
SAMPLE = ("triton_fa_fwd", "triton_softmax", "warp_specialised")


def planned(name: str, form: Form = Form.SCHEDULED, records: int = 2048) -> Plan:
    loaded = image(name)
    return plan(loaded, loaded.kernels, "pp", Options(records, form=form))


@pytest.mark.parametrize("form", EARLIER)
@pytest.mark.parametrize("name", [*SAMPLE, "early_exit", "spin", "triton_moe_gemm"])
def test_every_promise_holds_in_every_form(name: str, form: Form) -> None:
    result = apply(planned(name, form, records=64))
    certificate = verify(image(name).data, result.data, result.map)
    assert certificate.ok, certificate.to_json()
    assert result.map["form"] == form.name.lower()


@pytest.mark.parametrize("name", SAMPLE)
def test_all_forms_trace_the_same_events(name: str) -> None:
    forms = [apply(planned(name, form)).map["kernels"][0]["sites"] for form in Form]
    assert all([(s["pc"], s["phase"]) for s in sites] == [(s["pc"], s["phase"]) for s in forms[0]] for sites in forms)


@pytest.mark.parametrize("name", SAMPLE)
def test_naive_events_share_registers_and_are_stored_and_waited_for_one_by_one(name: str) -> None:
    (k,) = planned(name, Form.NAIVE).kernels
    assert k.packets
    for packet in k.packets:
        (p,) = packet.islands
        assert len(packet.records) == 1
        assert p.stores
        assert p.wait_last
        assert p.cursor is not None
        assert p.predicate is None
        assert not packet.preset
    assert len({p.capture for p in k.records}) < len(k.records)


def test_each_form_adds_its_step() -> None:
    forms = {form: planned("triton_fa_fwd", form).kernels[0] for form in Form}
    waited = {form: sum(p.wait_last for p in k.records) for form, k in forms.items()}
    assert waited[Form.SEPARATE] < waited[Form.NAIVE] == len(forms[Form.NAIVE].records)
    used = {form: len({p.capture for p in k.records}) for form, k in forms.items()}
    assert used[Form.SEPARATE] > used[Form.NAIVE]
    elected = {form: any(p.predicate is not None for p in k.records) for form, k in forms.items()}
    assert (elected[Form.SEPARATE], elected[Form.LANE]) == (False, True)
    packets = {form: len(k.packets) for form, k in forms.items()}
    assert packets[Form.PACKED] < packets[Form.LANE] == len(forms[Form.LANE].records)
    helpers = {form: sum(p.id is None for x in k.packets for p in x.islands) for form, k in forms.items()}
    assert helpers[Form.PACKED] == 0 < helpers[Form.SCHEDULED]


def test_a_form_is_chosen_on_the_command_line(tmp_path: Path) -> None:
    def written(*more: str) -> bytes:
        out = tmp_path / "out.cubin"
        source = str(GOLDEN / "triton_softmax.cubin")
        done = CliRunner().invoke(cli, ["splice", source, "--probes", "pp", "-o", str(out), *more])
        assert done.exit_code == 0, done.output
        return out.read_bytes()

    assert written() == written("--form", "scheduled")
    assert written("--form", "naive") == apply(planned("triton_softmax", Form.NAIVE)).data != written()


def test_only_scheduled_probes_have_layouts() -> None:
    loaded = image("triton_softmax")
    with pytest.raises(BadInput, match="only scheduled probes have layouts"):
        plan(loaded, loaded.kernels, "pp", Options(layout=4, form=Form.PACKED))


def inserted(name: str, result: SpliceResult) -> list[str]:
    out = parse(result.data, name)
    kernel = out.kernels[0]
    mine = {(at - kernel.offset) // 16 for _, _, island in inserted_islands(out, result.map) for at in island}
    return [ins.base for ins in for_arch(out.arch).decode(kernel.text) if ins.index in mine]


@pytest.mark.parametrize("name", [*SAMPLE, "early_exit"])
def test_a_prologue_alone_stores_nothing_and_is_harmless(name: str) -> None:
    result = prologue_only(planned(name))
    assert not {"STG", "ELECT"} & set(inserted(name, result))
    (entry,) = result.map["kernels"]
    assert (entry["slot"], entry["patches"], [s["kind"] for s in entry["sites"]]) == (None, [], ["entry"])
    harmless(name, result)


@pytest.mark.parametrize("name", [*SAMPLE, "early_exit"])
def test_clock_reads_alone_add_one_word_for_each_event(name: str) -> None:
    traced = planned(name)
    result = clocks_only(traced)
    ends = apply(plan(image(name), image(name).kernels, "sche"))
    words, without = inserted(name, result), inserted(name, ends)
    assert words.count("CS2R") - without.count("CS2R") == len(traced.kernels[0].records)
    for base in {*words, *without} - {"CS2R", "NOP"}:  # NOPs keep loops in their place
        assert words.count(base) == without.count(base), base
    assert result.map["kernels"][0]["packets"] == []
    assert result.map["kernels"][0]["clock_reads"] == len(traced.kernels[0].records)
    harmless(name, result)


def harmless(name: str, result: SpliceResult) -> None:
    promises = verify(image(name).data, result.data, result.map).promises
    for promise in ("instructions", "targets", "liveness", "hazards", "wellformed"):
        assert promises[promise] == "PASS"
    (kernel,) = compare(image(name), parse(result.data, name), map=result.map)
    assert kernel.relocated == 1.0
