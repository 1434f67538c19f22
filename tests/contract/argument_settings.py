"""Settings with numbers: methods, engines and likelihoods, which are frozen dataclasses."""

import functools

from argument_kinds import (
    AXIS,
    DF,
    FINITE_PER_UNIT,
    FROM_1,
    LEAST_0,
    LEAST_2,
    PER_UNIT,
    SAMPLES,
    Call,
    accepted,
    function,
    noise,
    number,
    seed,
    whole,
)

import bayesnorm as bn
from bayesnorm import active
from bayesnorm.theory import GaussianPrior

_states = {"states": whole(6, LEAST_2, (1, -1))}
_noise = {"axis": whole(1, AXIS, (0,))}
_variational = {
    "epochs": whole(2),
    "batch_size": whole(16, LEAST_2, (1,), none=True),
    "learning_rate": number(0.25),
    "initial_std": number(0.5),
    "delta": number(0.5),
    "kl_warmup": whole(1, LEAST_0, (-1,)),
    "kl_weight": number(0.5),
    "transform": function(),
}

CALLS = {
    # Settings: frozen dataclasses.
    "MCBN": Call(bn.MCBN, **_states),
    "MCBN around batches": Call(functools.partial(bn.MCBN, center="batch"), states=whole(6)),
    "StochasticBN": Call(bn.StochasticBN, **_states),
    "GaussianBN": Call(
        bn.GaussianBN, **_states, rank=whole(2, "None or a whole number from 1 to 5 with states=6", (0, 6), none=True)
    ),
    "DeepEnsemble": Call(bn.DeepEnsemble, members=whole(2, LEAST_2, (1,))),
    "BayesByBackprop": Call(bn.BayesByBackprop, **_variational),
    "MNF": Call(
        bn.MNF,
        **_variational,
        flows=whole(0, LEAST_0, (-1,)),
        auxiliary_flows=whole(0, LEAST_0, (-1,)),
        hidden=whole(4),
    ),
    "GroupHorseshoe": Call(bn.GroupHorseshoe, **_variational, global_scale=number(0.5)),
    "GroupNormalJeffreys": Call(bn.GroupNormalJeffreys, **_variational),
    "MonteCarlo": Call(
        bn.MonteCarlo, samples=whole(5, SAMPLES), chunk=whole(2, none=True), block_bytes=whole(100, none=True)
    ),
    "SigmaPoints": Call(bn.SigmaPoints, rank=whole(2), chunk=whole(3, none=True)),
    "Delta": Call(bn.Delta, block_bytes=whole(100)),
    "Gaussian": Call(bn.Gaussian, precision=noise(4.0), axis=whole(1, AXIS, ())),
    "Gaussian of two": Call(bn.Gaussian, precision=accepted((4.0, 2.0))),
    "Laplace": Call(bn.Laplace, scale=noise(4.0), axis=whole(1, AXIS, ())),
    "StudentT": Call(bn.StudentT, df=number(4, DF, (1,)), scale=noise(4.0), axis=whole(1, AXIS, ())),
    "HeteroscedasticGaussian": Call(bn.HeteroscedasticGaussian, scale=noise(4.0), floor=noise(0.5, (-1.0,)), **_noise),
    "HeteroscedasticLaplace": Call(bn.HeteroscedasticLaplace, scale=noise(4.0), floor=noise(0.5, (-1.0,)), **_noise),
    "HeteroscedasticStudentT": Call(
        bn.HeteroscedasticStudentT, scale=noise(4.0), df=number(4, DF, (1,)), floor=noise(0.5, (-1.0,)), **_noise
    ),
    "Categorical": Call(
        bn.Categorical, temperature=number(2), ignore_index=whole(9, "a whole number such as -100", (), none=True)
    ),
    "VarianceScaledCategorical": Call(
        bn.VarianceScaledCategorical,
        temperature=number(2),
        ignore_index=whole(9, "a whole number such as -100", (), none=True),
        slope=number(0.5, "a number from 0 to 10", (-1, 11)),
        mean=number(0.5, "a finite number", ()),
        std=number(0.5),
    ),
    "LogitNoise": Call(
        bn.LogitNoise,
        temperature=number(2),
        samples=whole(8, "a whole number from 1 to 65536"),
        ignore_index=whole(-100, "a whole number such as -100", (), none=True),
        seed=seed(),
    ),
    "BatchBALD": Call(active.BatchBALD, configurations=whole(9, FROM_1), block_bytes=whole(99, FROM_1)),
    "GaussianPrior": Call(
        lambda **numbers: vars(GaussianPrior(**numbers)),  # equal only to itself
        mean_loc=number(0.5, FINITE_PER_UNIT, ()),
        mean_std=number(2, PER_UNIT, none=True),
        std_loc=number(0.5, FINITE_PER_UNIT, ()),
        std_std=number(2, PER_UNIT),
    ),
    "MultiTask": Call(
        lambda axis, outputs: bn.MultiTask({"a": (bn.Gaussian(), outputs)}, axis=axis),
        axis=whole(-1, AXIS, ()),
        outputs=whole(2, none=True, name="tasks: outputs of 'a'"),
    ),
}
