"""Code lines of each package beside their ceilings: `python benchmarks/structure.py`, in `make lint`.

Code lines are those that are left without blanks, imports, docstrings and comments. A ceiling is what stood when it was
last written, and only falls: `--lower`, in `make generate`, writes what stands now. A higher one needs a reason in
`ceilings.json`, by the package's name under "raised"; the history of that file is looked at, so a ceiling that rises
without one is found on any machine.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from servingpool.decision.params import Params

ROOT = Path(__file__).parents[1]
CEILINGS = ROOT / "benchmarks" / "ceilings.json"
CORE = "operator/servingpool/decision"
NUMBERS = "numbers to tune in the core"
"""Fields of Params, and names in capitals that are bound to numbers."""
DEFENCE = tuple(f"{CORE}/{one}.py" for one in ("increase", "observe/confirm", "observe/gauges", "observe/plausible"))
"""What doubts a figure or leaves it out, and nothing else of the core does."""
MOST_DEFENCE = 400
DEPTH = {"operator": 3, "packages": 2, "benchmarks": 1, "tools": 1, "tests": 1}
"""How many folders deep a package lies."""
LOOKED_AT = 50
"""Changes of the file that are looked at."""

Figures = Mapping[str, int]


def code_lines(text: str) -> int:
    """Without blanks, imports, docstrings and comments."""
    left_out: set[int] = set()
    quoted: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Import()
                | ast.ImportFrom()
                | ast.Expr(value=ast.Constant(value=str()))
                | ast.Assign(targets=[ast.Name(id="__all__")])
            ):
                left_out.update(_lines(node))
            case ast.Constant(value=str()) | ast.JoinedStr():
                quoted.update(_lines(node))
    rows = ((number, row.strip()) for number, row in enumerate(text.splitlines(), 1) if number not in left_out)
    return sum(bool(row) and (number in quoted or not row.startswith("#")) for number, row in rows)


def _lines(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def numbers(tree: ast.Module) -> int:
    """Names in capitals that are bound to numbers at the head of a module."""
    bound = [node for node in tree.body if isinstance(node, ast.Assign) and _is_number(node.value)]
    names = [name for node in bound for target in node.targets for name in ast.walk(target)]
    return sum(isinstance(name, ast.Name) and name.id.isupper() for name in names)


def _is_number(value: ast.expr) -> bool:
    """Written out, or several of them."""
    match value:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Call(args=parts):
            of_range = isinstance(value, ast.Call) and ast.unparse(value.func) == "range"
            return any(map(_is_number, parts)) and not of_range
        case ast.BinOp(left=left, right=right):
            return _is_number(left) or _is_number(right)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
    return False


def standing() -> Figures:
    """What stands now, by package."""
    found: Counter[str] = Counter()
    for folder, depth in DEPTH.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            text, parts = file.read_text(encoding="utf-8"), file.relative_to(ROOT).parts
            if "build" not in parts:
                found["/".join(parts[: min(depth, len(parts) - 1)])] += code_lines(text)
            if file.is_relative_to(ROOT / CORE):
                found[NUMBERS] += numbers(ast.parse(text))
    found[NUMBERS] += len(fields(Params))
    return found


def lowered(ceilings: Figures, now: Figures) -> Figures:
    """Ceilings as low as what stands; of a new package what stands."""
    return {package: min(lines, ceilings.get(package, lines)) for package, lines in sorted(now.items())}


def above(now: Figures, ceilings: Figures) -> Iterator[str]:
    """What stands above its ceiling."""
    for package, lines in now.items():
        if (more := lines - ceilings.get(package, lines)) > 0:
            yield f"{package}: {lines:,}, {more} above its ceiling. Delete {more} in it first (CONTRIBUTING.md)."


def raised(old: Mapping[str, Mapping[str, object]], new: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Ceilings that rose from one version of the file to the next without a new reason: of packages, and of folders."""
    before, after = (_with_folders(each["ceilings"]) for each in (old, new))
    for name, lines in after.items():
        reason = new["raised"].get(name)
        if lines > before.get(name, lines) and reason in {None, old["raised"].get(name)}:
            yield f"{name}: its ceiling rose from {before[name]:,} to {lines:,} without a reason"


def _with_folders(ceilings: Mapping[str, object]) -> Figures:
    found: Counter[str] = Counter()
    for package, lines in ceilings.items():
        assert isinstance(lines, int)
        for name in {package, package.partition("/")[0]}:
            found[name] += lines
    return found


def versions() -> Iterator[dict[str, dict[str, object]]]:
    """The file as it is, and as it was in the commits that changed it, the newest first."""
    yield json.loads(CEILINGS.read_text())
    name = CEILINGS.relative_to(ROOT)
    commits = _git("log", "--first-parent", "--format=%H", f"-{LOOKED_AT}", "--", str(name)).split()
    yield from (json.loads(_git("show", f"{commit}:{name}")) for commit in commits)


def _git(*words: str) -> str:
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False).stdout


def main() -> None:
    """Print the figures. Exit code 1 where one is above its ceiling, or a ceiling rose."""
    now = standing()
    kept = json.loads(CEILINGS.read_text()) if CEILINGS.exists() else {"ceilings": {}, "raised": {}}
    if "--lower" in sys.argv and CEILINGS.exists():
        kept["ceilings"] = lowered(kept["ceilings"], now)
        CEILINGS.write_text(json.dumps(kept, indent=1) + "\n")
    for package, lines in sorted(now.items()):
        print(f"{lines:7,} {package}, ceiling {kept['ceilings'].get(package, 0):,}")
    defence = sum(code_lines((ROOT / name).read_text(encoding="utf-8")) for name in DEFENCE)
    print(f"{defence:7,} of it defence of the core, at most {MOST_DEFENCE}")
    wrong = [*above(now, kept["ceilings"])]
    wrong += [f"defence: {defence}, at most {MOST_DEFENCE}"] if defence > MOST_DEFENCE else []
    if CEILINGS.exists():
        wrong += [line for new, old in pairwise(versions()) for line in raised(old, new)]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
