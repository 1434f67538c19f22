"""Experiments of many parts: what to compute (`Unit`), what was computed (`Store`), who computes (`run_local`).

    units = [Unit("uci", "bayesnorm.experiments.uci:run_unit", {"data": name, "seed": seed}) for ...]
    with Store("results.db") as store, unit_bar() as bar:
        run_local(units, store, progress=bar)
        store.export_csv("uci", "results.csv")

Stop it or kill it at any time: the same call goes on with the units that are missing.
"""

from .progress import unit_bar as unit_bar
from .runner import Runner as Runner, Tally as Tally, run_local as run_local
from .store import Failure as Failure, Store as Store
from .unit import Unit as Unit
