"""New data: see that it differs from what a network was trained on, watch a stream of it, and move with it."""

from .adapting import adapt as adapt, adapted_network as adapted_network
from .drifting import Drift as Drift, LayerDrift as LayerDrift, drift as drift
from .monitor import DriftMonitor as DriftMonitor, Watched as Watched
from .several_tests import LEVEL as LEVEL, holm as holm
