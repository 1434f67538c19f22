"""Experiments of many parts: what to compute (`Unit`), what was computed (`Store`), who computes.

`run_local` computes with this machine's cores, `run_ray` with a Ray cluster; the results are the same.

    units = [Unit("uci", "experiments.uci.unit:run", {"dataset": name, "setting": size}) for ...]
    with Store("results.db") as store, unit_bar() as bar:
        run_local(units, store, progress=bar)
        store.export_csv("uci", "results.csv")

Stop it or kill it at any time: the same call goes on with the units that are missing.
"""

from .csv_file import write_csv as write_csv
from .existing import (
    DEFAULT_STORE as DEFAULT_STORE,
    open_store as open_store,
    require_experiment as require_experiment,
)
from .ledger import Tally as Tally
from .progress import unit_bar as unit_bar
from .ray_runner import run_ray as run_ray
from .runner import Runner as Runner, run_local as run_local
from .store import Failure as Failure, Store as Store
from .unit import Unit as Unit
