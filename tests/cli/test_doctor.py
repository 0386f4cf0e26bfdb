import json

from click.testing import CliRunner

from xtrace.cli import doctor


def test_json_is_one_document_with_findings_and_abilities() -> None:
    result = CliRunner().invoke(doctor.command, ["--json"])
    assert result.exit_code == 0
    document = json.loads(result.output)
    names = [f["name"] for f in document["findings"]]
    assert {"nvdisasm", "GPU", "cuda-bindings", "torch"} <= set(names)
    assert "run traced kernels and measure overhead" in document["abilities"]


def test_a_missing_part_says_what_it_is_needed_for(monkeypatch) -> None:
    missing = doctor.Finding("torch", False, "not installed", "FlashAttention-3", "pip install torch")
    monkeypatch.setattr(doctor, "examine", lambda: [missing])
    result = CliRunner().invoke(doctor.command, [])
    assert result.exit_code == 0
    assert "needed for: FlashAttention-3; pip install torch" in result.output


def test_a_broken_part_does_not_hide_the_others(monkeypatch) -> None:
    def broken():
        raise RuntimeError("driver went away")

    monkeypatch.setattr(doctor, "_gpu", broken)
    findings = doctor.examine()
    assert any("driver went away" in f.detail for f in findings)
    assert any(f.name == "disk" for f in findings)
