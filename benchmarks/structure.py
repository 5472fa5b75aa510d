"""The structure of the core in figures: `python benchmarks/structure.py`.

Lines, the longest chain of imports, and the numbers that somebody could tune.
"""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import cache
from pathlib import Path

from servingpool.decision.params import Params

CORE = Path(__file__).parent.parent / "operator" / "servingpool" / "decision"
PACKAGE = "servingpool.decision."


def modules() -> dict[str, ast.Module]:
    """Each module of the core by name."""
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(CORE.glob("*.py"))}


def imports(tree: ast.Module) -> set[str]:
    """The other modules of the core that a module imports, at its head or in a function."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module.startswith(PACKAGE):
                found.add(node.module.removeprefix(PACKAGE).split(".")[0])
            elif node.module == PACKAGE.rstrip("."):
                found |= {alias.name for alias in node.names}
    return found


def longest_chain(trees: dict[str, ast.Module]) -> list[str]:
    """Modules of which each imports the next; no two import each other in a circle."""

    @cache
    def below(name: str) -> tuple[str, ...]:
        chains = [below(other) for other in sorted(imports(trees[name]) & trees.keys())]
        return (name, *max(chains, key=len, default=()))

    longest: tuple[str, ...] = max((below(name) for name in trees), key=len)
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
    """Print the figures."""
    trees = modules()
    lines = {name: len((CORE / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in trees}
    tunable = {name: constants(tree) for name, tree in trees.items()}
    chain = longest_chain(trees)
    print(f"lines: {sum(lines.values())} in {len(lines)} files, the longest {max(lines, key=lambda name: lines[name])}")
    print(f"longest chain of imports: {len(chain)}: {' -> '.join(chain)}")
    others, files = sum(map(len, tunable.values())), sum(map(bool, tunable.values()))
    print(f"numbers: {len(fields(Params))} fields of Params, {others} others in {files} files")


if __name__ == "__main__":
    main()
