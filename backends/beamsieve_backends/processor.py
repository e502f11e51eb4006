"""The name of the processor that this runs on."""

from __future__ import annotations

import platform
from pathlib import Path

_LINUX = Path("/proc/cpuinfo")


def processor_name() -> str:
    """As its maker names it, where the system says so: "AMD EPYC 9965 192-Core Processor"."""
    if _LINUX.exists():
        for line in _LINUX.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()
