"""Use the cores of a CPU for separate networks, so that they do not wait for each other at every operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_threads(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    device: torch.device,
    abandon: Callable[[], None] | None = None,
) -> list[Result]:
    """Return `work(task)` for every task; on a CPU with as many threads as torch has, each using one core.

    Args:
        work: The function of a task.
        tasks: The tasks, in the order of the results.
        device: The device that does the work.
        abandon: Called if a task fails or the user interrupts, before waiting for running tasks.
    """
    threads = min(torch.get_num_threads(), len(tasks)) if device.type == "cpu" else 1
    if threads < 2:
        return [work(task) for task in tasks]
    before, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    answers: SimpleQueue[tuple[int, Result | BaseException]] = SimpleQueue()

    def answer(place: int) -> None:
        try:
            with torch.inference_mode(inference):  # per thread; tensors of the other mode cannot be written to
                answers.put((place, work(tasks[place])))
        except BaseException as error:
            answers.put((place, error))

    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    try:
        for place in range(len(tasks)):
            pool.submit(answer, place)
        results: dict[int, Result] = {}
        while len(results) < len(tasks):
            place, result = answers.get()
            if isinstance(result, BaseException):
                raise result
            results[place] = result
        return [results[place] for place in range(len(tasks))]
    except BaseException:
        if abandon is not None:
            abandon()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's operations on one core: for such small networks, several cores mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
