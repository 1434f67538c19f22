"""Several tasks on one network: their losses, their targets, their predictives."""

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import FileFormatError, InputError
from bayesnorm.likelihoods import likelihood_from

TASKS = {"depth": bn.HeteroscedasticGaussian(), "label": (bn.Categorical(), 3), "pose": (bn.Gaussian((4.0, 1.0)), 2)}


def outputs(n=4, rows=6, pixels=()):
    return torch.randn(n, rows, 7, *pixels, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def targets(rows=6):
    generator = torch.Generator().manual_seed(1)
    return {
        "depth": torch.randn(rows, 1, dtype=torch.float64, generator=generator),
        "label": torch.randint(0, 3, (rows,), generator=generator),
        "pose": torch.randn(rows, 2, dtype=torch.float64, generator=generator),
    }


def side_by_side(y):
    return torch.cat([y["depth"], y["label"][:, None].double(), y["pose"]], dim=1)


def test_every_task_takes_its_outputs_in_order():
    f, y, likelihood = outputs(), targets(), bn.MultiTask(TASKS)
    predictive = likelihood.predictive(f)
    assert list(predictive) == ["depth", "label", "pose"]
    assert len(predictive) == 3
    expected = {
        "depth": bn.HeteroscedasticGaussian().predictive(f[..., :2]),
        "label": bn.Categorical().predictive(f[..., 2:5]),
        "pose": bn.Gaussian((4.0, 1.0)).predictive(f[..., 5:]),
    }
    for k, (name, part) in enumerate(expected.items()):
        for what in ("mean", "epistemic", "aleatoric", "variance", "std"):
            assert torch.equal(getattr(predictive, what)[name], getattr(part, what))
        log_prob = part.log_prob(y[name])
        torch.testing.assert_close(predictive.log_prob(y)[:, k], log_prob.reshape(6, -1).sum(1))
    assert torch.equal(likelihood["label"].noise, bn.Categorical().noise)


def test_the_loss_is_the_sum_of_the_tasks():
    f, y = outputs(1)[0], targets()
    expected = (
        bn.HeteroscedasticGaussian().loss(f[:, :2], y["depth"])
        + bn.Categorical().loss(f[:, 2:5], y["label"])
        + bn.Gaussian((4.0, 1.0)).loss(f[:, 5:], y["pose"])
    )
    torch.testing.assert_close(bn.MultiTask(TASKS).loss(f, y), expected)


def test_targets_side_by_side_are_those_of_a_dict():
    f, y, likelihood = outputs(), targets(), bn.MultiTask(TASKS)
    torch.testing.assert_close(likelihood.loss(f[0], side_by_side(y)), likelihood.loss(f[0], y))
    predictive = likelihood.predictive(f)
    torch.testing.assert_close(predictive.log_prob(side_by_side(y)), predictive.log_prob(y))
    result, expected = (likelihood.noise_range(f, t) for t in (side_by_side(y), y))
    torch.testing.assert_close(result, expected)


def test_maps():
    likelihood = bn.MultiTask({"depth": bn.HeteroscedasticLaplace(), "label": (bn.Categorical(ignore_index=-100), 5)})
    f, depth = outputs(pixels=(3, 2)), torch.randn(6, 1, 3, 2, dtype=torch.float64)
    label = torch.randint(0, 5, (6, 3, 2))
    label[0] = -100
    loss = likelihood.loss(f[0], {"depth": depth, "label": label})
    torch.testing.assert_close(likelihood.loss(f[0], torch.cat([depth, label[:, None].double()], 1)), loss)
    predictive = likelihood.predictive(f)
    assert predictive["depth"].mean.shape == (6, 1, 3, 2)
    assert predictive["label"].label.shape == (6, 3, 2)
    assert predictive.log_prob({"depth": depth, "label": label}).shape == (6, 2)


def test_samples_of_tasks_are_independent_of_each_other():
    likelihood = bn.MultiTask({"a": bn.Gaussian(), "b": bn.Gaussian()})
    drawn = likelihood.predictive(torch.zeros(1, 1, 2)).sample(4000, seed=1)
    pair = torch.stack([drawn["a"].flatten(), drawn["b"].flatten()])
    assert abs(torch.corrcoef(pair)[0, 1]) < 4.5 / 4000**0.5


def test_calibrating_finds_every_tasks_noise():
    rows = 3000
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    model = nn.Linear(2, 4).double()
    f = model(x).detach()
    y = {
        "a": f[:, :1] + 0.3 * torch.randn(rows, 1, generator=generator, dtype=torch.float64),
        "b": f[:, 1:2] + 5.0 * torch.randn(rows, 1, generator=generator, dtype=torch.float64),
        "c": bn.Categorical(3.0).predictive(f[None, :, 2:]).sample(1)[0],
    }
    start = bn.MultiTask({"a": bn.Gaussian(), "b": bn.Gaussian(4.0), "c": (bn.Categorical(), 2)})
    result = bn.calibrate(bn.deterministic(model, start), x, y).likelihood
    for name in ("a", "b"):
        mse = (y[name] - f[:, "ab".index(name)][:, None]).square().mean().item()
        assert 1 / result[name].precision == pytest.approx(mse, rel=1e-5)
    assert 1.5 < result["c"].temperature < 8


def test_delta_is_closed_where_every_task_is():
    f, variance = outputs()[0], outputs()[1].square()
    closed = bn.MultiTask({"a": (bn.HeteroscedasticGaussian(), 4), "b": (bn.Gaussian(), 3)})
    result = closed.gaussian_predictive(f, variance)
    expected = bn.Gaussian().gaussian_predictive(f[:, 4:], variance[:, 4:])
    assert torch.equal(result["b"].variance, expected.variance)
    assert bn.MultiTask(TASKS).gaussian_predictive(f, variance) is None


def test_bad_tasks():
    for tasks, said in (
        ({}, "tasks must be a dict .* got {}"),
        (None, "tasks must be a dict .* got None"),
        ({"a": "Gaussian"}, r"tasks\['a'\] must be a likelihood or a pair .* got str"),
        ({"a": (bn.HeteroscedasticGaussian(), 1)}, "a whole number of at least 2"),
        ({"a": bn.MultiTask({"b": bn.Gaussian()})}, r"tasks\['a'\] must be .* got MultiTask"),
    ):
        with pytest.raises(bn.BayesNormError, match=said):
            bn.MultiTask(tasks)


def test_outputs_and_targets_that_do_not_fit():
    likelihood, y = bn.MultiTask(TASKS), targets()
    with pytest.raises(InputError, match=r"6 entries along axis 1.* 2 \(depth\) \+ 3 \(label\) \+ 2 \(pose\)"):
        likelihood.loss(torch.zeros(6, 6), y)
    with pytest.raises(InputError, match=r"y has targets for \['depth'\]"):
        likelihood.loss(outputs()[0], {"depth": y["depth"]})
    for bad in (torch.zeros(6), torch.zeros(6, 3), None, [1, 2]):
        with pytest.raises(InputError, match=r"y must be a dict by task, or a tensor with 4 columns"):
            likelihood.loss(outputs()[0], bad)


def test_a_file_with_a_task_that_is_unknown():
    config = bn.MultiTask(TASKS).config()
    config["tasks"][0][1]["kind"] = "Cauchy"
    with pytest.raises(FileFormatError, match=r"likelihood\.kind is 'Cauchy'"):
        likelihood_from(config)


def test_a_data_frame_of_targets():
    pandas = pytest.importorskip("pandas")
    likelihood = bn.MultiTask({"a": bn.Gaussian(), "label": (bn.Categorical(), 3)})
    p = likelihood.predictive(torch.randn(2, 3, 4))
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "label": [0, 1, 2]})
    torch.testing.assert_close(p.log_prob(frame), p.log_prob({"a": frame["a"], "label": frame["label"]}))


def test_no_rows():
    likelihood = bn.MultiTask({"a": bn.Gaussian(), "label": (bn.Categorical(), 3)})
    assert likelihood.predictive(torch.zeros(2, 0, 4)).log_prob(torch.zeros(0, 2)).shape == (0, 2)
