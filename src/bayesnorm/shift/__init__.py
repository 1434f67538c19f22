"""Distribution shift: test new data for drift, monitor a stream, and adapt a posterior to new data or to a stream."""

from .adapting import adapt as adapt, adapted_network as adapted_network
from .adaptive_stream import AdaptiveStream as AdaptiveStream
from .drifting import LEVEL as LEVEL, Drift as Drift, LayerDrift as LayerDrift, drift as drift, holm as holm
from .monitor import DriftMonitor as DriftMonitor, Watched as Watched
