"""Export a posterior as a file that predicts without this package: ONNX, or a program of torch.export."""

from .exporting import ExportedFile as ExportedFile, export as export
from .module import SampledModule as SampledModule, as_module as as_module
from .quantiles import MixtureInterval as MixtureInterval
