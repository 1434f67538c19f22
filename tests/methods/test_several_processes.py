"""Networks trained by several processes, with batch norm in each of them: two processes on CPUs.

`python tests/methods/test_several_processes.py FOLDER` is the program that the test runs.
"""

import copy
import datetime
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import bayesnorm as bn

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how_to" / "several_gpus.md"
ROWS, SIZE, EPOCHS = 1600, 16, 4


def train(rank, folder):
    """Train in one of two processes, fit and predict; save what the test compares."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    limit = datetime.timedelta(seconds=30)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2, timeout=limit)
    torch.manual_seed(0)
    x = torch.randn(ROWS, 3)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    network = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.0)  # the statistics of batches are then those of one network
    loader = DataLoader(data, batch_size=SIZE, sampler=DistributedSampler(data, seed=1))
    seen = []
    hook = model[1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().mean(0)))
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)
        for rows, labels in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(rows), labels).backward()
            optimiser.step()
    hook.remove()
    network.eval()

    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1], names)
    posterior = names["shared_posterior"](network, loader, folder / "shared")
    local = bn.MCBN().fit(network, loader, bn.Categorical())
    shard = bn.MCBN(batch_size=SIZE).fit(model, x[rank::2], bn.Categorical())
    result = {"trained": torch.stack(seen).var(0), "shared": posterior.predict(x[:64]).probs}
    result |= {name: one.sample(256)["1.running_mean"].var(0) for name, one in {"own": local, "shard": shard}.items()}
    result["size"] = torch.tensor(posterior.batch_size)
    if rank == 0:  # alone: the other process takes no part
        synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model))
        bn.MCBN(batch_size=2 * SIZE).fit(synchronised, x, bn.Categorical()).predict(x[:4])
    network.train()
    loss = network(x[:SIZE]).sum()
    loss.backward()  # training goes on
    torch.save(result, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes(tmp_path):
    command = [sys.executable, "-W", "error::UserWarning:bayesnorm", __file__, str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert torch.equal(first["shared"], second["shared"]), "all processes have the same posterior"
    assert first["size"] == SIZE, "the loader's batch size is that of one process"
    for result in (first, second):
        # The batch means that a layer saw in training vary as those of the posterior do: 200 and 256 batches, so the
        # standard error of the ratio is 13 %. With the global batch size it would be 2.
        for name in ("own", "shard"):
            ratio = float((result["trained"] / result[name]).mean())
            assert 0.75 < ratio < 1.35, name


def test_the_batch_size_of_a_loader_is_not_that_of_synchronised_batch_norm():
    network = nn.Sequential(nn.Linear(3, 4), nn.SyncBatchNorm(4), nn.Linear(4, 1)).eval()
    x = torch.randn(60, 3)
    with pytest.warns(bn.BayesNormWarning, match=r"batch_size=8 is that of the DataLoader, .* all GPUs"):
        bn.MCBN(states=4).fit(network, DataLoader(TensorDataset(x), batch_size=8))
    bn.MCBN(batch_size=8, states=4).fit(network, DataLoader(TensorDataset(x), batch_size=8))


if __name__ == "__main__":
    other = multiprocessing.get_context("fork").Process(target=train, args=(1, Path(sys.argv[1])))
    other.start()
    train(0, Path(sys.argv[1]))
    other.join(60)
    sys.exit(other.exitcode)
