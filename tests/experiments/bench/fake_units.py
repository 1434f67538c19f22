"""Units for tests: quick, slow, failing and deadly ones."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
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


def noisy(x: int) -> int:
    print("to standard output", flush=True)
    os.write(1, b"past Python\n")
    assert sys.stdin.read() == ""
    return x


def threads(x: int) -> list[str]:
    return [os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]]


def slow(x: int, folder: str, seconds: float) -> int:
    part = Path(folder, f"{x}.part")
    part.write_text(str(os.getpid()))
    part.rename(part.with_suffix(".pid"))  # there with its content, or not at all
    time.sleep(seconds)
    return x * x


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


def forks(x: int) -> int:
    """Children that do not end by themselves come back as their parent does; units are slow enough to meet them."""
    child = os.fork()
    if child == 0 and x == 1:
        time.sleep(0.2)
        raise RuntimeError("in the child")
    if child == 0 and x == 2:
        sys.exit()
    if child and x == 2:
        assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.3 if child else 0)
    return x * x


class Beyond(BaseException):
    """What is no `Exception`."""


def dies(x: int, deadly: list[int], kind: str) -> int:
    if x in deadly:
        if kind == "beyond":
            raise Beyond
        if kind == "exit":
            os._exit(7)
        if kind == "orphan":  # a child keeps the pipes open after its parent's death
            if os.fork() == 0:
                time.sleep(10)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), getattr(signal, kind))
        time.sleep(60)
    return x * x


def loses_its_gpu(x: int, deadly: list[int], device: str = "cuda") -> int:
    """As after an illegal access to a GPU's memory: CUDA fails in this process from then on."""

    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    if x in deadly:
        cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=fail)
        sys.modules["torch"] = SimpleNamespace(  # type: ignore[assignment]
            cuda=cuda, __version__="0", set_num_threads=lambda _: None, manual_seed=lambda _: None
        )
    if isinstance(sys.modules.get("torch"), SimpleNamespace):
        fail()
    return x * x
