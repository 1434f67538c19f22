"""An HTTP server for models with uncertainty: the Open Inference Protocol V2, rows of tables, and metrics."""

from ..errors import MissingExtraError

try:
    import msgspec  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise MissingExtraError("bayesnorm serve needs uvicorn and msgspec. Run: pip install uvicorn msgspec") from error

from .application import Settings as Settings, application as application
from .models import Batch as Batch, Model as Model, Tensor as Tensor, datatype_of as datatype_of
from .networks import NetworkModel as NetworkModel, monitor_numbers as monitor_numbers
from .onnx_files import OnnxModel as OnnxModel
from .running import listen as listen, serve as serve
