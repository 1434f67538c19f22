"""Active learning: acquisition functions that select unlabelled examples, and a loop that labels them.

`bald(predictive)` and the other scores return one number per example, higher if its label is more informative.
`BatchBALD`, `VarianceReduction` and `Random` choose a whole batch. `ActiveLearner` takes both kinds.
"""

from .acquisitions import (
    Acquisition as Acquisition,
    BatchAcquisition as BatchAcquisition,
    GreedyBatch as GreedyBatch,
    Random as Random,
    bald as bald,
    choose as choose,
    entropy as entropy,
    epistemic_variance as epistemic_variance,
    predictive_variance as predictive_variance,
)
from .batch_acquisitions import (
    BatchBALD as BatchBALD,
    VarianceReduction as VarianceReduction,
    batch_bald as batch_bald,
    greedy_variance_reduction as greedy_variance_reduction,
    variance_reduction as variance_reduction,
)
from .learner import ActiveLearner as ActiveLearner
