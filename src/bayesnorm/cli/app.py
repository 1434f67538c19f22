"""All commands as one application, and how it ends: 0 fine, 1 the work failed, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

from ..errors import BayesNormError, MissingExtraError

try:
    import rich  # noqa: F401
    import typer
except ImportError as error:
    raise MissingExtraError("the command line needs typer and rich: pip install 'bayesnorm[cli]'.") from error


from .data_csv import data_csv
from .data_list import data_list
from .data_path import data_path
from .fit import fit
from .predict import predict
from .report import report
from .usage import UsageError
from .versions import own_version

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130

app = typer.Typer(name="bayesnorm", pretty_exceptions_enable=False, rich_markup_mode="rich")
data = typer.Typer(rich_markup_mode="rich", help="Data sets: which are here, where to put them, and one as CSV.")

app.command("fit")(fit)
app.command("predict")(predict)
app.command("report")(report)
data.command("list")(data_list)
data.command("path")(data_path)
data.command("csv")(data_csv)
app.add_typer(data, name="data")


@app.callback(invoke_without_command=True)
def everything(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Turns batch-normalised networks into Bayesian ones that say how far to trust them.

    \b
    bayesnorm data csv sklearn:diabetes --out diabetes.csv
    bayesnorm fit diabetes.csv --target target --out run
    bayesnorm predict run diabetes.csv --out predictions.csv
    """
    context.obj["debug"] = debug
    if version:
        print(f"bayesnorm {own_version()}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and say in one line what went wrong.

    Args:
        arguments: What stands behind `bayesnorm`; None takes the process's own.

    Returns:
        The exit code.
    """
    settings: dict[str, Any] = {"debug": False}
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        return _run(arguments, settings)


def _run(arguments: Sequence[str] | None, settings: dict[str, Any]) -> int:
    try:
        code = typer.main.get_command(app)(
            None if arguments is None else [*arguments], prog_name="bayesnorm", standalone_mode=False, obj=settings
        )
        if code == INTERRUPTED:
            _tell("interrupted")
        return int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        _tell("interrupted")
        return INTERRUPTED
    except SystemExit as end:  # an experiment's own parser of arguments
        return end.code if isinstance(end.code, int) else FAILED if end.code else 0
    except Exception as error:
        if settings["debug"]:
            traceback.print_exc()
        message, code = _explain(error)
        _tell(f"error: {message}")
        return code


def _explain(error: Exception) -> tuple[str, int]:
    """What to tell about an error, and the exit code."""
    if hasattr(error, "format_message"):  # typer's own, whose class has moved between its versions
        context = getattr(error, "ctx", None)
        hint = f"; {context.command_path} --help says more" if context is not None else ""
        return f"{error.format_message().rstrip('.')}{hint}.", WRONG_USAGE
    if isinstance(error, BayesNormError):
        return str(error), WRONG_USAGE if isinstance(error, UsageError) else FAILED
    if isinstance(error, OSError):
        name = f" ({os.fspath(error.filename)})" if error.filename is not None else ""
        return f"{error.strerror or error}{name}.", FAILED
    if isinstance(error, MemoryError):
        return "there is not enough memory; fewer rows would work.", FAILED
    return f"unexpected {type(error).__name__}: {error} (bayesnorm --debug ... shows where).", FAILED


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _tell(f"warning: {message}")


def _tell(text: str) -> None:
    print(" ".join(text.split()), file=sys.stderr)
