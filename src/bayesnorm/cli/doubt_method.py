"""Where doubt comes from: the methods that `bayesnorm fit` offers."""

from __future__ import annotations

from enum import StrEnum


class DoubtMethod(StrEnum):
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
    DoubtMethod.mcbn: "Monte Carlo Batch Normalization: the doubt comes from the statistics of training batches",
    DoubtMethod.gaussian: "Gaussian batch statistics: the doubt comes from normal distributions of batch means and "
    "deviations",
    DoubtMethod.stochastic: "Stochastic Batch Normalization: the doubt comes from independent batch means and "
    "deviations",
    DoubtMethod.dropout: "Monte Carlo dropout: the doubt comes from switching units off at random",
    DoubtMethod.ensemble: "A deep ensemble: the doubt comes from networks that began differently",
}
