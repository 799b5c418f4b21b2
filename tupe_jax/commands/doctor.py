"""Check this installation: versions, devices, memory, extras.

  tupe doctor
  JAX_PLATFORMS=cpu tupe doctor     ignore accelerators

Exit code 0 if everything required is installed and JAX finds a device, otherwise 1. Lines that
begin with ! are problems, and name the fix. It also works without JAX.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from tupe_jax import __version__
from tupe_jax.config.loading import known_configs
from tupe_jax.run.versions import installed_version
from tupe_jax.utils.accelerators import has_nvidia_gpu, has_tpu

PACKAGE = "tupe_jax"
SHOWN = ("jax", "flax", "optax", "orbax-checkpoint", "seqio")
FOR_CHANGING_THE_CODE = "test"
GIB = 2**30

# In its own process: the libraries of accelerators may hang, crash or print.
_FIND_DEVICES = """
import json, jax
devices = jax.local_devices()
memory = (devices[0].memory_stats() or {}).get("bytes_limit")
print(json.dumps([len(devices), devices[0].platform, devices[0].device_kind, memory]))
"""


PROBLEM_EXIT_CODE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", type=float, default=60.0, help="seconds to wait for devices (default: 60)"
    )


def run(arguments: argparse.Namespace) -> int:
    healthy = True
    for line in report_lines(arguments.wait):
        healthy &= line.healthy
        print(f"{' ' if line.healthy else '!'} {line.what:<9} {line.text}", flush=True)
    return 0 if healthy else PROBLEM_EXIT_CODE


@dataclass(frozen=True)
class ReportLine:
    """A line of the report; an unhealthy one names the fix."""

    what: str
    text: str
    healthy: bool = True


def report_lines(wait: float) -> Iterator[ReportLine]:
    """All lines of the report. Devices are awaited for `wait` seconds."""
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield ReportLine("version", f"{PACKAGE} {__version__}, {system}")
    yield from packages(PACKAGE)
    yield ReportLine(
        "configs", f"{len(known_configs())}, such as quickstart; `tupe pretrain --help`"
    )
    yield ReportLine("memory", _memory())
    yield ReportLine("disk", f"{shutil.disk_usage(Path.cwd()).free / GIB:.1f} GiB free here")
    yield devices(wait)


# ----------------------------------------------------------------------------------- packages


def packages(name: str) -> Iterator[ReportLine]:
    """The requirements of an installed package, and its extras."""
    try:
        extras = importlib.metadata.metadata(name).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        yield ReportLine("packages", f"{name} is not installed: pip install -e .", healthy=False)
        return
    unmet = [part for requirement in _required(name) for part in _unmet(requirement)]
    for part in unmet:
        fitting = f"{part.name}{part.specifier}"
        yield ReportLine("packages", f"{_state(part)}: pip install '{fitting}'", healthy=False)
    if not unmet:
        shown = ", ".join(f"{package} {installed_version(package)}" for package in SHOWN)
        yield ReportLine("packages", f"all requirements are met; {shown}")
    for extra in extras:
        if extra != FOR_CHANGING_THE_CODE:
            yield ReportLine("extra", _extra_text(name, extra))


def _extra_text(name: str, extra: str) -> str:
    parts = [part for requirement in _added(name, extra) for part in _parts(requirement)]
    unmet = [part for part in parts if _unmet(part)]
    if unmet:
        lacking = ", ".join(map(_state, unmet))
        return f"{extra}: not installed ({lacking}): pip install '{name}[{extra}]'"
    return f"{extra}: {', '.join(map(_state, parts))}"


def _state(requirement: Requirement) -> str:
    version = installed_version(requirement.name)
    if version is None:
        return f"no {requirement.name}"
    return f"{requirement.name} {version}" + (
        "" if _fits(requirement, version) else f", not {requirement.specifier}"
    )


def _fits(requirement: Requirement, version: str) -> bool:
    return requirement.specifier.contains(version, prereleases=True)


def _unmet(requirement: Requirement) -> list[Requirement]:
    """The missing or wrong parts: the package itself, or parts of its requested extras."""
    version = installed_version(requirement.name)
    if version is None or not _fits(requirement, version):
        return [requirement]
    parts = [part for part in _parts(requirement) if part is not requirement]
    return [unmet for part in parts for unmet in _unmet(part)]


def _parts(requirement: Requirement) -> list[Requirement]:
    """The packages that it stands for: for `jax[tpu]`, those of the extra `tpu`."""
    if installed_version(requirement.name) is None or not requirement.extras:
        return [requirement]
    return [part for extra in requirement.extras for part in _added(requirement.name, extra)]


def _required(name: str, extra: str = "") -> list[Requirement]:
    """The requirements of a package on this machine, with an extra or without."""
    requirements = map(Requirement, importlib.metadata.requires(name) or [])
    return [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": extra})]


def _added(name: str, extra: str) -> list[Requirement]:
    """The requirements that an extra adds."""
    always = set(map(str, _required(name)))
    return [r for r in _required(name, extra) if str(r) not in always]


# ------------------------------------------------------------------------------------ machine


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"{total / GIB:.1f} GiB"
    meminfo = Path("/proc/meminfo")  # Linux only
    lines = meminfo.read_text() if meminfo.exists() else ""
    available = re.search(r"MemAvailable: +(\d+) kB", lines)
    if available:
        text += f", {int(available[1]) * 1024 / GIB:.1f} available"
    return f"{text}; {os.cpu_count()} CPU cores"


def devices(wait: float) -> ReportLine:
    """The devices that JAX finds, or why it finds none."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _FIND_DEVICES], capture_output=True, text=True, timeout=wait
        )
    except subprocess.TimeoutExpired:
        return ReportLine(
            "devices",
            f"none within {wait:g} s: another process may use them, or this is one host of a pod, "
            "where all hosts must start together",
            healthy=False,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it crashed"])[-1]
        setting = f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}"
        text = f"none with {setting} ({last}); JAX_PLATFORMS=cpu uses no accelerator"
        return ReportLine("devices", text, healthy=False)
    count, kind, model, memory = json.loads(done.stdout.splitlines()[-1])
    text = f"{count} x {kind}" + ("" if kind == model else f" ({model})")
    extra = _accelerator() if kind == "cpu" and not os.environ.get("JAX_PLATFORMS") else None
    if extra:
        text += f", but JAX does not find the accelerator: pip install '{PACKAGE}[{extra}]'"
        return ReportLine("devices", f"{text}, or ignore it with JAX_PLATFORMS=cpu", healthy=False)
    return ReportLine(
        "devices", text + ("" if memory is None else f", {memory / GIB:.1f} GiB each")
    )


def _accelerator() -> str | None:
    """The extra for the accelerator of this machine, whatever JAX finds."""
    if has_nvidia_gpu():
        return "cuda"
    return "tpu" if has_tpu() else None
