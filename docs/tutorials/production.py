"""The tutorial on data that change: `python docs/tutorials/production.py`."""

# %% [markdown]
# # My model is in production and the data change
#
# A classifier sorts parts by the signals of 12 sensors. It was tested, it works, and nobody labels the parts any more. This tutorial shows how to notice that the data change, to
# estimate how wrong the model has become, to decide whether to adapt it, and to let it follow a stream. All code runs as it stands, in seconds on a CPU. (The
# outputs are from torch 2.13 on an AMD EPYC; on other machines they differ slightly.)
#
# ## 1. Before you deploy: fit, calibrate, save
#
# Five kinds of parts, 12 sensors. The network has batch-norm layers, as most networks do.

# %%
import torch
from torch import nn

import bayesnorm as bn

centers = torch.randn(5, 12, generator=torch.Generator().manual_seed(7))


def measure(kinds, seed):
    """The sensors' signals for parts of these kinds."""
    return centers[kinds] + torch.randn(len(kinds), 12, generator=torch.Generator().manual_seed(seed))


torch.manual_seed(0)
network = nn.Sequential(
    nn.Linear(12, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 5)
)
every_kind = torch.arange(2000) % 5
x_train, x_test = measure(every_kind, 1), measure(every_kind, 2)
bn.training.train(network, (x_train, every_kind), loss=nn.functional.cross_entropy, epochs=30, batch_size=50)

posterior = bn.MCBN(batch_size=64).fit(network.eval(), x_train, bn.Categorical())
posterior = bn.calibrate(posterior, x_test, every_kind)
posterior.save("sorter.bayesnorm")

# %% [markdown]
# `calibrate` needs labelled data that were not used for training. It also records the usual error, which later estimates are compared with. The file holds no data.
#
# ## 2. Watch the stream
#
# `DriftMonitor` raises a false alarm on at most 5 % of all streams, however long they are and however often you look.

# %%
from bayesnorm.shift import AdaptiveStream, DriftMonitor

monitor = DriftMonitor(posterior, level=0.05)
for batch in measure(every_kind[:640], 3).split(64):  # a good day
    assert not monitor.update(batch).alarm


def recalibrated(x):
    """What the sensors say after somebody has changed the amplifiers."""
    return 0.5 * x + 1.0


for batch in recalibrated(measure(every_kind[:640], 4)).split(64):
    state = monitor.update(batch)
    if state.alarm:
        print(state.drift.summary())
        break

# %% [markdown]
# The alarm says what changed, and how wrong the network has become. The true error on these 64 parts is 67 %. The network cannot know it, because there are no labels. The estimate comes from the network with adapted statistics: how probable does it
# find the answers of the network as it is?
#
# ## 3. What has changed? Three cases
#
# | `drift(...).cause` | example | what to do |
# |---|---|---|
# | `"inputs"` | new amplifiers, a dirty lens, another supplier of sensors | Adapt, or repair the sensor. |
# | `"class mix"` | an hour of one kind of part only | Nothing. The network is as good as before. |
# | `"inputs and class mix"` | both | Adapt. The estimated mix is taken into account. |
#
# A stream of two kinds of parts differs from the training data, but nothing is wrong with it:

# %%
two_kinds = torch.arange(256) % 2
result = bn.drift(posterior, measure(two_kinds, 5))
print(result.cause, [round(share, 2) for share in result.class_mix or ()])
print(result.expected_error)

# %% [markdown]
# ## 4. Adapt or not?
#
# `bn.adapt` decides by itself, and says why:

# %%
for x in (measure(two_kinds, 6), recalibrated(measure(two_kinds, 6))):
    print(bn.adapt(posterior, x).decision)

# %% [markdown]
# You have to decide what no statistic shows. Go down this list:
#
# 1. **Did the relation between signals and kinds change?** For example, a kind was redesigned. Then no adaptation helps. Label new data and train again.
# 2. **Are there things that training never saw?** Every image of a new kind gets one of the old labels. Look at [unknown inputs](../how_to/act_on_uncertainty.md#6-unknown-inputs).
# 3. **Is it a classifier with one class per example?** If not, targets that differ from those in training look like a shift. Adapt only if you know that the measurement has changed.
# 4. **Is the estimated error after adapting low enough for you?** If not, stop the line and label some data. `adapt` moves statistics, not weights.
# 5. Otherwise, adapt: to one batch with `bn.adapt`, or continuously with `AdaptiveStream`.
#
# ## 5. Follow the stream
#
# `AdaptiveStream` does all of this for every batch: it predicts, adapts while that lowers the estimated error, notices when a shift changes, and returns to the network's own statistics
# when it ends.

# %%
stream = AdaptiveStream(posterior)
day = [
    ("usual", measure(every_kind[:256], 10)),
    ("recalibrated", recalibrated(measure(every_kind[:256], 11))),
    ("repaired", measure(every_kind[:256], 12)),
]
for name, signals in day:
    wrong = []
    for number, batch in enumerate(signals.split(64)):
        prediction = stream.predict(batch)
        wrong.append(prediction.label != every_kind[64 * number :][: len(batch)])
    own = network(signals).argmax(1) != every_kind[:256]
    print(
        f"{name:13s} error {torch.cat(wrong).float().mean():.3f} (without adapting {own.float().mean():.3f})",
        stream.decision,
    )
stream.save("stream.bayesnorm")

# %% [markdown]
# Read `stream.decision` and `stream.expected_error` after each batch, and log them. To continue after a restart, use `AdaptiveStream.load("stream.bayesnorm", posterior)`.
#
# ## 6. Check the estimates when labels arrive
#
# An estimated error is no measured error. Label a hundred examples now and then, in particular after an alarm. If the true error lies far outside of the interval,
# the relation between inputs and targets has changed, which nothing here can see.
#
# ## What about regression and tables?
#
# `drift` and `DriftMonitor` work for all of them. See [drift in tables](../how_to/tables_drift.md) for what can be estimated there. `adapt` works for regression, but cannot tell
# other targets from other measurements, so the decision is yours. `AdaptiveStream` refuses networks other than classifiers for this reason.
#
# More: [Detect drift and adapt to it](../how_to/drift.md), [how it works](../explanation/drift_and_adaptation.md), [measurements](../benchmarks/shift.md).
