"""`servingpool`: one command for the operator and for all that helps to trust it."""

from __future__ import annotations

import sys

import typer

from servingpool.cli.adopt import adopt, release
from servingpool.cli.backtest import backtest
from servingpool.cli.check import check
from servingpool.cli.check_profile import check_profile
from servingpool.cli.compare import compare
from servingpool.cli.completing import complete_for_kubectl
from servingpool.cli.crd import crd
from servingpool.cli.dashboard import dashboard
from servingpool.cli.demo import demo
from servingpool.cli.explain import explain
from servingpool.cli.get import get
from servingpool.cli.history import history
from servingpool.cli.lab import lab
from servingpool.cli.output import Commands
from servingpool.cli.pause import pause, resume
from servingpool.cli.record import record
from servingpool.cli.run import run
from servingpool.cli.simulate import simulate
from servingpool.cli.suggest import suggest

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text, as kubectl's: Rich alone takes a tenth of a second to import
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    help="Autoscaler for LLM engines: keeps a latency SLO with as few replicas as possible.",
    pretty_exceptions_enable=False,
)
commands = (run, get, explain, history, compare, dashboard, adopt, release, pause, resume, check, check_profile)
for command in (*commands, suggest, record, backtest, demo, simulate, lab, crd):
    app.command()(command)
app.command("__complete", hidden=True, context_settings={"ignore_unknown_options": True, "help_option_names": []})(
    complete_for_kubectl
)


def complete() -> None:
    """`kubectl_complete-servingpool`, which kubectl runs."""
    app(["__complete", *sys.argv[1:]])


if __name__ == "__main__":
    app()
