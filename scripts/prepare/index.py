"""Fetches uv's wheel with Python's standard library, and tells uv what pip is told here about the package index.

Of pip's settings (PIP_* and pip.conf) it knows index, further indexes, find-links, certificate, trusted hosts, proxy
and time limit; what uv is told itself (UV_*) comes first. Of uv it takes only a file whose hash stands in
``requirements/bootstrap.txt``.
"""

from __future__ import annotations

import base64
import configparser
import contextlib
import hashlib
import html
import io
import netrc
import os
import platform
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

from place import ROOT
from steps import Trouble


def setting(name: str) -> str:
    """pip's setting ``name`` (as ``index-url``): its environment variable, else the nearest pip.conf, else empty."""
    if from_environment := os.environ.get("PIP_" + name.upper().replace("-", "_")):
        return from_environment
    home = Path(os.environ.get("HOME") or "/")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [config / "pip" / "pip.conf", home / ".pip" / "pip.conf", "/etc/xdg/pip/pip.conf", "/etc/pip.conf"]
    for file in [os.environ.get("PIP_CONFIG_FILE") or os.devnull, *files]:
        parser = configparser.RawConfigParser()
        with contextlib.suppress(OSError, ValueError, configparser.Error):
            parser.read(file, encoding="utf-8")
        for section in ("install", "download", "global"):
            if parser.has_option(section, name):
                return parser.get(section, name).strip()
    return ""


def uv_settings() -> dict[str, str]:
    """pip's settings as uv reads them, and what every uv of ours is told."""
    certificate = setting("cert") or os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE") or ""
    links = [place if "://" in place else str(Path(place).absolute()) for place in setting("find-links").split()]
    found = {
        "UV_DEFAULT_INDEX": setting("index-url"),
        "UV_INDEX": " ".join(setting("extra-index-url").split()),
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip's; what is taken has to have the locked hash
        "UV_FIND_LINKS": ",".join(place for place in links if "://" in place or Path(place).is_dir()),
        "UV_NO_INDEX": "true" if setting("no-index") else "",
        "UV_INSECURE_HOST": " ".join(setting("trusted-host").split()),
        "UV_HTTP_TIMEOUT": setting("default-timeout") or setting("timeout"),
        "UV_SYSTEM_CERTS": "true" if ssl.get_default_verify_paths().cafile else "",
        "UV_COMPILE_BYTECODE": "true",
        "UV_PYTHON_DOWNLOADS": "never",
        "SSL_CERT_DIR" if certificate and Path(certificate).is_dir() else "SSL_CERT_FILE": certificate,
        **{name: setting("proxy") for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")},
    }
    asked = {name for name in os.environ if name.startswith("UV_")}
    return {name: value for name, value in found.items() if value and name not in asked}


def fetch_uv(folder: Path) -> None:
    """Put the locked uv for this machine into ``folder``.

    Raises:
        Trouble: the index does not answer, or has no such file.
    """
    told = {**os.environ, **uv_settings()}
    os.environ.update((name, told[name]) for name in told if not name.startswith("UV_"))  # proxy and certificate
    lock = (ROOT / "requirements" / "bootstrap.txt").read_text(encoding="utf-8")
    version = lock.partition("uv==")[2].split()[0]
    libc = "manylinux" if platform.libc_ver()[0] == "glibc" else "musllinux"
    fitting = re.compile(rf"uv-{re.escape(version)}-py3-none-\S*{libc}\S*_{platform.machine()}\.whl")
    indexes = [told.get("UV_DEFAULT_INDEX", "https://pypi.org/simple"), *told.get("UV_INDEX", "").split()]
    places = [place for place in told.get("UV_FIND_LINKS", "").split(",") if place]
    places += [] if "UV_NO_INDEX" in told else [f"{index.rstrip('/')}/uv/" for index in indexes]
    for address in (file for place in places for file in sorted(_files(place))):
        if fitting.fullmatch(urllib.parse.unquote(address.rpartition("/")[2])):  # the first is for the oldest machines
            wheel = _get(address)
            if f"sha256:{hashlib.sha256(wheel).hexdigest()}" not in lock:
                raise Trouble(f"uv {version} from the package index differs from requirements/bootstrap.txt.")
            with zipfile.ZipFile(io.BytesIO(wheel)) as packed:
                (folder / "uv").write_bytes(packed.read(f"uv-{version}.data/scripts/uv"))
            (folder / "uv").chmod(0o755)
            return
    where = " or ".join(map(_without_password, places))
    raise Trouble(f"The package index has no uv {version} for {platform.machine()} ({libc}): {where}.")


def _files(place: str) -> list[str]:
    """The addresses of what lies in a folder, or of what a page of the index (PEP 503) links to."""
    if "://" not in place:
        return [file.as_uri() for file in Path(place).glob("*.whl")]
    page = _get(place).decode("utf-8", "replace")
    links = re.findall(r"""<a\b[^>]*\bhref\s*=\s*["']([^"'#]+)""", page, re.IGNORECASE)
    return [urllib.parse.urljoin(place, html.unescape(link)) for link in links]


def _get(address: str) -> bytes:
    parts = urllib.parse.urlsplit(address)
    request = urllib.request.Request(_without_password(address), headers={"Accept": "text/html"})
    user, password = urllib.parse.unquote(parts.username or ""), urllib.parse.unquote(parts.password or "")
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        if not user and (known := netrc.netrc(os.environ.get("NETRC")).authenticators(parts.hostname or "")):
            user, _, password = known
    if user:
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {secret}")
    trust = ssl.create_default_context()
    if parts.hostname in setting("trusted-host").split():
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
            return bytes(answer.read())
    except OSError as error:
        raise Trouble(
            f"The package index {_without_password(address)} did not answer ({getattr(error, 'reason', error)}). "
            "Is there a network? Settings: PIP_INDEX_URL, PIP_CERT, the proxy, pip.conf."
        ) from None


def _without_password(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
