"""One plain training loop for every network and method."""

from .loop import train as train
from .objective import Loss as Loss, Penalty as Penalty, Step as Step
from .progress import progress_bar as progress_bar
from .run import History as History
