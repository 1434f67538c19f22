"""One plain training loop."""

from .loop import Training as Training, train as train
