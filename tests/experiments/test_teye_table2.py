"""`python -m experiments teye-table2`: what is kept, how it is scored and judged, and all of it on a few images."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch

from experiments import teye_table2
from experiments.image_networks.networks import NETWORKS
from experiments.image_networks.recipes import Recipe
from experiments.image_networks.training import Plan, save_weights
from experiments.networks import CifarResNet
from experiments.paper_facts import paper_facts
from experiments.teye_table2 import methods, showing
from experiments.teye_table2.methods import MCBN, PUBLISHED, SOFTMAX, TEMPERATURE, Predicted, halves, tempered
from experiments.teye_table2.networks import NETWORK
from experiments.teye_table2.peers import write_predictions
from experiments.teye_table2.presets import PRESETS, Preset
from experiments.teye_table2.scoring import Score, Scores, score_all
from experiments.teye_table2.verdicts import DOES_NOT, HOLDS, PARTLY, cells, claims


def test_the_temperature_is_that_of_the_other_half():
    even, odd = halves(6)[0]
    assert (even.tolist(), odd.tolist()) == ([0, 2, 4], [1, 3, 5])
    # Three of four are of class 0, so that log 3 is the right logit; even images have 1, and odd ones 3.
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]).repeat(10)
    logits = torch.tensor([1.0, 3.0]).repeat(40)
    result = tempered(torch.stack([logits, torch.zeros(80)], 1)[None], labels)
    right = torch.tensor(3.0).log()
    torch.testing.assert_close(result[0, :2, 0], torch.stack([right / 3, 3 * right]), rtol=1e-3, atol=0)


def test_scores_by_hand():
    outputs = torch.tensor([0.5, 0.7, 0.9, 0.3]).reshape(4, 1, 1).log() * torch.tensor([1.0, 0.0])
    outputs[..., 1] = torch.tensor([0.5, 0.3, 0.1, 0.7]).log().reshape(4, 1)
    outputs = outputs.repeat(1, 2, 1)
    predicted = [Predicted("samples", outputs), Predicted("points", outputs, passes=0.5, whole=True)]
    scores = score_all(predicted, torch.tensor([0, 1]))
    assert [(score.method, score.samples, score.passes) for score in scores.all] == [
        ("samples", 1, 1.0),
        ("samples", 2, 2.0),
        ("samples", 4, 4.0),
        ("points", 4, 2.0),
    ]
    two = scores.score("samples", 2)
    logs = torch.tensor([[0.6, 0.4], [0.6, 0.4]], dtype=torch.float64).log()  # means of .5 and .7, and of .9 and .3
    torch.testing.assert_close(two.nll, -logs.mean(0), rtol=0, atol=1e-6)
    assert two.spread == pytest.approx(0, abs=1e-6)
    assert scores.score("samples").spread is None
    assert two.accuracy == 0.5
    assert two.standard_error == pytest.approx(abs(float(logs[0, 0] - logs[0, 1])) / 2)
    gain, error = two.gain_over(scores.score("samples", 4))
    assert (gain, error) == (pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6))


def made_up(values, images=100, noise=0.0):
    """Return scores with these means, by method and samples; `noise` lies between images, alike in all methods."""
    shape = torch.linspace(-1, 1, images, dtype=torch.float64) * noise
    return Scores(
        [
            Score(method, samples, samples, value + shape, 0.9, value, None)
            for (method, samples), value in values.items()
        ]
    )


def as_the_paper(**changed):
    """Return scores as the paper has them, a constant added or single cells changed."""
    added = changed.pop("added", 0.0)
    values = {(SOFTMAX, 1): 0.32, (TEMPERATURE, 1): 0.2, (MCBN, 64): 0.25}
    for fact in paper_facts("teye2018", 2):
        if fact.method == "MCBN":
            values[PUBLISHED, fact.settings["passes"]] = -fact.value
    values = {key: value + added for key, value in values.items()}
    return values | {(PUBLISHED, int(samples[1:])): value for samples, value in changed.items()}


def test_cells_hold_where_value_and_gain_do():
    def verdicts(values, **more):
        return {cell.samples: cell.verdict for cell in cells(made_up(values, **more))}

    assert set(verdicts(as_the_paper()).values()) == {HOLDS}
    assert list(verdicts(as_the_paper())) == [1, 2, 4, 8, 16, 32, 64, 128, None]
    moved = verdicts(as_the_paper(added=0.05))
    assert moved.pop(None) == DOES_NOT
    assert set(moved.values()) == {PARTLY}  # gains are as they were
    assert set(verdicts(as_the_paper(added=0.05), noise=0.5).values()) == {HOLDS}  # .05 is within two errors now
    assert verdicts(as_the_paper(t128=0.33))[128] == DOES_NOT
    assert verdicts(as_the_paper(t1=0.36, t2=0.323))[2] == HOLDS  # no gain, as in the paper
    assert cells(made_up(as_the_paper()))[3].gain == pytest.approx(0.03)


def test_claims_hold_beyond_two_standard_errors():
    result = claims(made_up(as_the_paper()))
    assert [claim.verdict for claim in result] == [HOLDS, HOLDS, HOLDS, "worse", "better", "worse"]
    assert [claim.theirs for claim in result[:3]] == [pytest.approx(expected) for expected in (0.08, 0.04, 0.0)]
    assert [claim.verdict for claim in claims(made_up(as_the_paper(t128=0.4)))][:3] == [DOES_NOT, DOES_NOT, HOLDS]
    assert claims(made_up(as_the_paper(t32=0.295)))[2].verdict == PARTLY
    few = {key: value for key, value in as_the_paper().items() if key[1] <= 16}
    assert len(claims(made_up(few | {(MCBN, 16): 0.25}))) == 5
    scores = made_up(as_the_paper())
    uncertain = [s if s.samples > 1 else replace(s, nll=s.nll + 5 * (-1) ** torch.arange(100)) for s in scores.all]
    assert claims(Scores(uncertain))[0].verdict == PARTLY


@pytest.fixture
def write_network(monkeypatch):
    """Return a function that writes a small untrained network of the table's name."""
    monkeypatch.setitem(NETWORKS, NETWORK, partial(CifarResNet, 20, width=2))

    def write(folder, name, seed=0, **recipe):
        plan = Plan(NETWORK, "cifar10", Recipe(1, **recipe), seed)
        save_weights(plan.new_network(), folder / f"{name}.safetensors")
        (folder / f"{name}.json").write_text(json.dumps(plan.described()))

    return write


@pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")
def test_all_of_it_on_a_few_images(experiments, require, tmp_path, monkeypatch, write_network):
    require("cifar10/test_first2000.webp", "cifar10/train_first5000.webp")
    pytest.importorskip("matplotlib")
    smallest = Preset(
        train_images=16,
        images=12,
        samples=4,
        centred_samples=2,
        other_samples=1,
        late_samples=((1, 2),),
        states=4,
        rank=1,
    )
    monkeypatch.setitem(PRESETS, "quick", smallest)
    monkeypatch.setattr(methods, "BATCH_SIZE", 8)
    monkeypatch.setattr(methods, "REPEATS", 1)
    told = {"method": "laplace-torch, last layer", "passes": 1.0, "versions": {"laplace-torch": "0.3"}}
    network = CifarResNet(20, width=2, seed=7).eval()
    monkeypatch.setattr(teye_table2, "given_network", lambda: network)
    write_predictions(tmp_path, network, torch.arange(12), torch.full((12, 10), 0.1), told)
    (tmp_path / "networks").mkdir()
    for seed in (0, 1):
        write_network(tmp_path / "networks", f"n{seed}", seed)
    ended = experiments(
        "teye-table2",
        *("--device", "cpu", "--peers", tmp_path, "--networks", tmp_path / "networks", "--out", tmp_path / "out"),
    )
    assert ended.code == 0, ended.err
    assert "4 samples are better than the softmax" in ended.out
    assert (tmp_path / "out" / "teye_table2.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "out" / "teye_table2.json").read_text())
    result, trained = written["networks"]
    assert [cell["samples"] for cell in result["cells"]] == [1, 2, 4, None]
    scores = {(row["method"], row["samples"]): row for row in result["rows"]}
    assert scores["laplace-torch 0.3, last layer", 1]["nll"] == pytest.approx(2.302585)
    assert scores[TEMPERATURE, 1]["accuracy"] == scores[SOFTMAX, 1]["accuracy"]
    assert {"GaussianBN", "StochasticBN", "SigmaPoints(1)", "Delta", "last layer, T = 2"} <= {m for m, _ in scores}
    assert result["left_out"][0].startswith("MC dropout and a deep ensemble need networks")
    first, second = trained["by_seed"]
    (softmax,) = (row for row in showing.tables(trained)["by_seed"] if row[0] == "softmax")
    nll = [-one["cells"][-1]["ours"] for one in (first, second)]
    assert softmax[2] == f"{-sum(nll) / 2:.3f} ± {abs(nll[0] - nll[1]) / 2**0.5:.3f}"
