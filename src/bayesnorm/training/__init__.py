"""One training loop for every network and method, distillation, and networks in raw units."""

from ..progress import progress_bar as progress_bar
from .batching import shuffled_batches as shuffled_batches
from .distilling import Teacher as Teacher, distill as distill
from .dropout_rates import learn_dropout_rates as learn_dropout_rates
from .loop import train as train
from .optimising import relative_adam as relative_adam
from .run import History as History
from .transforming import CropAndFlip as CropAndFlip, Rescaled as Rescaled
