"""Distribution shift: test new data for drift, monitor a stream, and adapt a posterior to new data or to a stream."""

from bayesnorm_runtime import LEVEL as LEVEL, Drift as Drift, LayerDrift as LayerDrift, holm as holm

from .adapting import adapt as adapt, adapted_network as adapted_network
from .adaptive_stream import AdaptiveStream as AdaptiveStream
from .drifting import drift as drift
from .monitor import DriftMonitor as DriftMonitor, Watched as Watched
