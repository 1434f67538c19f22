"""Presets: the paper's protocol, or a short test of it."""

from __future__ import annotations

from dataclasses import dataclass

from bayesnorm.errors import BayesNormError

SMALL_SETS = ("boston", "concrete", "energy", "yacht")

PRECISIONS = {
    "boston": (0.01, 10.0),
    "concrete": (0.001, 10.0),
    "energy": (0.01, 100.0),
    "kin8nm": (10.0, 1000.0),
    "power": (0.01, 10.0),
    "protein": (0.01, 10.0),
    "wine": (0.01, 10.0),
    "yacht": (0.01, 100.0),
}
"""The range in which the paper searches the noise precision of a set, in the target's units."""

WIDTHS = {"protein": 100}
"""Number of units of both hidden layers, if not 50."""


@dataclass(frozen=True)
class Preset:
    """How much of the benchmark to run.

    Args:
        sets: Data sets that are run by default.
        splits: Train/test splits, by the paper's numbers.
        folds: Number of folds of cross-validation on the training rows.
        seeds: Seeds of the networks that are retrained on all training rows of a split.
        weight_decays: Values of lambda that cross-validation tries.
        batch_sizes: Batch sizes M of batch-norm networks.
        rates: Rates of dropout networks, whose batches have `dropout_batch_size` rows.
        epochs: Most epochs.
        evaluate_every: Epochs between validation scores.
        patience: Scores without improvement before the folds of a setting stop.
        samples: Number of samples T.
        weight_steps: Steps of Adam of a network whose weights are random (BayesByBackprop, MNF).
        weight_samples: Number of samples T of such a network.
        fold_seed: Seed of the first fold's networks; the next folds have the next seeds.
        dropout_batch_size: Batch size of dropout networks.
        only_mcbn: Whether MCBN is the only method that is scored.
    """

    sets: tuple[str, ...]
    splits: tuple[int, ...]
    folds: int
    seeds: tuple[int, ...]
    weight_decays: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    rates: tuple[float, ...]
    epochs: int
    evaluate_every: int
    patience: int
    samples: int
    weight_steps: int
    weight_samples: int = 100
    fold_seed: int = 100
    dropout_batch_size: int = 32
    only_mcbn: bool = False


PRESETS: dict[str, Preset] = {
    "paper": Preset(
        sets=("boston", "concrete", "energy", "kin8nm", "power", "protein", "wine", "yacht"),
        splits=(1, 2, 3, 4, 5),
        folds=5,
        seeds=(1, 2, 3, 4, 5),
        weight_decays=tuple(10.0**-k for k in range(1, 16)),
        batch_sizes=(32, 64, 128, 256, 512, 1024),
        rates=(0.2, 0.1, 0.05, 0.01, 0.005, 0.001),
        epochs=2000,
        evaluate_every=20,
        patience=10,
        samples=500,
        weight_steps=5000,
    ),
    "quick": Preset(
        sets=SMALL_SETS,
        splits=(1, 2),
        folds=5,
        seeds=(1, 2),
        weight_decays=(1e-1, 1e-3, 1e-5),
        batch_sizes=(32, 64, 128),
        rates=(0.05, 0.005),
        epochs=400,
        evaluate_every=20,
        patience=5,
        samples=100,
        weight_steps=1200,
    ),
    # The batch sizes of tables 8 and 9 that the preset "paper" leaves out, with the splits and samples of these tables.
    "small-batches": Preset(
        sets=("boston", "concrete", "energy", "kin8nm", "power", "protein", "wine", "yacht"),
        splits=(1, 2, 3),
        folds=5,
        seeds=(1, 2, 3, 4, 5),
        weight_decays=(1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12),
        batch_sizes=(16, 8),
        rates=(),
        epochs=2000,
        evaluate_every=20,
        patience=10,
        samples=100,
        weight_steps=0,
        only_mcbn=True,
    ),
}


def preset_named(name: str) -> Preset:
    """Return a preset, or refuse an unknown name."""
    if name not in PRESETS:
        raise BayesNormError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}.")
    return PRESETS[name]
