"""The structure of the core in figures: `python benchmarks/structure.py`.

Lines, the longest chain of imports, and the numbers that somebody could tune.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

from servingpool.decision.params import Params

CORE = Path(__file__).parent.parent / "operator" / "servingpool" / "decision"
PACKAGE = "servingpool.decision."
LIMITS = {"lines": 7907, "files": 33, "imports": 175, "chain": 14, "numbers": 107}
"""Limits on the core's figures: `make lint` fails above a limit. Who lowers a figure lowers its limit; nobody raises a
limit."""


def sources() -> dict[str, str]:
    """Each file of the core by name, as `decide` or `observe.samples`; fronts of rooms by theirs, as `observe`."""
    names = {path: ".".join(path.relative_to(CORE).with_suffix("").parts) for path in sorted(CORE.rglob("*.py"))}
    return {name.removesuffix("__init__").rstrip("."): path.read_text(encoding="utf-8") for path, name in names.items()}


def _imported(tree: ast.Module) -> list[tuple[str, str]]:
    """Module of the core, and name, of all that a file imports, at its head or in a function."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None]
    found = [(f"{node.module}.", alias.name) for node in nodes for alias in node.names]
    return [(module.removeprefix(PACKAGE).rstrip("."), name) for module, name in found if module.startswith(PACKAGE)]


def graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The files that each file imports. An import from a room's front counts for the file that has the name."""
    rooms = {name for name in trees if any(other.startswith(f"{name}.") for other in trees)} | {""}
    behind = {(room, name): file for room in rooms for file, name in _imported(trees[room])}
    found = {
        file: {behind.get((module, name), module or name) for module, name in _imported(tree)}
        for file, tree in trees.items()
        if file not in rooms
    }
    return {file: (others - {file}) & found.keys() for file, others in found.items()}


def longest_chain(imports: dict[str, set[str]]) -> list[str]:
    """Files of which each imports the next; no two import each other in a circle."""

    @cache
    def below(name: str) -> tuple[str, ...]:
        chains = [below(other) for other in sorted(imports[name])]
        return (name, *max(chains, key=len, default=()))

    longest: tuple[str, ...] = max((below(name) for name in imports), key=len)
    return list(longest)


def constants(tree: ast.Module) -> list[str]:
    """Names in capitals that are bound to numbers at the head of a module; not columns, and not what others give."""
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_number(node.value):
            named = (name for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))
            found += [name.id for name in named if name.id.isupper()]
    return found


def _is_number(value: ast.expr) -> bool:
    """Written out, or several of them."""
    match value:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Call(args=parts):
            return any(map(_is_number, parts)) and not (
                isinstance(value, ast.Call) and ast.unparse(value.func) == "range"
            )
        case ast.BinOp(left=left, right=right):
            return _is_number(left) or _is_number(right)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
    return False


def main() -> None:
    """Print the figures. Exit code 1 where a figure is above its limit."""
    texts = sources()
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lines = {name: len(text.splitlines()) for name, text in texts.items()}
    imports = graph(trees)
    tunable = {name: constants(tree) for name, tree in trees.items()}
    chain = longest_chain(imports)
    fronts = len(texts) - len(imports)
    longest = max(lines, key=lambda name: lines[name])
    print(f"lines: {sum(lines.values())} in {len(imports)} files and {fronts} fronts; most in {longest}")
    print(f"imports between files: {sum(map(len, imports.values()))}")
    print(f"longest chain of imports: {len(chain)}: {' -> '.join(chain)}")
    others, files = sum(map(len, tunable.values())), sum(map(bool, tunable.values()))
    print(f"numbers: {len(fields(Params))} fields of Params, {others} others in {files} files")
    found = {
        "lines": sum(lines.values()),
        "files": len(imports),
        "imports": sum(map(len, imports.values())),
        "chain": len(chain),
        "numbers": others,
    }
    above = [f"{name} {figure}, limit {LIMITS[name]}" for name, figure in found.items() if figure > LIMITS[name]]
    if above:
        sys.exit(f"Above a limit, which may only fall: {'; '.join(above)}")


if __name__ == "__main__":
    main()
