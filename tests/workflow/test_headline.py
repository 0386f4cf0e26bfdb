"""Headline numbers as text, for the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workflow.samples import write_results
from workflow.scripts.headline import main


def test_headline_numbers_are_those_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path)
    assert main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "18 of 18  promises hold, over 6 traced images" in text
    assert "120 of 121" in text
    assert "overhead of Xtrace, probe set pp (recorded, 1 of 2 workloads)" in text


def test_what_is_missing_is_said_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path)
    (tmp_path / "overhead.csv").unlink()
    assert main([str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "overhead.csv" in text
    assert text.count("not available") == 3
