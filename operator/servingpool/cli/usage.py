"""Shared checks of options and arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from servingpool.api.group import CRD_NAME, GROUP, KIND
from servingpool.catalogue.plain import plain
from servingpool.cli.output import LINES, echo

USAGE = 2
"""Exit code: wrong usage."""
AUTOSCALERS = {"hpa": "hpa", "horizontalpodautoscaler": "hpa", "scaledobject": "scaledobject", "so": "scaledobject"}
"""Kubectl's names."""
POOL_KINDS = frozenset({"sp", "servingpool", "servingpools", f"{KIND.lower()}.{GROUP}", CRD_NAME})
"""Kubectl's names of a pool's kind."""
_DAYS = re.compile(r"(?:([0-9]{1,4})d)?(.*)")
_WRONG_USAGE: type[Any] = typer.BadParameter.__mro__[1]
"""UsageError, the base of all that typer raises for wrong input: of click, or of typer's own copy of it."""
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)


class Range(NamedTuple):
    """The shortest and the longest duration that an option takes, and examples between them."""

    least: str
    most: str
    such: str


HISTORY = Range("10m", "90d", "12h or 7d")
"""How long a history of engines is read."""


def wrong(said: str) -> NoReturn:
    """Wrong usage: say it and leave with its exit code."""
    echo(said, err=True)
    raise typer.Exit(USAGE)


def span(option: str, text: str, within: Range) -> float:
    """Seconds of a duration, which may be in days, such as 1d6h."""
    found = seconds(text)
    if found is None or not (seconds(within.least) or 0.0) <= found <= (seconds(within.most) or 0.0):
        wrong(f"{option} must be {within.least} to {within.most}, such as {within.such}, got '{text}'")
    return found


def seconds(text: str) -> float | None:
    """Seconds of a duration; None where the text is no duration."""
    from servingpool.api.duration import parse  # brings pydantic, slow

    found = _DAYS.fullmatch(text)
    days, rest = (found[1], found[2]) if found is not None else (None, text)
    try:
        return int(days or 0) * 86_400.0 + (parse(rest) if rest or not days else 0.0)
    except ValueError:
        return None


def workload(text: str) -> tuple[str, str]:
    """Kind and name in `KIND/NAME` or `KIND.GROUP/NAME`; the API server knows which kinds there are."""
    kind, _, name = text.partition("/")
    if not kind or not name or "/" in name or kind in AUTOSCALERS:
        wrong(f"Write the target as KIND/NAME, such as deployment/{name or text or 'llama'}, got '{text}'")
    return kind, name


def target_of(text: str) -> tuple[str, str]:
    """The same, and for an autoscaler `hpa` or `scaledobject` and its name."""
    kind, slash, name = text.partition("/")
    return (AUTOSCALERS[kind], name) if kind in AUTOSCALERS and slash and name else workload(text)


class Commands(TyperGroup):
    """All commands. What is said of wrong input names the option, what it takes and what was given, without controls.

    Typer's own words for it are those of the library below.
    """

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse what is common to all commands."""
        with _worded():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the rest, and run the command."""
        with _worded():
            return super().invoke(ctx)


@contextmanager
def _worded() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        option, said = _option(error), _said(error)
        if not error.message and error.ctx is not None:
            raise _WRONG_USAGE(plain(f"{_called(error.ctx)} needs {option}", LINES), ctx=error.ctx) from error
        between = "" if not option else " " if said.startswith(("must ", "cannot ")) else ": "
        raise _WRONG_USAGE(plain(f"{option}{between}{said}", LINES), ctx=error.ctx) from error
    except _WRONG_USAGE as error:
        error.message = plain(_too_many(error), LINES)
        raise


def _option(error: typer.BadParameter) -> str:
    """Name of the parameter that is wrong; empty where none is named."""
    if error.param_hint is not None:
        return error.param_hint if isinstance(error.param_hint, str) else " / ".join(error.param_hint)
    parameter: Any = error.param
    if parameter is None:
        return ""
    return max(parameter.opts, key=len) if parameter.param_type_name == "option" else _argument(parameter)


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper()).strip("[]")


def _called(context: Any) -> str:
    return f"servingpool {context.info_name}"


def _said(error: typer.BadParameter) -> str:
    """What an option must be and what was given, where the library tells both."""
    problems = getattr(error.__cause__, "errors", None)
    if problems is None:
        return str(error.message)
    problem = problems()[0]
    given, kind = problem.get("input"), str(problem.get("type"))
    described = getattr(error.param, "type_descriptor", None)
    info = getattr(described, "parameter_info", None)
    low, high = getattr(info, "min", None), getattr(info, "max", None)
    within = "" if low is None else f"{low} or more" if high is None else f"{low} to {high}"
    if kind.startswith(("int", "float")):
        number = "a whole number" if kind.startswith("int") else "a number"
        return f"must be {number}{within and f', {within}'}, got '{given}'"
    if within and kind.startswith(("less_than", "greater_than")):
        return f"must be {within}, got {given}"
    said = str(problem["msg"]).removeprefix("Value error, ")
    choices = getattr(described, "choices", None)
    return f"must be one of {', '.join(map(str, choices))}, got '{given}'" if choices else said


def _too_many(error: Any) -> str:
    """A message, and where a command got more than it takes, what it takes."""
    said, context = str(error.message), error.ctx
    found = _EXTRA.fullmatch(said)
    if found is None or context is None:
        said = said.replace("Did you mean '__complete'?", "Give --install-completion for the shell's.")
        return f"{said} `servingpool -h` lists them." if said.startswith("No such command") else said
    name = _called(context)
    named = [one for one in context.command.params if one.param_type_name == "argument"]
    if not named:
        return f"{name} takes no argument, got '{found[1]}'"
    first = context.params.get(named[0].name)
    if first in POOL_KINDS | {"pool", "pools"}:
        return f"{name} takes a NAME and no kind: write `{name} {found[1]}`"
    return f"{name} takes one {_argument(named[0])}, got '{found[1]}' too"
