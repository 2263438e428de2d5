"""The reference of the command line, from the commands themselves."""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import typer

from docsite.markdown import code, plain, table

_TOLD: Final = re.compile(r" *\[default: (.*)\]$")  # a default in words, at the end of a help text


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, in the order of `geomprobe --help`; a group before what it holds."""
    from geomprobe.cli.app import app

    yield from _walk("geomprobe", typer.main.get_command(app))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _walk(f"{name} {word}", inner)


def options(command: Any) -> list[Any]:
    """The options of a command that its help shows."""
    return [param for param in command.params if param.param_type_name == "option" and not param.hidden]


def arguments(command: Any) -> list[Any]:
    """What a command takes without a name."""
    return [param for param in command.params if param.param_type_name == "argument"]


def command_reference() -> str:
    """Every command with its arguments, options, defaults and help."""
    return "\n\n".join(_section(name, command) for name, command in commands())


def _section(name: str, command: Any) -> str:
    parts = [f"## {name}", _paragraphs(command.help or ""), f"```\n{_usage(name, command)}\n```"]
    if inner := getattr(command, "commands", None):
        rows = [
            [f"[`{word}`](#{name.replace(' ', '-')}-{word})", plain(_first(one.help))] for word, one in inner.items()
        ]
        parts.append(table(["command", "does"], rows))
    if taken := arguments(command):
        rows = [[code(param.name.upper()), plain(param.help or "")] for param in taken]
        parts.append(table(["argument", "is"], rows))
    if given := options(command):
        rows = [[_names(param), _takes(command, param), _default(param), _help(param)] for param in given]
        parts.append(table(["option", "takes", "default", "is"], rows))
    return "\n\n".join(part for part in parts if part)


def _usage(name: str, command: Any) -> str:
    words = [name]
    words += [f"{_long(param)} {_long(param)[2:].upper()}" for param in options(command) if param.required]
    words.append("[OPTIONS]")
    if getattr(command, "commands", None):
        words.append("COMMAND …")
    for param in arguments(command):
        word = f"{param.name.upper()}{' …' if param.nargs == -1 else ''}"
        words.append(word if param.required else f"[{word}]")
    return " ".join(words)


def _first(text: str | None) -> str:
    return (text or "").strip().split("\n\n")[0]


def _paragraphs(text: str) -> str:
    return "\n\n".join(plain(part) for part in text.strip().split("\n\n"))


def _long(param: Any) -> str:
    return next((name for name in param.opts if name.startswith("--")), param.opts[0])


def _names(param: Any) -> str:
    ordered = sorted([*param.opts, *param.secondary_opts], key=lambda name: not name.startswith("--"))
    return ", ".join(code(name) for name in ordered)


def _kind(command: Any, param: Any) -> type:
    """The type of a parameter, from the function behind the command: lists and None taken off."""
    hint = get_type_hints(inspect.unwrap(command.callback)).get(param.name, str)
    while inner := [one for one in get_args(hint) if one is not type(None)]:
        hint = inner[0]
    return hint


def _takes(command: Any, param: Any) -> str:
    if param.is_flag:
        return ""
    kind = _kind(command, param)
    repeated = ", repeatable" if param.multiple and "repeatable" not in (param.help or "") else ""
    if issubclass(kind, Enum):
        return " or ".join(code(str(one.value)) for one in kind) + repeated
    return {int: "a whole number", float: "a number", Path: "a path"}.get(kind, "text") + repeated


def _default(param: Any) -> str:
    value = getattr(param.default, "value", param.default)
    if param.required:
        return "required"
    if told := _TOLD.search(param.help or ""):
        return plain(told[1])
    if value is None or param.is_flag or value in ((), [], "") or callable(value):
        return ""
    return code(str(value))


def _help(param: Any) -> str:
    return plain(_TOLD.sub("", param.help or ""))
