"""Units for tests: quick, slow, failing and deadly ones."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any


def square(x: int, **_: Any) -> dict[str, Any]:
    return {"square": x * x, "root": x**0.5}


def plain(x: int) -> float:
    return x / 3


def odd_values(x: int) -> dict[str, Any]:
    return {"nan": float("nan"), "inf": -float("inf"), "list": [x, None, True], "text": 'a "quoted",\nü', "none": None}


def careless(x: int) -> float:
    """Samples from the global generator."""
    return random.random() + x


def threads(x: int) -> list[str]:
    return [os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]]


def tensor(x: int) -> object:
    return {"loss": object()}


def fails_at_first(x: int, folder: str) -> int:
    mark = Path(folder, f"tried-{x}")
    if not mark.exists():
        mark.touch()
        raise RuntimeError(f"no luck with {x}")
    return x


def leaves(x: int) -> int:
    sys.exit(3)


class Beyond(BaseException):
    """What is no `Exception`."""


def dies(x: int, deadly: list[int], kind: str, folder: str) -> int:
    if x in deadly:
        if kind == "beyond":
            raise Beyond
        if kind == "exit":
            os._exit(7)
        if kind == "orphan":  # a child keeps the pipes open after its parent's death
            child = os.fork()
            if child == 0:
                time.sleep(120)
                Path(folder, "ended").touch()
                os._exit(0)
            Path(folder, f"{child}.pid").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), getattr(signal, kind))
        time.sleep(60)
    return x * x
