"""What a result was made on."""

from __future__ import annotations

import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch


def machine(device: str = "cpu") -> dict[str, Any]:
    """Hardware and versions, for the head of a results file."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }


def _cpu() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
