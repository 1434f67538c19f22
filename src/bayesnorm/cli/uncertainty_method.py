"""Where uncertainty comes from: the methods that `bayesnorm fit` offers."""

from __future__ import annotations

from enum import StrEnum


class UncertaintyMethod(StrEnum):
    """A method's name, as the estimators of `bayesnorm.tabular` take it."""

    mcbn = "mcbn"
    gaussian = "gaussian"
    stochastic = "stochastic"
    dropout = "dropout"
    ensemble = "ensemble"

    @property
    def words(self) -> str:
        """The method in words, for a report."""
        return _WORDS[self]


_WORDS = {
    UncertaintyMethod.mcbn: "Monte Carlo Batch Normalization: the uncertainty comes from the statistics of training batches",
    UncertaintyMethod.gaussian: "Gaussian batch statistics: the uncertainty comes from normal distributions of batch means and "
    "deviations",
    UncertaintyMethod.stochastic: "Stochastic Batch Normalization: the uncertainty comes from independent batch means and "
    "deviations",
    UncertaintyMethod.dropout: "Monte Carlo dropout: the uncertainty comes from switching units off at random",
    UncertaintyMethod.ensemble: "A deep ensemble: the uncertainty comes from networks that began differently",
}
