"""The command line's commands in one place, and how it ends."""

import sys
from typing import Any

import typer

from geomprobe.cli import models
from geomprobe.cli.analyze import analyze
from geomprobe.cli.claims import claims
from geomprobe.cli.compare import compare
from geomprobe.cli.evidence import evidence
from geomprobe.cli.inspect import inspect
from geomprobe.cli.intervene import intervene
from geomprobe.cli.report import report
from geomprobe.cli.sweep import sweep
from geomprobe.cli.tokens import tokens
from geomprobe.cli.train import train
from geomprobe.errors import GeomprobeError

INTERRUPTED = 130  # what shells expect after Ctrl-C
# typer carries a click of its own in newer releases, so its base of usage errors is found and not imported.
UsageProblem: Any = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ in ("ClickException", "TyperException")
)

app = typer.Typer(
    name="geomprobe",
    help="Measure the lengths, angles and sinks of attention in any pretrained checkpoint.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else "[default: …]" in a help text is taken for a style and not shown
    add_completion=False,
)
app.command()(analyze)
app.command()(claims)
app.command()(compare)
app.command()(evidence)
app.command()(inspect)
app.command()(intervene)
app.command()(report)
app.command()(sweep)
app.command()(tokens)
app.command()(train)
app.add_typer(models.app, name="models")


def _show_version(value: bool) -> None:
    if value:
        from geomprobe import __version__

        typer.echo(f"geomprobe {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def run() -> int:
    """Run the command in sys.argv; its exit code. Anything but a caller's mistake stays a traceback."""
    code = _run()
    if code == INTERRUPTED:
        _say("stopped; the same command goes on from what was saved.")
    return code


def _run() -> int:
    try:
        result = app(standalone_mode=False)
    except GeomprobeError as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:  # what typer makes of Ctrl-C in some releases; others make it an exit with its code
        return INTERRUPTED
    except typer.Exit as ended:
        return ended.exit_code
    except UsageProblem as error:  # a word on the command line that is not understood
        error.show()
        return error.exit_code
    return result if isinstance(result, int) else 0


def _say(sentence: str) -> None:
    print(f"geomprobe: {sentence}", file=sys.stderr)  # noqa: T201
