"""The global random generators are restored, whenever an interrupt arrives."""

import itertools
import random
import sys

import numpy as np
import pytest
import torch

from bayesnorm.network import isolated_randomness, isolated_torch_randomness, restoring


def global_states():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002


@pytest.mark.parametrize("isolate", [isolated_randomness, isolated_torch_randomness])
def test_an_interrupt_after_any_call_does_not_change_the_global_generators(isolate):
    before = global_states()
    for step in itertools.count():
        events = itertools.count()

        def interrupt(frame, event, _, step=step, events=events):
            """Python delivers signals when a function begins and after each call."""
            inner, outer = (part and part.f_code.co_filename == restoring.__file__ for part in (frame, frame.f_back))
            moment = (inner and event in ("call", "c_return")) or (outer and event in ("call", "return"))
            if moment and next(events) == step:
                raise KeyboardInterrupt

        interrupted = False
        sys.setprofile(interrupt)
        try:
            with isolate(0):
                pass
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.setprofile(None)
        assert global_states() == before, f"interrupted at event {step}"
        if not interrupted:
            break
    assert step > 5
