"""The `tcl` command. Each subcommand is a file in `tcl/commands`, imported at once but light: heavy libraries wait for its body."""

from __future__ import annotations

import errno
import sys

import typer

from tcl.commands import app_command, bench, collect, data, distill, evaluate, jobs, map, program, report, roofline, sample, train, tune
from tcl.errors import UserError

cli = typer.Typer(
    name="tcl",
    help="Learned cost models of tensor programs: measure, sample, train, distil across platforms, tune.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cli.add_typer(data.cli, name="data")
cli.add_typer(jobs.cli, name="jobs")
for module, name in (
    (collect, "collect"), (sample, "sample"), (train, "train"), (evaluate, "evaluate"), (distill, "distill"),
    (tune, "tune"), (report, "report"), (roofline, "roofline"), (map, "map"), (program, "program"), (bench, "bench"), (app_command, "app"),
):  # fmt: skip
    cli.command(name)(module.run)


def main() -> None:
    """Entry point: a user's mistake is one line on standard error, never a traceback."""
    try:
        cli(standalone_mode=True)
    except UserError as error:
        print(f"tcl: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.exit(141)
    except KeyboardInterrupt:
        print("tcl: interrupted; what was finished is kept.", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS):
            raise
        place = f" at {error.filename}" if error.filename else ""
        print(f"tcl: {error.strerror}{place}. What was written before is intact; make room or choose another folder.", file=sys.stderr)
        sys.exit(1)
