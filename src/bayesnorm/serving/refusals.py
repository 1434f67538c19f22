"""The errors that clients get: a status of HTTP, and one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import BayesNormError


class Refusal(BayesNormError):
    """A request that is not answered.

    Args:
        status: The status of HTTP.
        message: What is wrong and what to do.
        headers: Further headers of the reply.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
