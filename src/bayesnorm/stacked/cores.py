"""A CPU's cores, each with networks of its own: they never wait for each other, as they would at every operation."""

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
    """Return what `work` makes of every task; on a CPU by as many threads as torch has, whose operations keep to them.

    Args:
        work: The function that is called with each task.
        tasks: The tasks, in the order of the results.
        device: Where the work is done.
        abandon: Called when a task fails or the user interrupts, before tasks that are under way are waited for.
    """
    threads = min(torch.get_num_threads(), len(tasks)) if device.type == "cpu" else 1
    if threads < 2:
        return [work(task) for task in tasks]
    before, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    answers: SimpleQueue[tuple[int, Result | BaseException]] = SimpleQueue()

    def answer(place: int) -> None:
        try:
            with torch.inference_mode(inference):  # a thread's own, and no writing to tensors of the other mode
                answers.put((place, work(tasks[place])))
        except BaseException as error:
            answers.put((place, error))

    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    try:
        for place in range(len(tasks)):
            pool.submit(answer, place)
        found: dict[int, Result] = {}
        while len(found) < len(tasks):
            place, result = answers.get()
            if isinstance(result, BaseException):
                raise result
            found[place] = result
        return [found[place] for place in range(len(tasks))]
    except BaseException:
        if abandon is not None:
            abandon()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch's operations on one core: on networks as small as these, several wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
