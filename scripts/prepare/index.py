"""Fetches pip's wheel with Python's standard library, for machines whose Python came without pip or venv.

Reads the same settings pip reads (PIP_* and pip.conf: index, find-links, certificate, proxy), and takes only the file
whose hash stands in ``requirements/bootstrap.txt``. Not an installer: pip does the rest itself.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

from place import ROOT
from steps import Trouble

DEFAULT_INDEX = "https://pypi.org/simple"


def setting(name: str) -> str | None:
    """pip's setting ``name`` (as ``index-url``): its environment variable, else the nearest pip.conf."""
    from_environment = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if from_environment:
        return from_environment
    for file in _configuration_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (OSError, configparser.Error):
            continue
        for section in ("install", "download", "global"):
            if parser.has_option(section, name):
                return parser.get(section, name).strip()
    return None


def _configuration_files() -> list[Path]:
    named = os.environ.get("PIP_CONFIG_FILE")
    home = Path(os.environ.get("HOME") or "/")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    system = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")]
    return [*([Path(named)] if named else []), config / "pip" / "pip.conf", home / ".pip" / "pip.conf", *system]


def fetch_pip(folder: Path) -> Path:
    """Put the locked pip wheel into ``folder`` and return its path.

    Raises:
        Trouble: the index does not answer, or has no such file.
    """
    version, hashes = _locked_pip()
    name = f"pip-{version}-py3-none-any.whl"
    for found in _find_links():
        if (found / name).is_file():
            return _keep((found / name).read_bytes(), hashes, folder / name)
    index = (setting("index-url") or DEFAULT_INDEX).rstrip("/")
    page = _get(f"{index}/pip/")
    links = _Links()
    links.feed(page.decode("utf-8", "replace"))
    for link in links.found:
        address, _, _ = urllib.parse.urljoin(f"{index}/pip/", link).partition("#")
        if urllib.parse.unquote(address.rsplit("/", 1)[-1]) == name:
            return _keep(_get(address), hashes, folder / name)
    raise Trouble(f"The package index {_without_password(index)} has no {name}.")


def _locked_pip() -> tuple[str, set[str]]:
    text = (ROOT / "requirements" / "bootstrap.txt").read_text(encoding="utf-8")
    match = re.search(r"^pip==(\S+)((?:\s|\\|--hash=sha256:[0-9a-f]+)*)", text, re.MULTILINE)
    if match is None:
        raise Trouble("requirements/bootstrap.txt names no pip.")
    return match[1], set(re.findall(r"sha256:([0-9a-f]+)", match[2]))


def _find_links() -> list[Path]:
    return [Path(word) for word in (setting("find-links") or "").split() if "://" not in word]


def _keep(content: bytes, hashes: set[str], target: Path) -> Path:
    if hashlib.sha256(content).hexdigest() not in hashes:
        raise Trouble(f"{target.name} from the package index differs from requirements/bootstrap.txt.")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


class _Links(HTMLParser):
    """The addresses on a page of the index (PEP 503)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep where each link goes."""
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _get(address: str) -> bytes:
    parts = urllib.parse.urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(urllib.parse.urlunsplit(parts._replace(netloc=host)))
    if parts.username:
        secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(secret.encode()).decode())
    request.add_header("Accept", "text/html")
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=_trust(parts.hostname or ""))]
    if proxy := setting("proxy"):
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise Trouble(
            f"The package index {_without_password(address)} did not answer ({reason}). "
            "Is there a network? Settings: PIP_INDEX_URL, PIP_CERT, the proxy, pip.conf."
        ) from None


def _trust(host: str) -> ssl.SSLContext:
    certificate = setting("cert") or os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE")
    context = ssl.create_default_context()
    if certificate:
        where = Path(certificate)
        if where.is_dir():
            context.load_verify_locations(capath=certificate)
        else:
            context.load_verify_locations(cafile=certificate)
    if host in (setting("trusted-host") or "").split():
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _without_password(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
