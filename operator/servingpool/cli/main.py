"""`servingpool`: one command for the operator and for all that helps to trust it.

A command's module is imported when the command is called: --help and the completion of names wait for none.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from servingpool import __version__
from servingpool.cli.output import echo
from servingpool.cli.usage import Commands, wrong

SECTIONS = {
    "Look at pools": ("fleet", "explain", "history", "compare", "dashboard"),
    "Change pools": ("adopt", "release", "pause", "resume"),
    "Before pools scale": ("check", "check-profile", "suggest", "record", "backtest"),
    "Without a cluster": ("demo", "simulate", "lab"),
    "The operator": ("run", "crd", "version"),
}
"""Headings of --help, and the commands below each."""
PLACE = ("-n", "--namespace", "--context", "--kubeconfig")
"""Options with a value that say where. They may stand before the command, too."""
MODULES = {"release": "adopt", "resume": "pause"}
"""Module of a command whose module has another name."""


def _sentence(name: str) -> str:
    """First sentence of a command's docstring, read without importing its module."""
    module = Path(__file__).with_name(f"{MODULES.get(name, name).replace('-', '_')}.py").read_text(encoding="utf-8")
    found = re.search(rf'^def {name.replace("-", "_")}\(.*?"""(.*?\.)\s', module, re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""


COMMANDS = {name: _sentence(name) for names in SECTIONS.values() for name in names}
"""Each command and what --help says of it."""
EXAMPLE = re.compile(r"Example: `([^`]+)`")
TAKES = dict.fromkeys(("path", "file", "list[Path]"), "FILE") | {"int range": "N", "json": "json"}
"""What an option takes, by the library's name of its type."""
NO_FILES = ":4"
"""Cobra's directive: complete nothing else, no names of files either."""


class Lazy(Commands):
    """Group of commands that lists `COMMANDS` and imports only the called command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Options that may stand anywhere are put where they are read: --as before the command, the others after it."""
        ours, place, rest = list[str](), list[str](), list(args)
        for at in reversed(range(rest.index("--") if "--" in rest else len(rest))):
            if rest[at] == "--as" or rest[at].startswith("--as="):
                if rest[at] == "--as" and not ctx.resilient_parsing and "".join(rest[at + 1 : at + 2])[:1] in {"", "-"}:
                    wrong("--as needs a USER")
                taken = 2 if rest[at] == "--as" else 1
                ours, rest = [*rest[at : at + taken], *ours], [*rest[:at], *rest[at + taken :]]
        while rest and (rest[0] in PLACE or rest[0].startswith(("-n", *(f"{option}=" for option in PLACE[1:])))):
            taken = 2 if rest[0] in PLACE else 1
            place, rest = [*place, *rest[:taken]], rest[taken:]
        if not rest or rest[0].startswith("-"):
            place = []  # there is no command that reads them
        return list(super().parse_args(ctx, [*ours, *rest[:1], *place, *rest[1:]]))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002, the base has it
        """All commands with their whole sentences, below headings."""
        for heading, names in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, COMMANDS[name]) for name in names])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command and the arguments that are left."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name in COMMANDS else command, rest


class Command(TyperCommand):
    """A command whose help names what options take, and shows each example on a line of its own, to be copied."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, with FILE, N or the option's own name where the library writes a type, such as <list[Path]>."""
        each: Any
        for each in self.params:
            kind = each.display_type(ctx).strip("<>")
            if each.param_type_name == "argument":
                each.display_type = lambda _: ""
            elif not each.is_flag:
                name = each.name.upper().replace("_", "-")
                each.metavar = each.metavar or (kind if "|" in kind else TAKES.get(kind, name))
        super().format_help(ctx, formatter)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """The docstring, with its examples unwrapped."""
        whole, self.help = self.help, EXAMPLE.sub(lambda found: f"\b\n  {' '.join(found[1].split())}", self.help or "")
        super().format_help_text(ctx, formatter)
        self.help = whole


@cache
def loaded(name: str) -> Any:
    """The command of this name, from its module."""
    one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    attribute = name.replace("-", "_")
    one.command(name, cls=Command)(getattr(import_module(f"servingpool.cli.{MODULES.get(name, attribute)}"), attribute))
    return typer.main.get_command(one)


app = typer.Typer(
    cls=Lazy,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text, as kubectl's: Rich alone takes a tenth of a second to import
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="`servingpool COMMAND -h` shows a command's options and examples. -n, --context, --kubeconfig and --as may "
    "stand before the command or after it.",
    pretty_exceptions_enable=False,
)
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def _version(asked: bool) -> None:
    if asked:
        echo(f"servingpool {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    acting: Annotated[
        str | None,
        typer.Option("--as", metavar="USER", help="Ask the cluster as this user, as kubectl does.", show_default=False),
    ] = None,
    version: Annotated[  # noqa: ARG001, its callback ends the command
        bool, typer.Option("--version", help="Print the version of this client.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Autoscaler for LLM engines: keeps a latency SLO with as few replicas as possible."""
    from servingpool.adapters.cluster.kubeconfig import act_as

    if acting is not None and context.invoked_subcommand == "run":
        wrong("--as is for the commands of a person: the operator acts as its service account")
    if acting == "":
        wrong("--as needs a USER")
    if acting is not None and not (acting.isprintable() and all(ord(each) < 256 for each in acting)):
        wrong("--as must have printable Latin-1 characters only, because an HTTP header names the user")
    act_as(acting)
    context.call_on_close(partial(act_as, None))  # the next command of this process acts as itself


@app.command("__complete", hidden=True, context_settings={"ignore_unknown_options": True, "help_option_names": []})
def complete_for_kubectl(context: typer.Context, words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Complete the last of the words, which may be empty, as kubectl asks: a line for each word, then a directive."""
    line = shlex.join(["servingpool", *(words or [""])])
    asked = {
        "_SERVINGPOOL_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    os.environ |= asked
    try:
        context.find_root().command.main(args=[], prog_name="servingpool")
    finally:
        for name in asked:
            os.environ.pop(name)
        echo(NO_FILES)


def complete() -> None:
    """`kubectl_complete-servingpool`, which kubectl runs."""
    app(["__complete", *sys.argv[1:]])


if __name__ == "__main__":
    app()
