"""Entry point of ``xtrace``: finds subcommands lazily and turns every failure into one line.

Exit codes: 0 success, 1 a checked promise or gate does not hold, 2 the request or its input is at fault (one
``error[XTnnnn] ...`` line on stderr), 130 interrupted.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from xtrace import __version__
from xtrace.cli import VERBS
from xtrace.errors import XtraceError

__all__ = ["cli", "main"]

EXAMPLES = """\b
Examples:
  xtrace inspect attention.cubin
  xtrace plan    attention.cubin --kernel '*' --probes pp
  xtrace splice  attention.cubin --kernel '*' --probes pp -o traced.cubin
  xtrace verify  attention.cubin traced.cubin
  xtrace diff    attention.cubin traced.cubin --json
  xtrace extract libkernels.so --arch sm_90a --kernel 'Flash.*' -o images/
"""


class XtraceGroup(click.Group):
    """A group that imports a subcommand only when it is asked for, and owns the error boundary."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verb in VERBS if importlib.util.find_spec(f"xtrace.cli.{verb}") is not None]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"xtrace.cli.{name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"xtrace.cli.{name}.command is not a click command")
        command.name = name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if rows := [(verb, VERBS[verb]) for verb in self.list_commands(ctx)]:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and exit. The one place where exceptions become messages and exit codes."""
        name = prog_name or "xtrace"
        if not standalone_mode:
            return super().main(args, name, complete_var, standalone_mode=False, **extra)
        try:
            result = super().main(args, name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
            code = result if type(result) is int else 0
        except BrokenPipeError:
            # The reader went away (`xtrace inspect ... | head`): not a fault. Keep the interpreter's final flush quiet.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            code = 130
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            code = 2
        except Exception as error:
            click.echo(_one_line(error), err=True)
            if os.environ.get("XTRACE_DEBUG") == "1":
                traceback.print_exc()
            code = error.exit_code if isinstance(error, XtraceError) else 2
        sys.exit(code)


def _one_line(error: Exception) -> str:
    """The line a user sees for ``error``; an unforeseen exception is named as our bug."""
    if isinstance(error, XtraceError):
        return str(error)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "xtrace"
        return str(XtraceError("XT7000", error.format_message().rstrip("."), where=path, hint=f"see {path} --help"))
    if isinstance(error, click.ClickException):
        return str(XtraceError("XT7000", error.format_message().rstrip(".")))
    if isinstance(error, OSError):
        return str(XtraceError("XT6001", error.strerror or str(error), where=str(error.filename or "")))
    return str(
        XtraceError(
            "XT0001",
            f"internal error: {type(error).__name__}: {error}"[:500],
            hint="a bug in xtrace, please report it; XTRACE_DEBUG=1 shows the traceback",
        )
    )


@click.group(
    cls=XtraceGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXAMPLES,
)
@click.version_option(__version__, prog_name="xtrace", message="%(prog)s %(version)s")
def cli() -> None:
    """Splice trace probes into finished GPU binaries, prove it, run it, read the trace."""


def main() -> None:
    """Console entry point."""
    cli.main()
