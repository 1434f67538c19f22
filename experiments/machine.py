"""What a result was made on."""

from __future__ import annotations

import os
import platform
from datetime import date
from typing import Any

import torch

from bayesnorm.cli.versions import cpu_name


def machine(device: str = "cpu") -> dict[str, Any]:
    """Hardware and versions, for the head of a results file."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }
