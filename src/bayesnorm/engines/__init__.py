"""How a posterior is pushed through a network."""

from .base import Engine as Engine
from .delta import Delta as Delta
from .monte_carlo import MonteCarlo as MonteCarlo
from .sigma_points import SigmaPoints as SigmaPoints
