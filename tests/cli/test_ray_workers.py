"""`bayesnorm predict --runner ray`: the same file as without Ray, also if workers are killed."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest

from bayesnorm.cli import new_rows, ray_workers
from bayesnorm.cli.ray_workers import ray_workers as workers_of
from bayesnorm.errors import BayesNormError

from ..marks import takes_long
from .conftest import houses, write_csv

ray = pytest.importorskip("ray", reason="needs Ray: pip install ray")


@pytest.mark.parametrize("options", [("--workers", 2), ("--address", "auto")])
def test_options_of_ray_need_ray(refuses, regression_run, options):
    line = refuses("predict", regression_run.run, regression_run.data, *options, code=2)
    assert "--address and --workers need --runner ray" in line


def test_an_address_without_a_cluster(refuses, regression_run, tmp_path):
    arguments = ("predict", regression_run.run, regression_run.data, "--out", tmp_path / "out.csv", "--runner", "ray")
    assert "no cluster answers at localhost:9" in refuses(*arguments, "--address", "localhost:9")
    assert "no cluster answers at nowhere" in refuses(*arguments, "--address", "nowhere")
    assert not [*tmp_path.iterdir()]


class KillsOne:
    """Scoring that is as it should be, but kills its process once at the third chunk."""

    def __init__(self, scoring, mark):
        self.scoring, self.mark = scoring, mark

    def score(self, part):
        if part.index[0] == 9 and not self.mark.exists():
            self.mark.write_text("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        return self.scoring.score(part)


@takes_long
def test_a_killed_worker_costs_nothing(bayesnorm, regression_run, tmp_path, monkeypatch):
    monkeypatch.setattr(new_rows, "CHUNK", 4)
    data, mark = write_csv(tmp_path / "new.csv", houses(50, seed=1)), tmp_path / "mark"
    command = ("predict", regression_run.run, data, "--out")
    assert bayesnorm(*command, tmp_path / "local.csv").code == 0

    @contextlib.contextmanager
    def kills_one(scoring, *options):
        with workers_of(KillsOne(scoring, mark), *options) as score:
            yield score

    monkeypatch.setattr(new_rows, "ray_workers", kills_one)
    before = signal.getsignal(signal.SIGTERM)
    ended = bayesnorm(*command, tmp_path / "ray.csv", "--runner", "ray", "--workers", 2)
    assert ended.code == 0, ended.err
    assert mark.exists()
    assert signal.getsignal(signal.SIGTERM) == before
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
    lines = [line[:3] for line in houses(30)]
    lines[19][0] = "big"
    bad = write_csv(tmp_path / "bad.csv", lines)
    ended = bayesnorm("predict", regression_run.run, bad, "--out", tmp_path / "bad_out.csv", "--runner", "ray")
    assert ended.code == 1
    assert re.fullmatch(r"error: .*row 19 contains 'big'.*\n", ended.err)


@takes_long
def test_busy_processors_end_in_an_error(monkeypatch):
    """A cluster whose only processor is taken cannot hang the command."""
    program = (
        "import ray, sys\n"
        "ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)\n"
        "holder = ray.remote(num_cpus=1)(type('Holder', (), {'ready': lambda self: 1})).remote()\n"
        "ray.get(holder.ready.remote())\n"
        "from bayesnorm.cli import ray_workers\n"
        "from bayesnorm.errors import BayesNormError\n"
        "ray_workers.FIRST_SECONDS = 3\n"
        "try:\n"
        "    with ray_workers.ray_workers('nothing', None, 2):\n"
        "        sys.exit('it started')\n"
        "except BayesNormError as error:\n"
        "    print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert "no worker started within 3 seconds. A worker needs 1 processor, and 0 of the 1 processors" in ended.stdout


def test_messages_name_what_is_known(monkeypatch):
    class NoRay:
        class exceptions:
            class RayError(Exception):
                pass

            class GetTimeoutError(RayError):
                pass

        @staticmethod
        def get(call, timeout):
            raise call

    error = NoRay.exceptions
    with pytest.raises(BayesNormError, match="a chunk was not predicted within 900 seconds"):
        ray_workers._fetched(NoRay, error.GetTimeoutError())
    with pytest.raises(BayesNormError, match=r"a worker was lost more than 10 times, .* \(no memory\)"):
        ray_workers._fetched(NoRay, error.RayError("no\nmemory"))
