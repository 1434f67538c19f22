"""Optimisers that are ours."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayesnorm.errors import BayesNormError
from bayesnorm.training import relative_adam


def rates(*values, **options):
    return [group["lr"] for group in relative_adam([nn.Parameter(own) for own in values], **options).param_groups]


def test_rates_are_shares_of_sizes():
    weights = torch.tensor([[3.0, 4.0], [0.0, 0.0]])  # whose mean square is 25 / 4
    assert rates(weights, 1e-3 * weights, share=0.1) == pytest.approx([0.25, 0.00025])


def test_vectors_and_what_begins_at_nothing_have_the_usual_rate():
    assert rates(torch.zeros(3), torch.full((3,), 2.0), torch.zeros(2, 2)) == pytest.approx([0.001] * 3)


def test_other_settings_are_adams():
    made = relative_adam([nn.Parameter(torch.ones(2))], betas=(0.5, 0.9))
    assert made.defaults["betas"] == (0.5, 0.9)


def test_a_share_that_is_none():
    for share in (-0.1, float("nan"), "much"):
        with pytest.raises(BayesNormError, match="share"):
            relative_adam([nn.Parameter(torch.ones(2))], share=share)
