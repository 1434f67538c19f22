"""The loop of active learning: fit, ask for the labels worth most, keep them, until the budget is spent."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import require_seed
from ..engines import Engine
from ..errors import BayesNormError, FileFormatError, InputError
from ..files import as_path, require_writable
from ..network import Progress, as_tensor
from ..posterior import Posterior
from .acquisitions import Acquisition, BatchAcquisition, choose, require_acquisition, require_count, require_rows
from .labels import Labels

Oracle = Callable[[Tensor, Tensor], Any]
"""`oracle(rows, x)`: row numbers in the pool, (k,), and their inputs; gives k labels, or yields them one by one."""

Fit = Callable[[Tensor, Tensor], Posterior]
"""`fit(x, y)`: all rows labelled so far, in the order in which they were chosen."""


class ActiveLearner:
    """Labels rows of a pool, those first that the posterior is expected to learn most from.

        learner = ActiveLearner(pool, oracle, fit, active.bald, budget=200, batch=10, path="labels.safetensors")
        posterior = learner.run()

    With a `path`, everything asked and answered is on disk before the next thing happens. The same call goes on from
    there, first with the rows that still wait for a label, and ends as if it had never been interrupted. If the oracle
    raises, the labels that it gave before are kept, and its error comes through with a note that says so.

    Args:
        x: The pool's inputs, (N, ...): a tensor or array.
        oracle: Gives labels: `oracle(rows, x)`, for row numbers and their inputs, as a tensor, array or list with one
            label per row; or, as a generator, label by label, each of which is kept as it comes.
        fit: Gives a posterior of the labelled rows: `fit(x, y)`. Its randomness, if any, should come from a seed.
        acquisition: A function of a predictive that scores rows, such as `active.bald`; or a `BatchAcquisition`, such
            as `active.BatchBALD()`.
        budget: How many labels to end with, at most N. A later call may ask for more.
        batch: Labels per round.
        initial: Rows of the first round, when there is no posterior yet: how many at random, or which; None for `batch`
            at random.
        rows_per_call: Rows that the oracle is asked for at a time, 1 for row by row; None for a whole round.
        candidates: Most unlabelled rows that are looked at in a round, drawn at random; None for all.
        reference: Inputs that the posterior's uncertainty should fall at, for acquisitions that use such; predicted by the
            same samples as the candidates.
        engine: How to predict; None for the posterior's own way.
        seed: Decides what is left to chance here: first rows, candidates, samples and ties.
        path: The file that keeps everything (safetensors and JSON).
        on_fit: Called with (labels, posterior) after every fit, also the last.
        progress: Called with (labels, budget) whenever labels have come.
    """

    def __init__(
        self,
        x: Any,
        oracle: Oracle,
        fit: Fit,
        acquisition: Acquisition,
        *,
        budget: int,
        batch: int = 10,
        initial: int | Sequence[int] | Tensor | np.ndarray | None = None,
        rows_per_call: int | None = None,
        candidates: int | None = None,
        reference: Any = None,
        engine: Engine | None = None,
        seed: int = 0,
        path: str | os.PathLike[str] | None = None,
        on_fit: Callable[[int, Posterior], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.x = _pool("x", x)
        self.oracle, self.fit, self.acquisition, self.engine = oracle, fit, acquisition, engine
        self.reference = None if reference is None else _pool("reference", reference)
        self.budget = require_count("budget", budget, len(self.x), "rows in the pool")
        self.batch, self.seed = require_count("batch", batch), require_seed(seed)
        self.rows_per_call = None if rows_per_call is None else require_count("rows_per_call", rows_per_call)
        self.candidates = None if candidates is None else require_count("candidates", candidates)
        if self.candidates is not None and self.candidates < self.batch:
            raise BayesNormError(f"candidates: {candidates} for batches of {batch}; at least {batch} would work.")
        for name, value in {"oracle": oracle, "fit": fit}.items():
            if not callable(value):
                raise BayesNormError(f"{name} must be a function, got {type(value).__name__}.")
        require_acquisition(acquisition)
        self.initial = _initial(initial, self.batch, self.budget, len(self.x), _round_seed(self.seed, 0))
        self.on_fit, self.progress = on_fit, progress
        place = None if path is None else as_path(path)
        # Refused before the first labels are paid for; a file that is there may be there only to be read.
        if place is not None and not place.is_file():
            require_writable(place)
        self._labels = Labels(place, self._settings() if place else {})
        self._labels.resume()
        if any(not 0 <= row < len(self.x) for row in self._labels.rows):
            raise FileFormatError(f"path: {path} holds rows beyond the pool's {len(self.x)}; another path would work.")
        if len(self._labels.rows) > self.budget:
            raise BayesNormError(
                f"budget: {budget} was given, but {path} holds {len(self._labels.rows)} rows that were chosen "
                "already; at least as many would work."
            )

    @property
    def rows(self) -> Tensor:
        """Rows of the pool that have a label, (k,), in the order in which they were chosen."""
        return self._labels.labelled()[0]

    @property
    def labels(self) -> Tensor:
        """Labels of `rows`, (k, ...)."""
        return self._labels.labelled()[1]

    def run(self) -> Posterior:
        """Label until the budget is spent, and return the posterior of all labelled rows."""
        while True:
            if self._labels.waiting:
                self._ask()
            posterior = self._fitted() if self._labels.rows else None
            if posterior is not None and len(self._labels.rows) >= self.budget:
                return posterior
            self._labels.choose(self.initial[: self.budget] if posterior is None else self._chosen(posterior))

    def _ask(self) -> None:
        """Label the rows that wait."""
        waiting = self._labels.waiting
        for part in _parts(waiting, self.rows_per_call or len(waiting)):
            try:
                self._answer(part)
            except BaseException as error:
                error.add_note(
                    f"While labelling rows {part[0]} to {part[-1]} (round {len(self._labels.rounds)}): "
                    f"{self._labels.kept}; {len(self._labels.waiting)} chosen rows wait for theirs, and run() asks for "
                    "those first."
                )
                raise

    def _answer(self, rows: list[int]) -> None:
        """Ask the oracle once, and keep what it says as soon as it says it."""
        answer = self.oracle(torch.tensor(rows), self.x[rows])
        if not isinstance(answer, Iterator):
            self._labels.answer(rows, answer)
            self._tell()
            return
        for i, row in enumerate(rows):
            try:
                label = next(answer)
            except StopIteration:
                raise InputError(f"oracle: yielded {i} labels for {len(rows)} rows; one per row would work.") from None
            self._labels.answer([row], [label] if not isinstance(label, Tensor) else label[None])
            self._tell()
        if next(answer, None) is not None:
            raise InputError(f"oracle: yielded more than {len(rows)} labels for that many rows; one each would work.")

    def _tell(self) -> None:
        """Tell how many labels there are."""
        if self.progress is not None:
            self.progress(len(self._labels.values), self.budget)

    def _fitted(self) -> Posterior:
        """Return the posterior of the rows that have a label."""
        rows, labels = self._labels.labelled()
        posterior = self.fit(self.x[rows.to(self.x.device)], labels.to(self.x.device))
        if not callable(getattr(posterior, "predict", None)):
            raise BayesNormError(f"fit: gave {type(posterior).__name__}; a posterior, with `predict`, would work.")
        if self.on_fit is not None:
            self.on_fit(len(rows), posterior)
        return posterior

    def _chosen(self, posterior: Posterior) -> list[int]:
        """Return the next round's rows, from unlabelled candidates in random order, so that ties fall at random."""
        seed = _round_seed(self.seed, len(self._labels.rounds))
        free = np.setdiff1d(np.arange(len(self.x)), self._labels.rows)
        order = np.random.default_rng(seed).permutation(free)[: self.candidates]
        candidates = torch.from_numpy(order)
        predictive = posterior.predict(self.x[candidates.to(self.x.device)], self.engine, seed)
        reference = None if self.reference is None else posterior.predict(self.reference, self.engine, seed)
        count = min(self.batch, self.budget - len(self._labels.rows))
        found = choose(self.acquisition, predictive, count, seed=seed, reference=reference)
        return candidates[found].tolist()

    def _settings(self) -> dict[str, str]:
        """Return all that decides which rows are asked for, except `fit` and the budget."""
        return {
            "x": _described_rows(self.x),
            "reference": "None" if self.reference is None else _described_rows(self.reference),
            "acquisition": _described(self.acquisition),
            "batch": str(self.batch),
            "seed": str(self.seed),
            "initial": _described_rows(torch.tensor(self.initial)),
            "candidates": str(self.candidates),
            "engine": repr(self.engine),
        }


def _pool(name: str, x: Any) -> Tensor:
    """Return inputs as a tensor of finite numbers."""
    pool = as_tensor(x, name).detach()
    if not bool(torch.isfinite(pool).all()):
        bad = int((~torch.isfinite(pool)).sum())
        raise InputError(f"{name}: holds {bad} NaN or infinite values out of {pool.numel()}; drop those rows.")
    return pool


def _initial(initial: Any, batch: int, budget: int, rows: int, seed: int) -> list[int]:
    """Return rows of the first round; a whole batch also where the budget, which may grow later, is less."""
    if initial is None or isinstance(initial, int | np.integer):
        count = batch if initial is None else require_count("initial", initial, budget, "labels of budget")
        return np.random.default_rng(seed).permutation(rows)[:count].tolist()
    chosen = as_tensor(initial, "initial")
    if chosen.dim() != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool:
        raise InputError(
            f"initial: has shape {tuple(chosen.shape)} and {chosen.dtype}; a number of rows, or row numbers, would "
            "work."
        )
    require_rows("initial", chosen, rows)
    if len(chosen) > budget:
        raise BayesNormError(f"initial: holds {len(chosen)} rows for a budget of {budget}; at most that would work.")
    return chosen.tolist()


def _round_seed(seed: int, number: int) -> int:
    """Return the seed of a round; rounds have seeds of their own, so that one that is gone over again is the same."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0] >> np.uint64(2))


def _parts(rows: list[int], size: int) -> list[list[int]]:
    """Return rows in lists of at most `size`."""
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def _described(acquisition: Acquisition) -> str:
    """Return an acquisition as text without addresses in memory."""
    if isinstance(acquisition, functools.partial):
        return f"partial {_described(acquisition.func)} {acquisition.args} {acquisition.keywords}"
    if isinstance(acquisition, BatchAcquisition):
        return repr(acquisition) if "object at" not in repr(acquisition) else type(acquisition).__qualname__
    return getattr(acquisition, "__qualname__", type(acquisition).__qualname__)


def _described_rows(x: Tensor) -> str:
    """Return rows as text that is the same for the same rows."""
    content = x.cpu().contiguous().flatten().view(torch.uint8).numpy().data
    return f"{tuple(x.shape)} {x.dtype}, sha256 {hashlib.sha256(content).hexdigest()[:16]}"
