"""`python tools/engine_pages [NAME ...]`: write the pages of SGLang and LMDeploy anew into `tests/fixtures/engines`."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from engine_pages import story  # noqa: E402
from engine_pages.packages import PACKAGES, NotInRegistry, Package, unpacked  # noqa: E402

FIXTURES = ROOT / "tests" / "fixtures" / "engines"
MOMENTS = {
    "idle": (story.IDLE, "no request yet"),
    "": (story.BUSY, "three requests running, one queued, seven over"),
    "after": (story.AFTER, "all eleven requests over"),
    "tp2": (story.BUSY, "as without tp2, with two tensor-parallel ranks in place of two data-parallel ones"),
}
"""Of a page's variant, the last part of its file's name: time of the story in seconds, and what the header says."""


def _write(package: Package, cache: Path) -> None:
    """Each page is printed by a process of its own: the collectors register with the process."""
    root = unpacked(package, cache)
    for variant in package.variants:
        moment, said = MOMENTS[variant]
        command = [sys.executable, __file__, "--print", package.name, str(root), variant]
        page = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603
        file = FIXTURES / f"{'-'.join(filter(None, (package.name, package.version, variant)))}.txt"
        file.write_text(
            f"# Printed by the collector classes of {package.name} {package.version} (wheel of SHA-256 "
            f"{package.sha256[:12]})\n# with tools/engine_pages, {moment:g} s into its story: {said}.\n{page}"
        )
        print(f"{file.name}: {page.count(chr(10))} lines")  # noqa: T201


def main() -> int:
    """Print one page with `--print`, else write all of them; 1 if a package could not be had."""
    if sys.argv[1:2] == ["--print"]:
        name, root, variant = sys.argv[2:]
        driver = importlib.import_module(f"engine_pages.{name}")
        sys.stdout.write(driver.page(Path(root), MOMENTS[variant][0], variant))
        return 0
    parser = argparse.ArgumentParser(prog="python tools/engine_pages", description=__doc__)
    parser.add_argument("names", nargs="*", help="engines; all without one")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "build" / "engine_pages", help="where modules are unpacked"
    )
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    missing = 0
    for package in PACKAGES:
        if options.names and package.name not in options.names:
            continue
        try:
            _write(package, options.cache)
        except NotInRegistry as error:
            missing += 1
            print(f"left out: {error}", file=sys.stderr)  # noqa: T201
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
