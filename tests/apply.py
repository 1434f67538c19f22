"""A layer of networks in tests: whatever a function does."""

from torch import nn


class Apply(nn.Module):
    """Calls a function on its input, such as `Apply(torch.exp)`."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)
