"""The choices that training left open, made on validation data."""

from .calibrate import calibrate as calibrate
