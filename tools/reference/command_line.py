"""Reference of the command line: what each command's `--help` says, exit codes included."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum

from typer.core import TyperArgument, TyperCommand, TyperOption

from reference.markdown import code, table
from reference.markdown import page as whole
from servingpool.cli.main import COMMANDS, loaded

INTRODUCTION = """\
`servingpool` is in `.venv/bin` after any `make` target that sets up Python, and in the image. It is also
`kubectl servingpool`, if `kubectl-servingpool` is on the PATH. `make zipapp` writes it as one file,
`dist/kubectl-servingpool`. The file needs Python 3.11 to 3.14, the same platform, and no network.
`make zipapp EXTRAS=backtest` adds what `backtest`, `demo` and `simulate` need, `EXTRAS=dashboard` the dashboard.

Without `--prometheus` or `--config` a command finds Prometheus, Mimir, Thanos or VictoriaMetrics in the cluster by its
Service's labels, and asks it through the API server. It needs the rights to list Services and to get `services/proxy`.

Completion has commands, options, contexts and names of pools. `servingpool --install-completion` sets it up for bash,
zsh or fish. `kubectl servingpool` is completed by `kubectl_complete-servingpool` on the PATH. pip installs it; beside
the one file, write it:

```sh
#!/bin/sh
exec kubectl servingpool __complete "$@"
```

All commands that ask a cluster take kubectl's `-n`, `--context`, `--kubeconfig` and `--as`, before the command or after
it. Without `-n` the namespace is that of the kubeconfig's context. A pool is NAME, NAMESPACE/NAME or sp/NAME.
`SERVINGPOOL_PROMETHEUS` is the default of every `--prometheus`; `--config` on the command line wins over it. `get` and
`explain` need the right to get and list pools; `pause` and `resume` need the right to patch them. `adopt` and `release`
need that too, and the rights to get the target, to list HPAs and ScaledObjects, and to delete and create the HPA or
patch the ScaledObject. `check KIND/NAME` needs the rights to get the target and its scale and to list pods. `suggest`,
`record` and `backtest KIND/NAME` need the right to list autoscalers too, and a Prometheus that scrapes the engines.
`history`, `compare` and `explain --at` ask a Prometheus that scrapes the operator; with its URL no cluster, as `record
--engine NAME --model NAME`. The other commands need no cluster. The chart starts `run`, and `check` in `helm test`.

[Messages for wrong input](../records/cli-bad-input.md), by command.
"""
EXIT = re.compile(r"Exit codes: (.*)", re.DOTALL)


def page() -> str:
    """The page."""
    commands = {name: loaded(name) for name in COMMANDS}
    rows = [
        (f"[`{name}`](#servingpool-{name})", _summary(command), _exit_codes(command))
        for name, command in commands.items()
    ]
    sections = [part for name, command in commands.items() for part in _section(name, command)]
    return whole("Command line", INTRODUCTION, table(("command", "what it does", "exit codes"), rows), *sections)


def _section(name: str, command: TyperCommand) -> Iterator[str]:
    yield f"## servingpool {name}"
    yield EXIT.sub("", _help(command)).strip()
    rows = [_option(each) for each in command.params if isinstance(each, TyperOption) and each.name != "help"]
    arguments = [
        (code(each.metavar), "required" if each.required else "", each.help or "")
        for each in command.params
        if isinstance(each, TyperArgument)
    ]
    if arguments or rows:
        yield table(("option", "default", "meaning"), [*arguments, *rows])


def _option(option: TyperOption) -> tuple[str, str, str]:
    names = ", ".join(code(each) for each in (*option.opts, *option.secondary_opts))
    takes = _takes(option)
    names += f" {code(takes)}" if takes else ""
    plain = option.is_flag or option.default is None or option.default is False
    default = "required" if option.required else "" if plain else code(str(option.default))
    variable = f" Or set `{option.envvar}`." if option.envvar else ""
    return names, default, f"{option.help or ''}{variable}"


def _takes(option: TyperOption) -> str:
    """Its choices, or what the command calls its value; empty where only the type would be told."""
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(each.value) for each in kind)
    return option.metavar or ""


def _summary(command: TyperCommand) -> str:
    return _help(command).partition("\n\n")[0]


def _exit_codes(command: TyperCommand) -> str:
    found = EXIT.search(_help(command))
    return "0" if found is None else found[1].strip().rstrip(".")


def _help(command: TyperCommand) -> str:
    return inspect.cleandoc(command.help or "")
