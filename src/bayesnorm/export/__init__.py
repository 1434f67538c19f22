"""Export a posterior as a file that predicts without this package: ONNX, or a program of torch.export."""

from .exporting import (
    METADATA as METADATA,
    ONNX_ADVICE as ONNX_ADVICE,
    ExportedFile as ExportedFile,
    convert_to_onnx as convert_to_onnx,
    export as export,
)
from .module import SampledModule as SampledModule, as_module as as_module
from .outputs import read_outputs as read_outputs
from .quantiles import MixtureInterval as MixtureInterval
from .triton import (
    OnnxFile as OnnxFile,
    OnnxTensor as OnnxTensor,
    open_onnx as open_onnx,
    triton_config as triton_config,
    write_triton_repository as write_triton_repository,
)
