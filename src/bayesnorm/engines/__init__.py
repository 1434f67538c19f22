"""How a posterior is pushed through a network."""

from .base import Engine as Engine
from .monte_carlo import MonteCarlo as MonteCarlo
