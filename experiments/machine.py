"""Describe the machine that a result was computed on."""

from __future__ import annotations

import os
import platform
from datetime import date
from typing import Any

import torch

import bayesnorm
from bayesnorm.report import cpu_name


def machine(device: str = "cpu") -> dict[str, Any]:
    """Return hardware and versions, for the header of a results file.

    Args:
        device: Where it was computed, "cpu" or "cuda".
    """
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "bayesnorm": bayesnorm.__version__,
        "date": date.today().isoformat(),
    }
