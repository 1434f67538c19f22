"""The error for wrong usage of a command."""

from ..errors import BayesNormError


class UsageError(BayesNormError):
    """Wrong options or arguments; the exit code is 2."""
