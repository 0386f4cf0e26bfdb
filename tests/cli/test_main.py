"""The error boundary: whatever a subcommand raises, the user sees one line and a meaningful exit code."""

from __future__ import annotations

import sys
import types

import click
import pytest
from click.testing import CliRunner, Result

from xtrace import __version__
from xtrace.cli import VERBS
from xtrace.cli.main import XtraceGroup, cli
from xtrace.errors import BadInput


def raising(error: BaseException) -> XtraceGroup:
    group = XtraceGroup("xtrace")

    def callback() -> None:
        raise error

    command = click.Command("boom", callback=callback)
    group.get_command = lambda ctx, name: command  # type: ignore[method-assign]
    return group


def run(error: BaseException) -> Result:
    return CliRunner().invoke(raising(error), ["boom"], prog_name="xtrace")


def test_an_xtrace_error_is_one_line_with_exit_code_2() -> None:
    result = run(BadInput("XT1001", "not an ELF file", where="a.cubin", hint="give a cubin"))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "error[XT1001] a.cubin: not an ELF file (give a cubin)\n"


def test_a_hostile_name_cannot_break_the_line() -> None:
    result = run(BadInput("XT1001", "bad", where="a\nerror: fake\r\n"))
    assert result.stderr.count("\n") == 1


def test_an_unforeseen_exception_is_our_bug_and_still_one_line() -> None:
    result = run(ValueError("x\ny"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error[XT0001] internal error: ValueError: x y (a bug in xtrace")
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_traceback_is_there_for_developers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTRACE_DEBUG", "1")
    assert "Traceback" in run(ValueError("x")).stderr


def test_a_missing_file_is_named() -> None:
    result = run(FileNotFoundError(2, "No such file or directory", "gone.cubin"))
    assert (result.exit_code, result.stderr) == (2, "error[XT6001] gone.cubin: No such file or directory\n")


def test_interrupt_has_its_own_code() -> None:
    assert run(KeyboardInterrupt()).exit_code == 130


@pytest.mark.parametrize("code", [0, 1, 3])
def test_exit_codes_of_subcommands_pass_through(code: int) -> None:
    assert run(click.exceptions.Exit(code)).exit_code == code
    assert run(SystemExit(code)).exit_code == code


def test_an_unknown_subcommand_is_one_line() -> None:
    result = CliRunner().invoke(cli, ["nope"], prog_name="xtrace")
    assert result.exit_code == 2
    assert result.stderr == "error[XT7000] xtrace: No such command 'nope' (see xtrace --help)\n"


def test_version() -> None:
    assert CliRunner().invoke(cli, ["--version"]).stdout == f"xtrace {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help_lists_the_subcommands_and_examples(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    shown = [verb for verb in VERBS if f"  {verb} " in result.stdout]
    assert shown == cli.list_commands(click.Context(cli))


def test_a_broken_subcommand_does_not_break_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(XtraceGroup, "list_commands", lambda self, ctx: ["good", "broken"])
    good = types.ModuleType("xtrace.cli.good")
    good.command = click.Command("good", callback=lambda: click.echo("fine"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xtrace.cli.good", good)
    monkeypatch.setitem(sys.modules, "xtrace.cli.broken", None)
    assert CliRunner().invoke(cli, ["good"]).stdout == "fine\n"
    result = CliRunner().invoke(cli, ["broken"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error[XT0001]")
