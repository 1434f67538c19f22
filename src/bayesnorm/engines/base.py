"""What every engine offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ..predictive import Predictive

if TYPE_CHECKING:
    from ..posterior import Posterior


class Engine(ABC):
    """Pushes a posterior through its network."""

    @abstractmethod
    def predict(self, posterior: Posterior, x: Any, seed: int = 0) -> Predictive:
        """The predictive distribution of the targets at `x`."""
