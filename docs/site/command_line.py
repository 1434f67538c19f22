"""Write docs/reference/command_line.md, the reference of the command: `python -m docs.site.command_line`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import typer

from bayesnorm.cli.app import app

from .links import ROOT

PAGE = ROOT / "docs" / "reference" / "command_line.md"

INTRODUCTION = """# Command line

The extra `cli` installs the command `bayesnorm`. Its tables need the extra `tabular`
([installation](../getting_started/installation.md)).
`bayesnorm COMMAND --help` prints the same text. [Files and exit codes](guarantees.md) are described elsewhere.
This page is generated from the command: `python -m docs.site.command_line`.
"""


def as_markdown(text: str) -> str:
    """Return a help text with its examples as a block of code."""
    words, _, examples = text.replace("\b", "").partition("Examples:\n")
    paragraphs = "\n\n".join(" ".join(part.split()) for part in words.split("\n\n") if part.strip())
    paragraphs = paragraphs.replace("[", "\\[")
    if not examples:
        return paragraphs
    lines = "\n".join(line.strip() for line in examples.strip().splitlines())
    return f"{paragraphs}\n\n```\n{lines}\n```"


def default_text(option: Any) -> str:
    """Return what a parameter is without being given: a word, a value, or nothing."""
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return option.show_default
    default = option.default
    if default is None or default is False or default == [] or option.show_default is False:
        return ""
    return "on" if default is True else str(getattr(default, "value", default))


def rows(command: Any) -> Iterator[str]:
    """Yield the rows of a command's table of arguments and options."""
    for option in command.params:
        if getattr(option, "hidden", False) or option.name in ("install_completion", "show_completion"):
            continue
        if option.param_type_name == "argument":
            name = f"`{option.metavar or option.name.upper()}`"
        else:
            metavar = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
            name = f"`{', '.join([*option.opts, *option.secondary_opts])}{metavar}`"
        words = html.escape(" ".join((option.help or "").split()), quote=False).replace("|", "\\|").replace("[", "\\[")
        yield f"| {name} | {words} | {html.escape(default_text(option), quote=False)} |"


def sections(command: Any, name: str, level: int) -> Iterator[str]:
    """Yield the Markdown of a command and of its subcommands."""
    yield f"{'#' * level} {name}\n\n{as_markdown(command.help or '')}"
    if options := list(rows(command)):
        yield "\n".join(["| argument or option | meaning | default |", "|---|---|---|", *options])
    for subcommand, part in getattr(command, "commands", {}).items():
        yield from sections(part, f"{name} {subcommand}", level if level > 2 else level + (name != "bayesnorm"))


def command_line_page() -> str:
    """Return the page."""
    group = typer.main.get_command(app)
    return re.sub(r" +\n", "\n", "\n\n".join([INTRODUCTION.rstrip(), *sections(group, "bayesnorm", 2)])) + "\n"


if __name__ == "__main__":
    PAGE.write_text(command_line_page(), encoding="utf-8")
