"""Parameters of the estimators that cannot be, refused before anything is trained."""

import pytest
import torch

from bayesnorm.errors import BayesNormError
from bayesnorm.tabular import BayesNormRegressor
from bayesnorm.tabular.checks import device_named


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", "laplace"),
        ("hidden", ()),
        ("hidden", 50),
        ("hidden", (0,)),
        ("weight_decay", -1.0),
        ("weight_decay", "much"),
        ("batch_size", 1),
        ("batch_size", [16, 2.5]),
        ("batch_size", 79),
        ("epochs", 0),
        ("precision", -1.0),
        ("effective_batch_size", "crps"),
        ("effective_batch_size", 0),
        ("heteroscedastic", "yes"),
        ("dropout_rate", 1.0),
        ("dropout_rate", [0.1, -0.1]),
        ("encoding", "bins"),
        ("encoding", "bins 0"),
        ("encoding", ["plain", "trees 4"]),
        ("device", "abacus"),
        ("device", None),
        ("conformal", "yes"),
        ("fast", 1),
        ("interruptible", 1),
        ("learning_rate", 0.0),
        ("folds", 1),
        ("max_epochs", 0),
        ("samples", 1),
        ("members", 0),
        ("verbose", "loud"),
    ],
)
def test_parameters_that_cannot_be(line, quick, name, value):
    with pytest.raises(BayesNormError, match=f"^{name}( must be .*, got |=79, but only 40 rows)") as error:
        BayesNormRegressor(**{**quick, name: value}).fit(*line)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named_before_anything_is_trained(line, quick):
    with pytest.raises(BayesNormError, match=r"^device is 'cuda', but torch finds no GPU"):
        BayesNormRegressor(**quick, device="cuda").fit(*line)
    assert device_named("auto") == torch.device("cpu")


def test_without_folds_nothing_may_be_open(line, quick):
    open_ones = "batch_size, dropout_rate, epochs, effective_batch_size"
    with pytest.raises(BayesNormError, match=f"folds=None skips cross-validation, which chooses {open_ones}. Pass"):
        BayesNormRegressor(**{**quick, "folds": None, "effective_batch_size": "cross-validated"}).fit(*line)
    with pytest.raises(BayesNormError, match=r"folds=None skips cross-validation, which chooses .*, precision\. Pass"):
        BayesNormRegressor(**{**quick, "folds": None, "heteroscedastic": False}).fit(*line)
    with pytest.raises(BayesNormError, match="precision cannot be combined with heteroscedastic=True"):
        BayesNormRegressor(**quick, precision=1.0).fit(*line)
