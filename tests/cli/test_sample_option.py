"""``--sample`` on the command line and in the Python API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import xtrace
from xtrace.cli.main import cli


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)), prog_name="xtrace")


def test_plan_says_what_is_sampled_and_what_the_copy_takes(golden_image: Callable[[str], Path]) -> None:
    path = golden_image("spin")
    text = run("plan", path, "--probes", "sche", "--sample", "cta=8,warp=1")
    assert text.exit_code == 0, text.output
    assert "sampled: cta=8,warp=1" in text.stdout
    (kernel,) = json.loads(run("plan", path, "--probes", "sche", "--sample", "cta=8", "--json").stdout)["kernels"]
    assert (kernel["sample"], kernel["copied_words"]) == ("cta=8", kernel["instructions"])
    (plain,) = json.loads(run("plan", path, "--probes", "sche", "--json").stdout)["kernels"]
    assert "sample" not in plain


def test_splice_verify_and_diff_go_together(golden_image: Callable[[str], Path], tmp_path: Path) -> None:
    path, out = golden_image("spin"), tmp_path / "s.cubin"
    spliced = run("splice", path, "--probes", "sche", "--sample", "cta=3", "-o", out)
    assert spliced.exit_code == 0, spliced.output
    assert "sampled cta=3" in spliced.stdout
    verified = run("verify", path, out)
    assert verified.exit_code == 0, verified.output
    assert "words of an untouched second copy" in " ".join(verified.stdout.split())
    (found,) = json.loads(run("diff", path, out, "--json").stdout)["kernels"]
    assert (found["relocated"], found["changed_blocks"]) == (1.0, 0)
    assert out.read_bytes() == xtrace.splice(xtrace.load(path), probes="sche", sample="cta=3").data


@pytest.mark.parametrize(
    ("rule", "code"), [("cta=0", "XT3061"), ("every=2", "XT3060"), ("iteration=4", "XT3062"), ("launch=4", "XT3064")]
)
@pytest.mark.parametrize("verb", ["plan", "splice"])
def test_a_bad_rule_is_one_line_and_exit_code_2(
    golden_image: Callable[[str], Path], tmp_path: Path, verb: str, rule: str, code: str
) -> None:
    more = ["-o", tmp_path / "s.cubin"] if verb == "splice" else []
    result = run(verb, golden_image("spin"), "--probes", "sche", "--sample", rule, *more)
    assert result.exit_code == 2
    assert code in result.stderr
    assert "--sample" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
