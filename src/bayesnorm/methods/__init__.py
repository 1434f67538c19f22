"""One file = one method; `fit(...)` returns a posterior."""

from .mcbn import MCBN as MCBN
