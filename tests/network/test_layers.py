"""Finding batch-norm layers of every kind, and choosing among them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayesnorm as bn
from bayesnorm.errors import NetworkError
from bayesnorm.network import choose_layers
from bayesnorm.network.layers import find_batchnorm


class LeakyBatchNorm(nn.BatchNorm1d):
    """A subclass that carries an activation, by its parent's forward."""

    def forward(self, x):
        return F.leaky_relu(super().forward(x), 0.1)


class FusedBatchNorm(nn.BatchNorm1d):
    """The same, by calling F.batch_norm on its own buffers."""

    def forward(self, x):
        use_batch = self.training
        normal = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, use_batch, 0.1, self.eps)
        return F.silu(normal)


class ResidualBatchNorm(nn.BatchNorm1d):
    """Uses its input once more, beside normalising it."""

    def forward(self, x):
        return x + super().forward(x)


class ConditionalBatchNorm(nn.BatchNorm1d):
    """Takes a second argument."""

    def forward(self, x, gain):
        return gain * super().forward(x)


class Conditional(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.bn, self.head = nn.Linear(3, 4), ConditionalBatchNorm(4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.bn(self.linear(x), gain=x[:, :1]))


def flat(layer):
    return nn.Sequential(nn.Linear(3, 4), layer, nn.ReLU(), nn.Linear(4, 1))


def conv(dims, layer):
    kinds = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
    return nn.Sequential(kinds[dims](3, 4, 1), layer, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2**dims, 1))


KINDS = {
    "BatchNorm1d": lambda: (flat(nn.BatchNorm1d(4)), (3,)),
    "BatchNorm1d of sequences": lambda: (conv(1, nn.BatchNorm1d(4)), (3, 2)),
    "BatchNorm2d": lambda: (conv(2, nn.BatchNorm2d(4)), (3, 2, 2)),
    "BatchNorm3d": lambda: (conv(3, nn.BatchNorm3d(4)), (3, 2, 2, 2)),
    "SyncBatchNorm": lambda: (conv(2, nn.SyncBatchNorm(4)), (3, 2, 2)),
    "affine=False": lambda: (flat(nn.BatchNorm1d(4, affine=False)), (3,)),
    "momentum=None": lambda: (flat(nn.BatchNorm1d(4, momentum=None)), (3,)),
    "large eps": lambda: (flat(nn.BatchNorm1d(4, eps=0.5)), (3,)),
    "subclass with activation": lambda: (flat(LeakyBatchNorm(4)), (3,)),
    "subclass with F.batch_norm": lambda: (flat(FusedBatchNorm(4)), (3,)),
    "subclass with a residual": lambda: (flat(ResidualBatchNorm(4)), (3,)),
    "subclass with an argument": lambda: (Conditional(), (3,)),
}


def randomised(model):
    """Running statistics and affine parameters unlike their defaults, in double precision."""
    with torch.no_grad():
        for module in find_batchnorm(model).values():
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            if module.affine:
                module.weight.normal_()
                module.bias.normal_()
    return model.double().eval()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_batchnorm_runs_as_its_own_forward_says(kind, reference, snapshot):
    model, shape = KINDS[kind]()
    model = randomised(model)
    x = torch.randn(40, *shape, dtype=torch.float64)
    before = snapshot(model)
    posterior = bn.MCBN(batch_size=8, states=10).fit(model, x)
    expected = reference(model, posterior.sample(7), x[:5])
    outputs = bn.MonteCarlo(samples=7).outputs(posterior, x[:5])
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    assert (outputs.std(0) > 0).all()
    assert snapshot(model) == before


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "SyncBatchNorm"])
def test_every_kind_of_batchnorm_is_drawn_as_in_training(kind):
    """One cached batch, as published: the prediction on the batch is the network's in training mode."""
    model, shape = KINDS[kind]()
    model = randomised(model)
    x = torch.randn(9, *shape, dtype=torch.float64)

    class First8(torch.utils.data.Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, row):
            return x[row]

    posterior = bn.MCBN(batch_size=8, states=1, center="batch").fit(model, First8(), seed=3)
    from bayesnorm.network import mini_batches

    (batch,) = mini_batches(First8(), 8, 1, seed=3)
    outputs = bn.MonteCarlo(samples=1).outputs(posterior, batch)[0]
    model.train()
    torch.testing.assert_close(outputs, model(batch).detach(), rtol=1e-9, atol=1e-9)


def test_layers_are_found_by_name():
    model = nn.ModuleDict({"a": flat(nn.BatchNorm1d(4)), "b": conv(2, nn.SyncBatchNorm(4)), "c": nn.LayerNorm(3)})
    assert list(find_batchnorm(model)) == ["a.1", "b.1"]


class Reversed(nn.Module):
    """Runs its layers against the order in which they are registered; `aux` runs in training only."""

    def __init__(self):
        super().__init__()
        self.last = nn.BatchNorm1d(3)
        self.middle = nn.BatchNorm1d(3)
        self.first = nn.BatchNorm1d(3)
        self.aux = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        if self.training:
            self.aux(x)
        return self.head(self.last(torch.tanh(self.middle(x))))


RAN = ("first", "middle", "last")


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (None, RAN),
        (1, RAN[2:]),
        (2, RAN[1:]),
        (3, RAN),
        ("middle", ("middle",)),
        (["last", "first"], ("first", "last")),
        (("last",), ("last",)),
        (lambda name, module: name != "middle" and isinstance(module, nn.BatchNorm1d), ("first", "last")),
    ],
)
def test_layers_are_chosen_in_running_order(choice, chosen, reference):
    model, x = Reversed(), torch.randn(30, 3)
    assert choose_layers(model, RAN, choice) == chosen
    posterior = bn.MCBN(batch_size=8, states=6, layers=choice).fit(model, x)
    assert tuple(layer.name for layer in posterior.layers) == chosen
    names = {f"{name}.{key}" for name in chosen for key in ("running_mean", "running_var")}
    assert posterior.sample(2).keys() == names
    torch.testing.assert_close(
        bn.MonteCarlo(samples=6).outputs(posterior, x[:4]),
        reference(model, posterior.sample(6), x[:4]),
        rtol=1e-4,
        atol=1e-5,
    )


def test_layers_that_are_not_chosen_keep_their_running_statistics_while_collecting():
    model, x = Reversed().double(), torch.randn(30, 3, dtype=torch.float64)
    model.first.running_mean.fill_(0.7)
    model.first.running_var.fill_(3.0)
    model.eval()
    posterior = bn.MCBN(batch_size=8, states=1, layers="middle", center="batch").fit(model, x, seed=5)
    from bayesnorm.network import mini_batches

    (batch,) = mini_batches(x, 8, 1, seed=5)
    h = torch.tanh(model.first(batch))
    torch.testing.assert_close(posterior.sample(1)["middle.running_mean"][0], h.mean(0))
    torch.testing.assert_close(posterior.sample(1)["middle.running_var"][0], h.var(0, correction=0))


def test_a_choice_that_chooses_nothing_is_an_error():
    for choice, said in (
        (0, r"layers=0, but .* layers=1 to 3"),
        (4, r"layers=4, but .* layers=1 to 3"),
        ("nope", r"layers: 'nope' .* 'first', 'middle', 'last'"),
        ("aux", r"layers: 'aux'"),
        (["first", "head"], r"layers: 'head'"),
        ([], r"layers: the list is empty"),
        (lambda name, module: False, r"layers: the predicate chose none of the 3"),
    ):
        with pytest.raises(NetworkError, match=said):
            bn.MCBN(batch_size=8, states=4, layers=choice).fit(Reversed(), torch.randn(30, 3))


def test_at_layers_is_what_layers_would_have_drawn_on_the_last_layer(reference):
    """The last layer's statistics depend on what is drawn before it, so only the names and the centre agree."""
    model, x = Reversed(), torch.randn(30, 3)
    posterior = bn.MCBN(batch_size=8, states=6).fit(model, x)
    restricted = posterior.at_layers(1)
    whole, part = posterior.sample(6), restricted.sample(6)
    assert part.keys() == {"last.running_mean", "last.running_var"}
    for name, value in part.items():
        torch.testing.assert_close(value, whole[name])
    torch.testing.assert_close(
        bn.MonteCarlo(samples=6).outputs(restricted, x[:4]), reference(model, part, x[:4]), rtol=1e-4, atol=1e-5
    )


def test_a_layer_alone_is_no_network():
    with pytest.raises(NetworkError, match=r"model: it is a single BatchNorm1d layer.*nn.Sequential\(layer, head\)"):
        bn.MCBN(batch_size=8).fit(nn.BatchNorm1d(3).eval(), torch.randn(40, 3))


def test_layers_that_share_their_statistics_are_told_apart_from_bad_input():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).eval()
    model[2].running_mean = model[0].running_mean
    with pytest.raises(NetworkError, match="model: batch-norm layer '2' shares its running statistics"):
        bn.MCBN(batch_size=8).fit(model, torch.randn(40, 3))
    assert bn.MCBN(batch_size=8, layers=["0"]).fit(model, torch.randn(40, 3)).layers[0].name == "0"


def two_layers():
    layers = nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)
    model, x = nn.Sequential(*layers), torch.randn(60, 3)
    model(x)
    return model, x


def sampled_layers(model, x, **options):
    return [layer.name for layer in bn.MCBN(batch_size=8, states=4, **options).fit(model, x).layers]


def test_layers_in_evaluation_mode_inside_a_network_in_training_mode_are_left_out():
    model, x = two_layers()
    model[1].eval()
    with pytest.warns(bn.BayesNormWarning, match=r"layer '1' is in evaluation mode .*1 of 2 layers.*It is left out"):
        assert sampled_layers(model, x) == ["4"]
    assert sampled_layers(model, x, layers=["1", "4"]) == ["1", "4"], "the user's choice"


def test_a_frozen_backbone_is_left_out_but_a_network_inside_a_new_module_is_not():
    model, x = two_layers()
    backbone = model[:3].eval()
    assert sampled_layers(nn.Sequential(backbone, model[3:]), x) == ["0.1", "1.4"]
    backbone.requires_grad_(False)
    with pytest.warns(bn.BayesNormWarning, match="layer '0.1' is in evaluation mode"):
        assert sampled_layers(nn.Sequential(backbone, model[3:]), x) == ["1.4"]


def test_a_network_whose_layers_are_all_frozen_is_sampled_with_a_warning():
    model, x = two_layers()
    model[1].eval()
    model[4].eval()
    with pytest.warns(bn.BayesNormWarning, match="No batch size is that of training"):
        assert sampled_layers(model, x) == ["1", "4"]


def test_layers_without_gradients_may_have_been_frozen(recwarn):
    model, x = two_layers()
    model.eval()
    model[:2].requires_grad_(False)
    with pytest.warns(bn.BayesNormWarning, match="may have been frozen .*1 of 2 layers.* leave it out with layers="):
        assert sampled_layers(model, x) == ["1", "4"]
    recwarn.clear()
    sampled_layers(model.requires_grad_(False), x)
    assert not recwarn.list, "a network that is not trained any more has no gradients anywhere"
