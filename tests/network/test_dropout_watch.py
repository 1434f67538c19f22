"""Dropout that has no layer of its own is found, and refused or left off as told; looking leaves no trace."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayesnorm as bn
from bayesnorm.errors import NetworkError


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True), 2)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.encoder(x)[:, 0])


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch vectorises attention by a loop of its own
def test_a_transformer_encoder_drops_though_torch_would_fuse_it(reference):
    model, x = Attention().eval(), torch.randn(5, 4, 8)
    with pytest.raises(NetworkError, match=r"'encoder.layers.0.self_attn' .*nn.MultiheadAttention\(dropout=0.3\)"):
        bn.MCDropout().fit(model, x)
    off = {f"encoder.layers.{i}.self_attn": 0 for i in range(2)}
    posterior = bn.MCDropout(p=off).fit(model, x)
    states = posterior.sample(6)
    assert len(states) == 6
    expected = reference(posterior.network, states, x)
    assert (expected.var(0) > 0).all()
    torch.testing.assert_close(posterior.executable.run(states, x), expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(posterior.executable.point(x), model(x), rtol=1e-4, atol=1e-5)


class Calls(nn.Module):
    """Has a dropout layer, and calls something else besides."""

    def __init__(self, function):
        super().__init__()
        self.drop, self.head, self.function = nn.Dropout(0.2), nn.Linear(6, 1), function

    def forward(self, x):
        return self.head(self.function(self.drop(x), self.training))


class Inner(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.block = Calls(function)

    def forward(self, x):
        return self.block(x)


def attention(h, training):
    q = h.view(len(h), 1, 2, 3)
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.1 if training else 0.0).flatten(1)


FUNCTIONS = {
    "dropout": lambda h, training: F.dropout(h, 0.3, training),
    "alpha_dropout": lambda h, training: F.alpha_dropout(h, p=0.3, training=training),
    "dropout1d": lambda h, training: F.dropout1d(h[:, None], training=training)[:, 0],
    "dropout2d": lambda h, training: F.dropout2d(h[:, None, None], training=training)[:, 0, 0],
    "feature_alpha_dropout": lambda h, training: F.feature_alpha_dropout(h[:, None], training=training)[:, 0],
    "scaled_dot_product_attention": attention,
    "dropout_": lambda h, training: torch.dropout_(h.clone(), 0.3, training),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_dropout_inside_a_forward_is_refused_or_left_off(name, snapshot):
    model, x = Inner(FUNCTIONS[name]), torch.randn(5, 6)
    before = snapshot(model)
    said = rf"model: 'block' \(Calls\) calls {name}, .*MCDropout\(p={{'block': 0}}\)"
    with pytest.raises(NetworkError, match=said):
        bn.MCDropout().fit(model, x)
    late = bn.MCDropout().fit(model, likelihood=bn.Gaussian())
    for _ in range(2):
        with pytest.raises(NetworkError, match=said):
            late.predict(x)
    posterior = bn.MCDropout(p={"block": 0}).fit(model, x)
    assert list(posterior.sample(2)) == ["block.drop.seed"]
    assert (posterior.predict(x).epistemic > 0).all()
    assert snapshot(model) == before


def test_dropout_that_is_never_off_is_refused_in_any_case():
    model = Calls(lambda h, _training: F.dropout(h))
    for p in (None, {"": 0}):
        with pytest.raises(NetworkError, match=r"its own forward \(Calls\) calls dropout also in evaluation mode"):
            bn.MCDropout(p).fit(model, torch.randn(5, 6))


@pytest.mark.parametrize("rate", [0.0, None])
def test_functions_that_drop_nothing_are_no_problem(rate):
    def nothing(h, training):
        return F.dropout(h, 0.0, training) if rate == 0 else F.dropout(h, 0.5, training=False)

    assert (bn.MCDropout().fit(Calls(nothing), x := torch.randn(5, 6)).predict(x).epistemic > 0).all()


class OwnForward(nn.Dropout):
    def forward(self, input):
        return F.dropout(input, self.p, self.training) + 1


class OwnName(nn.Dropout):
    """A subclass that only has another name."""


def test_subclasses_of_dropout():
    model = nn.Sequential(nn.Linear(3, 6), OwnForward(0.2), OwnName(0.2), nn.Linear(6, 1))
    with pytest.raises(NetworkError, match=r"'1' \(OwnForward\) calls dropout"):
        bn.MCDropout().fit(model, torch.randn(5, 3))
    posterior = bn.MCDropout(p={"1": 0}).fit(model, torch.randn(5, 3))
    assert list(posterior.sample(1)) == ["2.seed"]


class Rnn(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn, self.drop, self.head = kind(3, 4, batch_first=True, **options), nn.Dropout(0.3), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.drop(self.rnn(x)[0][:, -1]))


def test_dropout_inside_recurrent_layers():
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        x = torch.randn(5, 4, 3)
        with pytest.raises(NetworkError, match=rf"'rnn' \({kind.__name__}\) calls nn.{kind.__name__}\(dropout=0.2\)"):
            bn.MCDropout().fit(Rnn(kind, num_layers=2, dropout=0.2), likelihood=bn.Gaussian())
        for model, p in ((Rnn(kind, num_layers=2, dropout=0.2), {"rnn": 0}), (Rnn(kind, num_layers=2), None)):
            assert (bn.MCDropout(p).fit(model, x).predict(x).epistemic > 0).all()


class Counts(nn.Module):
    """Writes to itself when it trains, and cannot always."""

    def __init__(self, fails):
        super().__init__()
        self.drop, self.head, self.fails = nn.Dropout(0.2), nn.Linear(6, 1), fails
        self.norm = nn.InstanceNorm1d(1, track_running_stats=True)
        self.register_buffer("seen", torch.zeros(()))
        self.scale = nn.Parameter(torch.ones(()))
        self.plain = torch.zeros(())

    def forward(self, x):
        if self.training:
            self.seen += 1
            self.plain += 1
            self.scale.data.mul_(2)
            if self.fails:
                raise TypeError("targets, please")
        return self.head(self.drop(self.norm(x[:, None])[:, 0])) * self.scale


@pytest.mark.parametrize("fails", [True, False])
def test_looking_at_training_mode_leaves_no_trace(fails, snapshot):
    model = Counts(fails)
    before, plain = snapshot(model), model.plain.clone()
    posterior = bn.MCDropout().fit(model, x := torch.randn(5, 6))
    assert (posterior.predict(x).epistemic > 0).all()
    assert snapshot(model) == before
    assert torch.equal(model.plain, plain)


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(6, 1)

    def forward(self, x):
        return self.head(self.drop(x) if self.training else x)


def test_layers_that_never_run():
    with pytest.raises(NetworkError, match=r"model: none of its dropout layers \('drop'\) runs in evaluation mode"):
        bn.MCDropout().fit(Idle(), torch.randn(5, 6))


class NormOfOne(nn.Module):
    """Normalises one value per channel, which batch norm refuses in training mode."""

    def __init__(self):
        super().__init__()
        self.norm, self.block = nn.BatchNorm1d(6), Calls(FUNCTIONS["dropout"])

    def forward(self, x):
        return self.block(x + self.norm(x.new_ones(1, 6)))


def test_normalisation_stays_in_evaluation_mode():
    with pytest.raises(NetworkError, match=r"'block' \(Calls\) calls dropout"):
        bn.MCDropout().fit(NormOfOne(), torch.randn(5, 6))
