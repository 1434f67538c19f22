"""A Lightning callback: fit a posterior when training ends, log its scores, and write it beside the checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from ..calibration import calibrate
from ..likelihoods import Likelihood
from ..posterior import Posterior


class FitPosterior(Callback):
    """Fit a posterior of the trained network to the training data, after the last epoch.

    With validation data it is also calibrated, and the trainer logs the negative log-likelihood on these data as
    `posterior_nll`. The trainer writes the weights as `posterior.ckpt`, and the posterior stands beside them as
    `posterior.bayesnorm`: in the folder of the checkpoints, else in `default_root_dir`. In training on several
    devices, the first one fits with the batches of its data loader.

    Args:
        method: A method such as `bn.MCBN(batch_size=32)`.
        likelihood: The likelihood of the targets, such as `bn.Categorical()`.
        network: The attribute of the LightningModule that holds the network; "" for the module itself.

    Attributes:
        posterior: The posterior; None before the end of training.
    """

    def __init__(self, method: Any, likelihood: Likelihood[Any], network: str = "") -> None:
        self.method, self.likelihood, self.network = method, likelihood, network
        self.posterior: Posterior[Any] | None = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit, calibrate, log and write the posterior."""
        folder = Path(getattr(trainer.checkpoint_callback, "dirpath", None) or trainer.default_root_dir)
        trainer.save_checkpoint(folder / "posterior.ckpt")
        if not trainer.is_global_zero:
            return
        network = getattr(pl_module, self.network) if self.network else pl_module
        posterior = self.method.fit(network, trainer.train_dataloader, self.likelihood)
        validation = trainer.val_dataloaders
        if validation is not None:
            posterior = calibrate(posterior, validation)
            y = torch.cat([torch.as_tensor(batch[1]) for batch in validation]).to(posterior.executable.device)
            nll = -float(posterior.predict(validation).log_prob(y).mean())
            for logger in trainer.loggers:
                logger.log_metrics({"posterior_nll": nll}, trainer.global_step)
        posterior.save(folder / "posterior.bayesnorm")
        self.posterior = posterior
