"""The group of commands: options for all, errors as one sentence, exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click
from click.shell_completion import get_completion_class, shell_complete

from trinitymerge._package import __version__
from trinitymerge.commands import ingesting, log_only, maintaining, reading
from trinitymerge.commands.output import BROKEN_PIPE, DONE, FAILED, INTERRUPTED, WRONG_USAGE, Output
from trinitymerge.errors import TrinityMergeError

_NAME, _COMPLETE = "trinitymerge", "_TRINITYMERGE_COMPLETE"
_FOR_ALL = ("--json", "--no-color", "--verbose", "-v")


class _Group(click.Group):
    """Commands whose common options may stand anywhere: before the command, and after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        common = [a for a in args[:end] if a in _FOR_ALL]
        return super().parse_args(ctx, [*common, *(a for a in args[:end] if a not in _FOR_ALL), *args[end:]])


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TRINITYMERGE"},
    no_args_is_help=True,
)
@click.version_option(__version__, "--version", message="trinitymerge %(version)s")
@click.option("--json", "as_json", is_flag=True, help="Write JSON: one document, or one line per record.")
@click.option("--no-color", is_flag=True, help="Do not use colors. NO_COLOR in the environment does the same.")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, as_json: bool, no_color: bool, verbose: bool) -> None:
    """Look at trinitymerge tables, and keep them small.

    TABLE is the path of a table. Results go to stdout, everything else to stderr.

    Exit codes: 0 done; 1 an error of the table or of Spark; 2 wrong usage; 3 a check answered no; 4 ingest could not merge a
    table; 130 interrupted.
    """
    ctx.obj = Output(as_json, not no_color and not os.environ.get("NO_COLOR"), verbose)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Write the script that completes commands and options in SHELL.

    For bash: eval "$(trinitymerge completion bash)"
    """
    found = get_completion_class(shell)
    if found is None:  # of a click that no longer knows the shell
        raise click.UsageError(f"click {click.__version__} cannot complete in {shell}.")
    print(found(cli, {}, _NAME, _COMPLETE).source())


for command in (completion, *log_only.COMMANDS, *reading.COMMANDS, *maintaining.COMMANDS, *ingesting.COMMANDS):
    cli.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Errors are written as one sentence."""
    output = Output(as_json="--json" in arguments, is_verbose=not {"-v", "--verbose"}.isdisjoint(arguments))
    try:
        code = _call(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except click.UsageError as error:
        output.error(error, error.format_message())
        return WRONG_USAGE
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a command ends with one sentence, also for errors of Spark
        if output.is_verbose:
            traceback.print_exc()
        output.error(error, _sentence(error))
        return FAILED


def _call(arguments: Sequence[str]) -> int:
    # Not cli.main(), which would end the process itself if the pipe is closed.
    asked = os.environ.get(_COMPLETE)
    if asked:  # by the script that completion() writes
        return shell_complete(cli, {}, _NAME, _COMPLETE, asked)
    try:
        with cli.make_context(_NAME, list(arguments)) as context:
            result: Any = cli.invoke(context)
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    return result if isinstance(result, int) else DONE


def _sentence(error: Exception) -> str:
    if isinstance(error, (TrinityMergeError, ValueError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if type(error).__name__ == "Py4JJavaError":  # its first line names only the call
        return str(import_module("trinitymerge.spark.errors").clean_message(error))
    first = next(filter(None, map(str.strip, str(error).splitlines())), "")
    return f"{type(error).__name__}: {first} -v shows the traceback."
