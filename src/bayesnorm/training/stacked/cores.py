"""A CPU's cores, each with networks of its own: they never wait for each other, as they would at every operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_threads(work: Callable[[Task], Result], tasks: Sequence[Task], device: torch.device) -> list[Result]:
    """`work` done on every task; on a CPU by as many threads as torch has, each of whose operations keep to it."""
    threads = min(torch.get_num_threads(), len(tasks)) if device.type == "cpu" else 1
    if threads < 2:
        return [work(task) for task in tasks]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    try:
        return list(pool.map(work, tasks))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)
