"""The live page of `bayesnorm demo`: one HTML file, in which networks train in JavaScript."""

from pathlib import Path

PAGE = Path(__file__).with_name("demo.html")
"""The page, as `python -m bayesnorm.demo.build` writes it."""
