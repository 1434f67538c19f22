"""The error of commands that cannot be meant."""

from ..errors import BayesNormError


class UsageError(BayesNormError):
    """Names or options that do not exist, or not together; the process ends with 2."""
