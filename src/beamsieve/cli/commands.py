"""The commands and their names; each imports what it needs when it is called."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from beamsieve.cli import failures, interrupts
from beamsieve.cli.backends import backends, conformance
from beamsieve.cli.bench import RAW_ARGUMENTS, bench
from beamsieve.cli.catalogs import build, inspect, verify
from beamsieve.cli.demo import demo
from beamsieve.cli.models import concepts, train
from beamsieve.cli.recommend import recommend
from beamsieve.cli.tokenize import tokenize

log_lines = failures.LogLines()
logger = logging.getLogger("beamsieve")
logger.addHandler(log_lines)
logger.setLevel(logging.INFO)


class Commands(TyperGroup):
    """All commands: an error is one line and an exit code, and ``--debug`` may stand anywhere."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run the command that ``args`` names, and exit."""
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        debug = "--debug" in words[:end]
        words = [word for word in words[:end] if word != "--debug"] + words[end:]
        log_lines.debug = debug
        if not debug:
            warnings.showwarning = failures.say_warning
        try:
            code = super().main(words, prog_name or "beamsieve", complete_var, False, **extra)
        except Exception as error:
            if debug:
                traceback.print_exc()
            message, code = failures.explain(error)
            failures.say(message)
        sys.exit(code or 0)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the arguments, and answer ``--help`` and ``--version``."""
        with _last_line():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        raises = interrupts.raise_from_now()
        try:
            with _last_line():
                return super().invoke(ctx)
        finally:
            if raises:
                interrupts.end_at_once()


@contextmanager
def _last_line() -> Iterator[None]:
    """Ctrl-C ends a command with a line, a reader that has enough without one."""
    try:
        try:
            yield
        except typer.Exit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except KeyboardInterrupt:
        failures.fail(interrupts.LINE, interrupts.CODE)
    except BrokenPipeError:
        _leave_pipe()
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _leave_pipe()  # rich printed the help, and exits with 1 there


def _leave_pipe() -> NoReturn:
    # What is still buffered would be complained about at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise typer.Exit(failures.PIPE_CLOSED) from None


app = typer.Typer(
    name="beamsieve",
    cls=Commands,
    help="Constrained decoding for generative retrieval: look up the valid tokens, "
    "then score only those.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"beamsieve {version('beamsieve')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; stands anywhere.")
    ] = False,
) -> None:
    """Say what there is when no command is named."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(failures.BAD_ARGUMENTS)


app.command()(demo)
app.command()(build)
app.command()(inspect)
app.command()(verify)
app.command()(tokenize)
app.command()(recommend)
app.command()(train)
app.command()(concepts)
app.command()(backends)
app.command()(conformance)
app.command(context_settings=RAW_ARGUMENTS)(bench)


def _terminate(signal_number: int, frame: object) -> None:
    # As an exception, so that files that are being written aside are removed on the way out.
    sys.exit(failures.TERMINATED)


def _open_closed_streams() -> None:
    """Give a process that was started without stdout or stderr (``>&-``) ones that behave.

    A closed stdout is a pipe that nobody reads; nothing that is opened later may take its number.
    """
    if sys.stdout is None:
        reader, writer = os.pipe()
        os.close(reader)
        if writer != 1:
            os.dup2(writer, 1)
            os.close(writer)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - till the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - till the end


def run() -> None:
    """Run the command that the process's arguments name, and exit."""
    _open_closed_streams()
    signal.signal(signal.SIGTERM, _terminate)
    app()
