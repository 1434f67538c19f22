"""The loop of active learning: fit, label the most informative examples, and repeat until the budget is spent."""

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
from ..files import as_path
from ..network import Progress, as_tensor
from ..posterior import Posterior
from ..writing import require_writable
from .acquisitions import Acquisition, BatchAcquisition, choose, require_acquisition, require_count, require_indices
from .labels import Labels

Oracle = Callable[[Tensor, Tensor], Any]
"""`oracle(rows, x)` takes indices of the pool, (k,), and their inputs, and returns k labels or yields them singly."""

Fit = Callable[[Tensor, Tensor], Posterior]
"""`fit(x, y)` takes all examples labelled so far, in the order of choice, and returns a posterior."""


class ActiveLearner:
    """Label the examples of a pool in rounds, the most informative ones first.

        learner = ActiveLearner(pool, oracle, fit, active.bald, budget=200, batch=10, path="labels.safetensors")
        posterior = learner.run()

    With a `path`, every choice and every label is saved before the next step. The same call then continues an
    interrupted run, first with the chosen examples that have no label yet, and gives the same result as without the
    interruption. If the oracle raises an error, earlier labels are kept, and a note on the error says where.

    Args:
        x: The inputs of the pool, (N, ...): a tensor or array.
        oracle: A function `oracle(rows, x)` of indices and their inputs that returns one label per example, as a
            tensor, array or list. If it is a generator, every label is saved as soon as it is yielded.
        fit: A function `fit(x, y)` that returns a posterior of the labelled examples. It should use a fixed seed.
        acquisition: A function of a predictive that scores examples, such as `active.bald`; or a `BatchAcquisition`,
            such as `active.BatchBALD()`.
        budget: The total number of labels, at most N. A later call may raise it.
        batch: The number of labels per round. [default: 10]
        initial: The examples of the first round: how many at random, or their indices. [default: `batch` at random]
        rows_per_call: The number of examples per call of the oracle. [default: a whole round]
        candidates: The largest number of unlabelled examples to score per round, chosen at random. [default: all]
        reference: Inputs at which the epistemic variance should fall, for `active.VarianceReduction`. They are
            predicted with the same samples as the candidates. [default: the candidates]
        engine: The engine for predictions. [default: that of the posterior]
        seed: Seed for the first examples, candidates, samples and ties.
        path: The file that stores choices and labels (safetensors and JSON). [default: no file]
        on_fit: A function called with (number of labels, posterior) after every fit, including the last.
        progress: A function called with (number of labels, budget) after new labels.
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
        self.budget = require_count("budget", budget, len(self.x), "examples in the pool")
        self.batch, self.seed = require_count("batch", batch), require_seed(seed)
        self.rows_per_call = None if rows_per_call is None else require_count("rows_per_call", rows_per_call)
        self.candidates = None if candidates is None else require_count("candidates", candidates)
        if self.candidates is not None and self.candidates < self.batch:
            raise BayesNormError(f"candidates must be at least the batch size {batch}, got {candidates}.")
        for name, value in {"oracle": oracle, "fit": fit}.items():
            if not callable(value):
                raise BayesNormError(f"{name} must be a function, got {type(value).__name__}.")
        require_acquisition(acquisition)
        self.initial = _initial(initial, self.batch, self.budget, len(self.x), _round_seed(self.seed, 0))
        self.on_fit, self.progress = on_fit, progress
        place = None if path is None else as_path(path)
        # Checked before the first labels are paid for. An existing file may be read-only.
        if place is not None and not place.is_file():
            require_writable(place)
        self._labels = Labels(place, self._settings() if place else {})
        self._labels.resume()
        if any(not 0 <= row < len(self.x) for row in self._labels.rows):
            raise FileFormatError(
                f"path: {path} has indices beyond the {len(self.x)} examples of the pool. Pass another path."
            )
        if len(self._labels.rows) > self.budget:
            raise BayesNormError(
                f"budget={budget}, but {path} already has {len(self._labels.rows)} chosen examples. Use at least "
                f"budget={len(self._labels.rows)}."
            )

    @property
    def rows(self) -> Tensor:
        """Indices of the pool's labelled examples, (k,), in the order of choice."""
        return self._labels.labelled()[0]

    @property
    def labels(self) -> Tensor:
        """Labels of `rows`, (k, ...)."""
        return self._labels.labelled()[1]

    def run(self) -> Posterior:
        """Label until the budget is spent, and return the posterior fitted to all labelled examples."""
        while True:
            if self._labels.waiting:
                self._ask()
            posterior = self._fitted() if self._labels.rows else None
            if posterior is not None and len(self._labels.rows) >= self.budget:
                return posterior
            self._labels.choose(self.initial[: self.budget] if posterior is None else self._chosen(posterior))

    def _ask(self) -> None:
        """Label the chosen examples that have no label yet."""
        waiting = self._labels.waiting
        size = self.rows_per_call or len(waiting)
        for start in range(0, len(waiting), size):
            part = waiting[start : start + size]
            try:
                self._answer(part)
            except BaseException as error:
                error.add_note(
                    f"Labelling examples {part[0]} to {part[-1]} (round {len(self._labels.rounds)}) failed: "
                    f"{self._labels.storage}. {len(self._labels.waiting)} chosen examples have no label yet; run() "
                    "continues with these."
                )
                raise

    def _answer(self, rows: list[int]) -> None:
        """Call the oracle once, and store its labels as soon as they arrive."""
        answer = self.oracle(torch.tensor(rows), self.x[rows])
        if not isinstance(answer, Iterator):
            self._labels.answer(rows, answer)
            self._tell()
            return
        for i, row in enumerate(rows):
            try:
                label = next(answer)
            except StopIteration:
                raise InputError(
                    f"oracle must yield one label per example, got {i} labels for {len(rows)} examples."
                ) from None
            self._labels.answer([row], [label] if not isinstance(label, Tensor) else label[None])
            self._tell()
        if next(answer, None) is not None:
            raise InputError(
                f"oracle must yield one label per example, got more than {len(rows)} labels for {len(rows)} examples."
            )

    def _tell(self) -> None:
        """Report the number of labels."""
        if self.progress is not None:
            self.progress(len(self._labels.values), self.budget)

    def _fitted(self) -> Posterior:
        """Return the posterior fitted to the labelled examples."""
        rows, labels = self._labels.labelled()
        posterior = self.fit(self.x[rows.to(self.x.device)], labels.to(self.x.device))
        if not callable(getattr(posterior, "predict", None)):
            raise BayesNormError(
                f"fit must return a posterior, which has a `predict` method, got {type(posterior).__name__}."
            )
        if self.on_fit is not None:
            self.on_fit(len(rows), posterior)
        return posterior

    def _chosen(self, posterior: Posterior) -> list[int]:
        """Return the next round's indices. Candidates are shuffled, so that ties are broken at random."""
        seed = _round_seed(self.seed, len(self._labels.rounds))
        free = np.setdiff1d(np.arange(len(self.x)), self._labels.rows)
        order = np.random.default_rng(seed).permutation(free)[: self.candidates]
        candidates = torch.from_numpy(order)
        predictive = posterior.predict(self.x[candidates.to(self.x.device)], self.engine, seed)
        reference = None if self.reference is None else posterior.predict(self.reference, self.engine, seed)
        count = min(self.batch, self.budget - len(self._labels.rows))
        places = choose(self.acquisition, predictive, count, seed=seed, reference=reference)
        return candidates[places].tolist()

    def _settings(self) -> dict[str, str]:
        """Return all settings that decide which examples are chosen, except `fit` and the budget."""
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
        raise InputError(f"{name} has {bad} NaN or infinite values out of {pool.numel()}. Remove those examples.")
    return pool


def _initial(initial: Any, batch: int, budget: int, rows: int, seed: int) -> list[int]:
    """Return the indices of the first round: a whole batch even if the budget, which may grow later, is smaller."""
    if initial is None or isinstance(initial, int | np.integer):
        count = batch if initial is None else require_count("initial", initial, budget, "labels in the budget")
        return np.random.default_rng(seed).permutation(rows)[:count].tolist()
    chosen = as_tensor(initial, "initial")
    if chosen.dim() != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool:
        raise InputError(
            "initial must be a number of examples or a 1-D sequence of indices, got shape "
            f"{tuple(chosen.shape)} and {chosen.dtype}."
        )
    require_indices("initial", chosen, rows)
    if len(chosen) > budget:
        raise BayesNormError(f"initial must have at most {budget} indices, the budget, got {len(chosen)}.")
    return chosen.tolist()


def _round_seed(seed: int, number: int) -> int:
    """Return the seed of a round. Every round has its own, so that repeating a round gives the same result."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0] >> np.uint64(2))


def _described(acquisition: Acquisition) -> str:
    """Return an acquisition as text without memory addresses."""
    if isinstance(acquisition, functools.partial):
        return f"partial {_described(acquisition.func)} {acquisition.args} {acquisition.keywords}"
    if isinstance(acquisition, BatchAcquisition):
        return repr(acquisition) if "object at" not in repr(acquisition) else type(acquisition).__qualname__
    return getattr(acquisition, "__qualname__", type(acquisition).__qualname__)


def _described_rows(x: Tensor) -> str:
    """Return shape, dtype and checksum of a tensor as text."""
    content = x.cpu().contiguous().flatten().view(torch.uint8).numpy().data
    return f"{tuple(x.shape)} {x.dtype}, sha256 {hashlib.sha256(content).hexdigest()[:16]}"
