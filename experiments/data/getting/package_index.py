"""Find files of Python packages on the index that pip is configured for.

`pip download` builds a source package before its checksum can be compared, and so runs its code. Here a file is only
downloaded; its checksum is compared before it is opened.
"""

from __future__ import annotations

import html
import http.client
import re
import subprocess
import sys
import urllib.error
import urllib.request
from urllib.parse import urldefrag, urljoin

# Seconds to wait for an answer, and bytes of the longest page that is read.
PATIENCE, LONGEST_PAGE = 20.0, 2**23


def index_addresses() -> list[str]:
    """Return the addresses of pip's package indexes."""
    settings = _run_python("-m", "pip", "config", "list")
    addresses = {kind: text.split() for kind, text in re.findall(r"\.((?:extra-)?index-url)='(.*)'", settings)}
    if "index-url" not in addresses:
        default = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
        addresses["index-url"] = _run_python("-c", default).split()
    return [address for kind in ("index-url", "extra-index-url") for address in addresses.get(kind, [])]


def find_package_file(package: str, version: str, ending: str, checksum: str | None) -> str | None:
    """Return the address of a file of a package; None if no index has it.

    Args:
        package: The name of the package.
        version: Its version.
        ending: How the file's name ends.
        checksum: The digest of the file, as "sha256:..."; None accepts the first one with this version and ending.
    """
    beginning = f"{package}-{version}".lower()
    for address in index_addresses():
        page = f"{address.rstrip('/')}/{re.sub('[-_.]+', '-', package).lower()}/"
        page += "index.html" if page.startswith("file:") else ""
        try:
            with urllib.request.urlopen(page, timeout=PATIENCE) as answer:
                text = answer.read(LONGEST_PAGE).decode("utf-8", "replace")
        except (OSError, ValueError, http.client.HTTPException):
            continue
        for link in re.findall(r"""href\s*=\s*["']([^"']+)["']""", text):
            url, digest = urldefrag(urljoin(page, html.unescape(link)))
            name = url.rpartition("/")[2].lower().replace("_", "-")
            is_other = checksum is not None and digest.startswith("sha256=") and digest[7:] != checksum[7:]
            if re.match(rf"{re.escape(beginning)}(?![\w]|\.\d)", name) and name.endswith(ending) and not is_other:
                return url
    return None


def _run_python(*arguments: str) -> str:
    """Return what a Python process prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
