"""The methods for epistemic uncertainty that `bayesnorm fit` offers."""

from __future__ import annotations

from enum import StrEnum


class UncertaintyMethod(StrEnum):
    """The name of a method, as in the estimators of `bayesnorm.tabular`."""

    mcbn = "mcbn"
    gaussian = "gaussian"
    stochastic = "stochastic"
    dropout = "dropout"
    ensemble = "ensemble"

    @property
    def words(self) -> str:
        """A description of the method for the report."""
        return _WORDS[self]


_WORDS = {
    UncertaintyMethod.mcbn: "Monte Carlo Batch Normalization: the epistemic uncertainty comes from sampling the "
    "statistics of training batches",
    UncertaintyMethod.gaussian: "Gaussian batch statistics: the epistemic uncertainty comes from sampling batch means "
    "and standard deviations from a normal distribution",
    UncertaintyMethod.stochastic: "Stochastic Batch Normalization: the epistemic uncertainty comes from sampling the "
    "batch mean and standard deviation of each unit independently",
    UncertaintyMethod.dropout: "Monte Carlo dropout: the epistemic uncertainty comes from dropping units at random",
    UncertaintyMethod.ensemble: "A deep ensemble: the epistemic uncertainty comes from the disagreement of networks "
    "with different initial weights",
}
