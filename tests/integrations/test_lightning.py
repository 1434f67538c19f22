"""The Lightning callback, with the real package: `make test-integrations`."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning", reason="make test-integrations runs this test")

import lightning.pytorch as pl

import bayesnorm as bn
from bayesnorm.integrations.lightning import FitPosterior


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize("network", ["", "net"])
def test_the_posterior_is_fitted_logged_and_written(network, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(160, 4)
    data = TensorDataset(x, x[:, :3].argmax(1))
    validation = DataLoader(TensorDataset(*data[:64]), 32)
    module, logged = Classifier(), []
    logger = pl.loggers.CSVLogger(tmp_path)
    logger.log_metrics = lambda metrics, step=None: logged.append((metrics, step))
    callback = FitPosterior(bn.MCBN(batch_size=32, states=16), bn.Categorical(), network)
    options = {"accelerator": "cpu", "max_epochs": 2, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(default_root_dir=tmp_path, logger=logger, callbacks=[callback], **options)
    trainer.fit(module, DataLoader(data, 32, shuffle=True), validation)
    path = next(tmp_path.rglob("posterior.bayesnorm"))
    nll = -float(callback.posterior.predict(x[:64]).log_prob(data[:64][1]).mean())
    assert logged[-1] == ({"posterior_nll": pytest.approx(nll, rel=1e-4)}, trainer.global_step)
    again = Classifier.load_from_checkpoint(path.with_suffix(".ckpt"), weights_only=True)
    loaded = bn.load(path, (getattr(again, network) if network else again).eval())
    torch.testing.assert_close(loaded.predict(x).probs, callback.posterior.predict(x).probs)


def test_validation_data_are_not_needed(tmp_path):
    data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 3)
    callback = FitPosterior(bn.MCBN(batch_size=16, states=8), bn.Categorical(), "net")
    options = {"accelerator": "cpu", "max_epochs": 1, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(default_root_dir=tmp_path, logger=False, callbacks=[callback], **options)
    trainer.fit(Classifier(), DataLoader(data, 16))
    assert next(tmp_path.rglob("posterior.bayesnorm")).is_file()
