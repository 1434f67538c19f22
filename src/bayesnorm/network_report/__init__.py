"""Examine a network and its data: what works with them, what it costs on this machine, and what is recommended."""

from .examining import doctor as doctor
from .report import Finding as Finding, NetworkReport as NetworkReport
