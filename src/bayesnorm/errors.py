"""What goes wrong, told kindly: every message names the argument, what was found and what would work."""


class BayesNormError(ValueError):
    """Base of every error that this package raises on purpose."""


class NetworkError(BayesNormError):
    """The network cannot be used: no batch norm, broken weights, or its forward failed."""


class WeightsChangedError(NetworkError):
    """The network's weights changed while it ran, as by training in another thread."""


class InputError(BayesNormError):
    """An array given by the caller (training data, `x` or `y`) cannot be used."""


class FileFormatError(BayesNormError):
    """A posterior file is truncated, foreign, altered, or belongs to another network."""


class DataNotFoundError(BayesNormError):
    """A data set is in none of the data folders."""


class MissingExtraError(BayesNormError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class BayesNormWarning(UserWarning):
    """Something works, but not as well as it could; said once."""
