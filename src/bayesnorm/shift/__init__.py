"""Distribution shift: test new data for drift, monitor a stream, and adapt a posterior to new data."""

from .adapting import adapt as adapt, adapted_network as adapted_network
from .drifting import Drift as Drift, LayerDrift as LayerDrift, drift as drift
from .monitor import DriftMonitor as DriftMonitor, Watched as Watched
from .several_tests import LEVEL as LEVEL, holm as holm
