"""What tests of the loop share: a pool, and a posterior that doubts what is far from all labelled rows."""

import torch

from bayesnorm import RegressionPredictive, active

POOL = torch.linspace(-1, 1, 30)[:, None]


class Far:
    """A posterior that doubts what is far from all labelled rows."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def predict(self, x, engine=None, seed=0):
        far = (x - self.x.T).abs().amin(1, keepdim=True)
        return RegressionPredictive(torch.stack([-far, far]), torch.tensor(0.1))


def truth(rows, x):
    return torch.sin(3 * x)


def learner(oracle=truth, fit=Far, acquisition=active.epistemic_variance, **options):
    return active.ActiveLearner(POOL, oracle, fit, acquisition, **{"budget": 12, "batch": 4, **options})


class Broken(Exception):
    """What an oracle raises."""
