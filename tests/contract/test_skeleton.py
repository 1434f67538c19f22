"""CONTRIBUTING's skeleton of a new method works as it stands there, and the contract's tests take it."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
import test_methods
from every_method import each_likelihood, methods_in, variants

import bayesnorm as bn

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def skeleton(monkeypatch):
    """The skeleton's class where its text puts it, and the names in its file of tests."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    method, its_tests = BLOCK.findall(text)
    module = types.ModuleType("bayesnorm.methods.my_bn")
    module.__package__ = "bayesnorm.methods"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(method, "CONTRIBUTING.md, skeleton", "exec"), module.__dict__)
    monkeypatch.setattr(bn, "MyBN", module.MyBN, raising=False)
    tests: dict[str, object] = {}
    exec(compile(its_tests, "CONTRIBUTING.md, its tests", "exec"), tests)
    return module.MyBN, tests


def test_its_own_tests_pass(skeleton, regression):
    _, tests = skeleton
    tests["test_samples_are_mcbns_shrunk_towards_their_location"](regression)
    tests["test_shrink_must_be_positive"](-1.0)


@each_likelihood
def test_the_contract_finds_it_and_runs_on_it(skeleton, task, fitted, reference, tmp_path, monkeypatch):
    cls, _ = skeleton
    monkeypatch.setattr(bn.methods, "MyBN", cls, raising=False)
    assert cls in methods_in(bn.methods)
    (method,) = variants(cls)
    test_methods.test_shapes(method, task, fitted)
    test_methods.test_laws_of_total_variance_and_entropy(method, task, fitted)
    test_methods.test_chunked_is_unchunked_is_the_plain_loop(method, task, fitted, reference)
    test_methods.test_what_was_loaded_is_what_was_saved(method, task, fitted, tmp_path)
