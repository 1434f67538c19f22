"""Deep ensembles: members differ in initial weights and orders, and what is trained is not the user's network."""

import copy

import pytest
import torch
from torch import nn

import bayesnorm as bn


def fit(task, **options):
    return bn.DeepEnsemble(**({"members": 3, "epochs": 4, "batch_size": 16} | options)).fit(
        task.model, (task.x, task.y), task.likelihood
    )


def test_members_are_trained_from_weights_of_their_own(task):
    untrained, trained = fit(task, epochs=1), fit(task, epochs=8)
    weights = [dict(member.model.named_parameters())["0.weight"] for member in trained.members]
    weight = dict(task.model.named_parameters())["0.weight"]
    assert not any(torch.equal(a, b) for i, a in enumerate(weights) for b in [weight, *weights[:i]])

    def loss(posterior):
        return sum(task.likelihood.loss(m.model(task.x), task.y).item() for m in posterior.members)

    assert loss(trained) < loss(untrained)


def test_a_factory_may_give_several_architectures(regression):
    widths = iter([4, 9, 6])

    def network(seed):
        width = next(widths)
        return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))

    method = bn.DeepEnsemble(members=3, epochs=2, batch_size=16)
    posterior = method.fit(network, (regression.x, regression.y))
    assert not posterior.alike
    assert posterior.predict(regression.new_x).mean.shape == (6, 1)


def test_a_factory_that_gives_one_network_twice_is_refused(regression):
    method = bn.DeepEnsemble(members=2, epochs=1, batch_size=16)
    model = copy.deepcopy(regression.model)
    with pytest.raises(bn.BayesNormError, match="model returned the same network for two seeds"):
        method.fit(lambda _seed: model, (regression.x, regression.y))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_seed_decides_on_a_gpu_too(regression):
    model, method = copy.deepcopy(regression.model).cuda(), bn.DeepEnsemble(members=2, epochs=1, batch_size=16)
    before = torch.cuda.get_rng_state()
    first = method.fit(model, (regression.x, regression.y))
    assert torch.equal(torch.cuda.get_rng_state(), before)
    torch.rand(3, device="cuda")
    again = method.fit(model, (regression.x, regression.y))
    for one, other in zip(first.members, again.members, strict=True):
        assert torch.equal(next(one.model.parameters()), next(other.model.parameters()))


def test_a_method_that_cannot_be_is_told_before_more_members_are_trained(regression):
    seen = []
    method = bn.DeepEnsemble(members=3, epochs=1, batch_size=16, method=bn.MCBN(10**6))
    with pytest.raises(bn.BayesNormError, match="batch_size=1000000, but train_data has only"):
        method.fit(regression.model, (regression.x, regression.y), progress=lambda *step: seen.append(step))
    assert seen == []
    for none in ("MCBN", bn.MCBN):
        with pytest.raises(bn.BayesNormError, match=r"method must be None, or a method such as.* got .*MCBN.*"):
            bn.DeepEnsemble(method=none)


def test_every_member_can_be_made_bayesian(regression):
    posterior = fit(regression, method=bn.MCBN(8, states=16))
    assert {type(member).__name__ for member in posterior.members} == {"BatchNormPosterior"}
    plain = fit(regression)
    assert posterior.predict(regression.new_x).epistemic.mean() > plain.predict(regression.new_x).epistemic.mean()


def test_members_may_come_from_a_generator(regression):
    made = fit(regression).members
    result = bn.ensemble(member for member in made)
    assert [member.executable for member in result.members] == [member.executable for member in made]
    for one in (regression.model, made[0]):
        with pytest.raises(bn.BayesNormError, match=r"members must be a list of networks or posteriors.* got \w+"):
            bn.ensemble(one, regression.likelihood)


def test_progress_and_outputs_by_name(regression):
    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))

        def forward(self, x):
            return {"y": self.body(x), "other": x}

    seen = []
    bn.DeepEnsemble(members=2, epochs=1, batch_size=16).fit(
        Several(), (regression.x, regression.y), output="y", progress=lambda *step: seen.append(step)
    )
    assert seen == [(1, 2), (2, 2)]


def test_parameters_that_cannot_start_afresh(regression):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.head = nn.Parameter(torch.ones(3)), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(self.scale * x)

    with pytest.raises(bn.BayesNormError, match=r"no reset_parameters\(\).*a callable seed -> network"):
        bn.DeepEnsemble(members=2, epochs=1).fit(Scaled(), (regression.x, regression.y))
