"""Marks that tests of several packages carry."""

import os

import pytest

takes_long = pytest.mark.skipif(not os.environ.get("BAYESNORM_LONG_TESTS"), reason="long: BAYESNORM_LONG_TESTS=1")
"""For what takes seconds and has a quicker neighbour; `BAYESNORM_LONG_TESTS=1 make test` runs it too."""
