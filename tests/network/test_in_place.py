"""Large images run one draw at a time, and batch norm writes over what nobody needs: a draw is still what it means."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayesnorm as bn

TIGHT = {"rtol": 1e-9, "atol": 1e-10}
FEW = bn.MonteCarlo(samples=3, block_bytes=1)


def block(inputs, outputs, relu=None):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), relu or nn.ReLU())


class Unpooling(nn.Module):
    """A block, a pooling whose places are needed again, and a block behind a skip connection."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = block(2, 4), block(4, 4), nn.Conv2d(4, 3, 1)

    def forward(self, x):
        h = self.first(x)
        pooled, places = F.max_pool2d(h, 2, return_indices=True)
        return self.head(h + self.second(F.max_unpool2d(pooled, places, 2)))


class LooksAgain(Unpooling):
    """Calls the parts of its first block itself, and needs the convolution's output twice."""

    def forward(self, x):
        h = self.first[0](x)
        return self.head(h + self.second(self.first[2](self.first[1](h))))


class SharedActivation(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()
        self.first, self.second, self.head = block(2, 4, self.relu), block(4, 4, self.relu), nn.Conv2d(4, 3, 1)

    def forward(self, x):
        h = self.first(x)
        return self.head(h + self.relu(-h) + self.second(h))


def fitted(network, layers=None):
    network = network.double()
    network(torch.randn(40, 2, 6, 6, dtype=torch.float64))  # running statistics
    x = torch.randn(24, 2, 6, 6, dtype=torch.float64)
    return bn.MCBN(batch_size=8, states=16, layers=layers).fit(network.eval(), x, bn.Categorical()), x[:5]


def call_of(posterior):
    return [way.call for way in posterior.executable._planner._ways.values()]


@pytest.mark.parametrize("layers", [None, 1])
@pytest.mark.parametrize(
    ("network", "call"), [(Unpooling, "in_place"), (SharedActivation, "in_place"), (LooksAgain, "reference")]
)
def test_numbers_are_those_of_plain_overrides(network, call, layers, reference, snapshot):
    posterior, x = fitted(network(), layers)
    before, modules = snapshot(posterior.model), [vars(module).copy() for module in posterior.model.modules()]
    for _ in range(2):
        outputs = FEW.outputs(posterior, x)
        torch.testing.assert_close(outputs, reference(posterior.model, posterior.sample(3), x), **TIGHT)
    assert call_of(posterior) == ["in_place" if layers and network is LooksAgain else call]
    assert snapshot(posterior.model) == before
    assert [module.inplace for module in posterior.model.modules() if isinstance(module, nn.ReLU)].count(True) == 0
    assert modules == [vars(module) for module in posterior.model.modules()]
    plain = bn.MonteCarlo(samples=3, vectorize=False, block_bytes=1).outputs(posterior, x)
    torch.testing.assert_close(outputs, plain, **TIGHT)


def test_what_a_hook_has_seen_is_not_written_over(reference):
    network, seen = Unpooling(), []
    network.second[0].register_forward_hook(lambda module, args, output: seen.append((output, output.clone())))
    posterior, x = fitted(network)
    outputs = FEW.outputs(posterior, x)
    assert seen
    assert all(torch.equal(output, as_it_was) for output, as_it_was in seen)
    torch.testing.assert_close(outputs, reference(network, posterior.sample(3), x), **TIGHT)


def test_a_forward_that_fails_leaves_activations_as_they_were():
    network = Unpooling()
    posterior, x = fitted(network)
    FEW.outputs(posterior, x)
    private = posterior.executable._network.module
    failing, private.head.forward = private.head.forward, None
    with pytest.raises(bn.BayesNormError, match="TypeError"):
        FEW.outputs(posterior, x)
    private.head.forward = failing
    assert not private.first[2].inplace
