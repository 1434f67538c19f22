"""Networks with several inputs, further arguments and outputs of every kind."""

import collections
import copy
import dataclasses
import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn
from bayesnorm.network import InputForm

ROWS = 60
X, META = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0)).split((3, 2), 1)
Y = X[:, :1] + META[:, :1]


class Two(nn.Module):
    """A network of an image and its metadata."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(10, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 1))

    def forward(self, x, meta):
        return self.head(torch.cat([self.body(x), meta], 1))


class Joined(Two):
    """The same network of one tensor."""

    def forward(self, x):
        return super().forward(x[:, :3], x[:, 3:])


@dataclasses.dataclass
class Example:
    x: torch.Tensor
    meta: torch.Tensor


Pair = collections.namedtuple("Pair", "x meta")

ALONE = {
    "tuple": (X, META),
    "dict": {"x": X, "meta": META},
    "dict in another order": {"meta": META, "x": X},
    "dataclass": Example(X, META),
    "named tuple": Pair(X, META),
    "arrays": (X.numpy(), META.numpy()),
}
WITH_TARGETS = {
    "flat tuple": (X, META, Y),
    "nested tuple": ((X, META), Y),
    "dict and targets": ({"x": X, "meta": META}, Y),
    "dataclass and targets": (Example(X, META), Y),
    "dict with targets": {"x": X, "meta": META, "target": Y},
    "loader": DataLoader(TensorDataset(X, META, Y), batch_size=8),
    "loader of pairs": DataLoader([((x, m), y) for x, m, y in zip(X, META, Y, strict=True)], batch_size=8),
    "data set": TensorDataset(X, META, Y),
}
EVERY = ALONE | WITH_TARGETS


@pytest.fixture(scope="module")
def networks():
    torch.manual_seed(0)
    network = Two()
    for _ in range(20):
        network(X, META)
    joined = Joined()
    joined.load_state_dict(network.state_dict())
    return network.eval(), joined.eval()


@pytest.fixture(scope="module")
def posteriors(networks):
    method = bn.MCBN(batch_size=8, states=40)
    return method.fit(networks[0], (X, META)), method.fit(networks[1], torch.cat([X, META], 1))


@pytest.mark.parametrize("kind", EVERY)
def test_several_inputs_are_passed_as_a_training_loop_does(kind, networks, posteriors):
    fitted = bn.MCBN(batch_size=8, states=40).fit(networks[0], EVERY[kind])
    posterior, joined = posteriors
    assert torch.allclose(fitted.running, joined.running)
    assert torch.allclose(fitted.fluctuations.deviations, joined.fluctuations.deviations, atol=1e-5)
    expected = joined.predict(torch.cat([X, META], 1), samples=4)
    assert torch.allclose(posterior.predict(EVERY[kind], samples=4).mean, expected.mean, atol=1e-5)
    p_value = bn.drift(joined, torch.cat([X, META], 1)).p_value
    assert bn.drift(posterior, EVERY[kind]).p_value == pytest.approx(p_value, rel=1e-3)


@pytest.mark.parametrize("kind", WITH_TARGETS)
def test_their_targets_are_where_they_are(kind, posteriors):
    posterior, joined = posteriors
    options = {"batch_size": False, "samples": 4, "refinements": 2}
    expected = bn.calibrate(joined, torch.cat([X, META], 1), Y, **options)
    calibrated = bn.calibrate(posterior, WITH_TARGETS[kind], **options)
    assert calibrated.likelihood.precision == pytest.approx(expected.likelihood.precision, rel=1e-3)
    assert bn.calibrate(posterior, (X, META), Y, **options).likelihood == calibrated.likelihood


@pytest.mark.parametrize(
    "engine",
    [
        *(bn.MonteCarlo(4), bn.MonteCarlo(4, vectorize=False), bn.MonteCarlo(4, chunk=1)),
        *(bn.MonteCarlo(8, block_bytes=999), bn.SigmaPoints(2), bn.Delta()),
    ],
    ids=str,
)
@pytest.mark.parametrize("keep", ["samples", "summary"])
def test_engines(engine, keep, posteriors):
    posterior, joined = posteriors
    predictive = posterior.predict({"x": X, "meta": META}, engine, keep=keep)
    expected = joined.predict(torch.cat([X, META], 1), engine, keep=keep)
    assert torch.allclose(predictive.mean, expected.mean, atol=1e-5)
    assert torch.allclose(predictive.epistemic, expected.epistemic, atol=1e-5)


def test_a_batch_size_is_selected_for_several_inputs(posteriors):
    posterior, joined = posteriors
    options = {"batch_sizes": [8, 16], "samples": 2}
    expected = bn.select_batch_size(joined, (torch.cat([X, META], 1), Y), **options).best.elbo
    for data in (((X, META), Y), WITH_TARGETS["dict with targets"], WITH_TARGETS["data set"]):
        assert bn.select_batch_size(posterior, data, **options).best.elbo == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["mcbn", "dropout", "deterministic", "combined", "ensemble", "adapted", "stochastic"])
def test_posteriors_and_files(kind, networks, posteriors, tmp_path):
    network, joined = networks
    made = {
        "mcbn": lambda model, _: posteriors[model is joined],
        "dropout": lambda model, x: bn.MCDropout().fit(model, x),
        "deterministic": lambda model, _: bn.deterministic(model, bn.Gaussian()),
        "combined": lambda model, x: bn.combine(posteriors[model is joined], bn.MCDropout().fit(model, x)),
        "ensemble": lambda model, _: bn.ensemble([model, copy.deepcopy(model)], bn.Gaussian()),
        "adapted": lambda model, x: bn.adapt(posteriors[model is joined], x),
        "stochastic": lambda model, x: bn.StochasticBN(batch_size=8).fit(model, x),
    }[kind]
    posterior, other = made(network, (X, META)), made(joined, torch.cat([X, META], 1))
    expected = other.predict(torch.cat([X, META], 1)[:9]).mean
    assert torch.allclose(posterior.predict((X[:9], META[:9])).mean, expected, atol=1e-5)
    posterior.save(tmp_path / "net")
    loaded = bn.load(tmp_path / "net", network)
    assert torch.allclose(loaded.predict({"x": X[:9], "meta": META[:9]}).mean, expected, atol=1e-5)


def test_compiled_posteriors_run_several_inputs_uncompiled(posteriors):
    compiled = posteriors[0].compile()
    with pytest.warns(bn.BayesNormWarning, match="takes several inputs, which cannot be compiled. It runs uncompiled"):
        predictive = compiled.predict((X, META), samples=4)
    assert torch.allclose(predictive.mean, posteriors[0].predict((X, META), samples=4).mean, atol=1e-5)


def test_a_bad_value_in_one_of_several_inputs_is_named(posteriors):
    broken = META.clone()
    broken[3, 0] = torch.nan
    with pytest.raises(bn.BayesNormError, match=r"x has 1 NaN .* in row 3"):
        posteriors[0].predict((X, broken))
    with pytest.raises(bn.BayesNormError, match=r"the 2 inputs of forward\(x, meta\) have 60 and 59 rows"):
        posteriors[0].predict((X, META[1:]))
    with pytest.raises(bn.BayesNormError, match=r"entries 'x', but forward\(x, meta\) needs 'meta'"):
        posteriors[0].predict({"x": X})


class Optional(Two):
    def forward(self, x, meta=None, flag=False):
        return super().forward(x, META[: len(x)] * 0 if meta is None else meta)


def test_a_second_entry_that_may_be_an_input_is_not_taken_for_targets_silently():
    network = Optional().eval()
    with pytest.warns(bn.BayesNormWarning, match=r"is taken for targets, because forward\(x, meta=.*needs 1") as seen:
        bn.MCBN(batch_size=8, states=4).fit(network, (X, META))
    assert seen[0].filename == __file__, "points at the caller's line, however deep it is noticed"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = bn.MCBN(batch_size=8, states=4).fit(network, {"x": X, "meta": META})
        nested = bn.MCBN(batch_size=8, states=4).fit(network, ((X, META), Y))
    assert torch.equal(nested.fluctuations.deviations, posterior.fluctuations.deviations)


class Scaled(Two):
    def forward(self, x, *, meta, scale):
        return super().forward(x, meta) * scale


def test_arguments_that_are_the_same_in_every_call(networks, posteriors, tmp_path):
    network = Scaled()
    network.load_state_dict(networks[0].state_dict())
    method, data = bn.MCBN(batch_size=8, states=40), {"x": X, "meta": META}
    with pytest.raises(bn.BayesNormError, match=r"missing 1 required keyword-only argument: 'scale'.*forward_kwargs="):
        method.fit(network.eval(), data)
    posterior = method.fit(network.eval(), data, forward_kwargs={"scale": 4.0})
    # A power of two rounds nothing: the directions of SigmaPoints are rounded, so others would differ in the 4th digit.
    for engine in (bn.MonteCarlo(4), bn.SigmaPoints(2), bn.Delta()):
        expected = posteriors[0].predict((X, META), engine).mean
        assert torch.allclose(posterior.predict(data, engine).mean, 4 * expected, atol=1e-5)
    assert bn.drift(posterior, data).p_value == pytest.approx(bn.drift(posteriors[0], (X, META)).p_value)
    chosen = bn.select_batch_size(posterior, data | {"y": Y}, batch_sizes=[8, 16], samples=2)
    assert all(math.isfinite(row.elbo) for row in chosen.rows)
    posterior.save(tmp_path / "net")
    with pytest.raises(bn.BayesNormError, match="forward_kwargs has none, but the posterior was fitted with 'scale'"):
        bn.load(tmp_path / "net", network)
    loaded = bn.load(tmp_path / "net", network, forward_kwargs={"scale": 4.0})
    assert torch.equal(loaded.predict(data).mean, posterior.predict(data).mean)
    for other in (
        bn.deterministic(network, bn.Gaussian(), forward_kwargs={"scale": 2.0}),
        bn.MCDropout().fit(network, data, forward_kwargs={"scale": 2.0}),
        posterior.to(torch.float64),
    ):
        assert other.predict(data).mean.shape == (ROWS, 1)


@pytest.mark.parametrize("method", [bn.DeepEnsemble(members=2, epochs=1), bn.BayesByBackprop(epochs=1)])
def test_methods_that_train_say_that_they_need_one_input(method):
    for data in (((X, META), Y), WITH_TARGETS["loader"]):
        with pytest.raises(bn.BayesNormError, match=r"forward\(x, meta\) takes 2 inputs, .*support one"):
            method.fit(Two(), data)


class WholeGraph(nn.Module):
    """One forward pass for all nodes."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, x, edge_index):
        return self.head(self.norm(torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])))


class FixedGraph(WholeGraph):
    def forward(self, x):
        return super().forward(x, torch.arange(ROWS).expand(2, -1))


def test_networks_of_a_whole_graph_are_explained():
    edges = torch.randint(ROWS, (2, 90))
    method = bn.MCBN(batch_size=8, states=4)
    with pytest.raises(bn.BayesNormError, match=r"have 60 and 2 rows.* all nodes of a graph in one forward pass"):
        method.fit(WholeGraph(), (X, edges))
    for network, options in ((FixedGraph(), {}), (WholeGraph(), {"forward_kwargs": {"edge_index": edges}})):
        with pytest.raises(bn.BayesNormError, match="runs on all 60 examples at once, but not on two"):
            method.fit(network, X, **options)


def test_ensembles_of_networks_of_a_whole_graph_predict():
    """They need no batches; a small block shows that nodes stay together."""
    edges = torch.randint(ROWS, (2, 90))
    networks = [WholeGraph().eval(), WholeGraph().eval()]
    members = [bn.deterministic(net, bn.Gaussian(), forward_kwargs={"edge_index": edges}) for net in networks]
    expected = torch.stack([net(X, edges) for net in networks])
    for engine in (None, bn.MonteCarlo(2, block_bytes=99)):
        predictive = bn.ensemble(members).predict(X, engine)
        assert torch.allclose(predictive.loc.sort(0).values, expected.sort(0).values, atol=1e-6)


class DropoutGraph(WholeGraph):
    def __init__(self):
        super().__init__()
        self.embedding, self.dropout = nn.Linear(3, 3), nn.Dropout(0.4)

    def forward(self, x, edge_index):
        return super().forward(self.dropout(self.embedding(x.float())), edge_index)


@pytest.mark.parametrize("consistent", [True, False])
def test_dropout_and_calibration_of_a_whole_graph(consistent):
    torch.manual_seed(0)
    network = DropoutGraph().eval()
    x, options = torch.randint(9, (ROWS, 3)), {"forward_kwargs": {"edge_index": torch.randint(ROWS, (2, 90))}}
    posterior = bn.MCDropout(consistent=consistent).fit(network, (x, Y), bn.Gaussian(missing=True), **options)
    predictive = posterior.predict(x, bn.MonteCarlo(4, block_bytes=99))
    looped = posterior.predict(x, bn.MonteCarlo(4, vectorize=False))
    torch.testing.assert_close(predictive.loc, looped.loc)
    assert float(predictive.epistemic.min()) >= 0
    assert float(predictive.epistemic.max()) > 0
    some = torch.where(torch.arange(ROWS)[:, None] < 40, Y, torch.nan)
    assert bn.calibrate(posterior, x, some, samples=4).likelihood.precision != 1
    single = bn.deterministic(network, bn.Gaussian(missing=True), **options)
    error = (single.predict(x).mean - Y)[:40].square().mean()  # the noise variance with the highest density
    assert 1 / bn.calibrate(single, x, some, score="pll").likelihood.precision == pytest.approx(float(error), rel=1e-3)
    ensemble = bn.ensemble([bn.deterministic(net, bn.Gaussian(missing=True), **options) for net in (network, network)])
    assert bn.calibrate(ensemble, x, some).likelihood.precision != 1
    for members in (posterior, ensemble):
        members.predict(x, samples=2)
        with pytest.raises(bn.BayesNormError, match=r"forward failed on input of shape \(30, 3\)"):
            members.predict(x[:30], samples=2)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class ModelOutput(collections.OrderedDict):
    """Stands in for that of Hugging Face: a dict with attributes and positions."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]


Named = collections.namedtuple("Named", "hidden logits")

OUTPUTS = {
    "dataclass": (Output, "logits"),
    "dataclass by position": (Output, 0),
    "named tuple": (lambda f: Named(f + 1, f), "logits"),
    "named tuple by position": (lambda f: Named(f + 1, f), 1),
    "model output": (lambda f: ModelOutput(loss=f + 1, logits=f), "logits"),
    "model output by position": (lambda f: ModelOutput(loss=f + 1, logits=f), 1),
    "nested dicts": (lambda f: {"heads": {"depth": f, "class": f + 1}}, "heads.depth"),
    "a list in a dict": (lambda f: {"maps": [f + 1, f]}, "maps.1"),
    "a dataclass in a tuple": (lambda f: (f + 1, Output(f)), "1.logits"),
    "a name with a dot": (lambda f: {"heads.depth": f, "heads": {"depth": f + 1}}, "heads.depth"),
}


class Returns(nn.Module):
    def __init__(self, make, inside):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.make, self.inside = make, inside

    def forward(self, x):
        return self.make(self.inside(self.body)(x))


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_are_chosen_by_name_position_or_path(kind, tmp_path):
    make, output = OUTPUTS[kind]
    network = Returns(make, lambda body: body).eval()
    posterior = bn.MCBN(batch_size=8, states=8).fit(network, X, output=output)
    expected = bn.MCBN(batch_size=8, states=8).fit(network.body, X)
    for engine in (bn.MonteCarlo(4), bn.SigmaPoints(2), bn.Delta()):
        assert torch.equal(posterior.predict(X, engine).mean, expected.predict(X, engine).mean)
    posterior.save(tmp_path / "net")
    assert torch.equal(bn.load(tmp_path / "net", network).predict(X).mean, posterior.predict(X).mean)


@pytest.mark.parametrize("output", [None, "loss", "logits.deep", 7, "hidden"])
def test_an_output_that_is_not_there_names_those_that_are(output):
    with pytest.raises(bn.BayesNormError, match="but the network returns Output with entries"):
        bn.MCBN(batch_size=8, states=4).fit(Returns(Output, lambda body: body).eval(), X, output=output)


class InsideOutput(nn.Module):
    """Returns a dataclass from a module that every sample shares."""

    def __init__(self):
        super().__init__()
        self.first = Returns(Output, lambda body: body)
        self.norm, self.head = nn.BatchNorm1d(1), nn.Linear(1, 1)

    def forward(self, x):
        return self.head(self.norm(self.first(x).logits.add_(1)))


def test_shared_parts_may_return_dataclasses_that_are_written_to():
    posterior = bn.MCBN(batch_size=8, states=8, layers=1).fit(InsideOutput().eval(), X)
    result, looped = posterior.predict(X, samples=4), posterior.predict(X, bn.MonteCarlo(4, vectorize=False))
    assert torch.allclose(result.mean, looped.mean, atol=1e-6)
    reference = [torch.func.functional_call(posterior.network, s, (X,)) for s in single_states(posterior.sample(4))]
    assert torch.allclose(result.loc, torch.stack(reference), atol=1e-5)


def single_states(states):
    return [{name: value[i] for name, value in states.items()} for i in range(4)]


def test_inputs_are_found_by_the_signature():
    class Language(nn.Module):
        def forward(self, input_ids, attention_mask=None, labels=None): ...

    form = InputForm(Language())
    inputs, targets = form.split({"input_ids": X, "attention_mask": META, "labels": Y}, "x")
    assert (list(inputs.kwargs), targets is Y) == (["input_ids", "attention_mask"], True)
    inputs, targets = InputForm(nn.Linear(3, 1)).split({"pixels": X, "label": Y}, "x")
    assert inputs is X
    assert targets is Y
    with pytest.raises(bn.BayesNormError, match=r"entries 'pixels', 'depth', but forward\(input\) needs 'input'"):
        InputForm(nn.Linear(3, 1)).split({"pixels": X, "depth": META}, "x")
