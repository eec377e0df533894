"""Apache with mod_auth_openidc: a site that wants a sign-in at the hub's provider; an app that checks assertions."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import requests

from tests.cluster.certificates import Authority
from tests.machine_needs import APACHE, APACHE_MODULES
from tests.patience import patient, until
from tests.ports import free_port

HOST = "127.0.0.2"
"""Not the hub's: a browser's cookies know no ports."""
CLIENT = "wiki"
MODULES = ("mpm_event", "authn_core", "authz_core", "authz_user", "dir", "auth_openidc")
BASE = """
ServerRoot "{folder}"
ServerName {host}
Listen {host}:{port}
DefaultRuntimeDir "{folder}"
PidFile "{folder}/apache.pid"
Mutex file:{folder} default
ErrorLog "{folder}/apache.log"
DocumentRoot "{folder}/pages"
DirectoryIndex index.html
{modules}
"""
SITE = """
OIDCProviderMetadataURL {issuer}/.well-known/openid-configuration
OIDCClientID {client}
OIDCClientSecret {secret}
OIDCRedirectURI {url}/back
OIDCCryptoPassphrase {passphrase}
OIDCPKCEMethod S256
OIDCScope "openid profile"
<Location "/">
    AuthType openid-connect
    Require valid-user
</Location>
<Location "/bye.html">
    AuthType none
    Require all granted
</Location>
"""
ASSERTED = """
# Apache reads tokens from Authorization alone: the outer one puts the assertion there, whatever else came
<VirtualHost {host}:{port}>
    ProxyPass /bye.html !
    ProxyPass / http://{host}:{inner}/
    RequestHeader set Authorization "expr=Bearer %{{req:X-Sign-On-Assertion}}"
</VirtualHost>
# it takes keys by https alone, as the apps' host has it
Listen {host}:{tls}
<VirtualHost {host}:{tls}>
    SSLEngine on
    SSLCertificateFile {certificate}
    SSLCertificateKeyFile {key}
    ProxyPass /_gate/jwks.json {keys}
</VirtualHost>
Listen {host}:{inner}
<VirtualHost {host}:{inner}>
    OIDCOAuthVerifyJwksUri https://{host}:{tls}/_gate/jwks.json
    OIDCCABundlePath {authority}
    OIDCOAuthRemoteUserClaim sub
    <Location "/">
        AuthType oauth20
        <RequireAll>
            Require claim aud:{app}
            Require claim iss:{issuer}
        </RequireAll>
    </Location>
</VirtualHost>
"""


@contextmanager
def serving(folder: Path, port: int, text: str, modules: Iterable[str] = MODULES) -> Iterator[None]:
    """Apache runs while the block does: two pages, *The wiki* and *Goodbye*."""
    (folder / "pages").mkdir(parents=True)
    for name, words in (("index", "The wiki"), ("bye", "Goodbye")):
        (folder / "pages" / f"{name}.html").write_text(f"<h1>{words}</h1>")
    config = folder / "apache.conf"
    loaded = "\n".join(f"LoadModule {each}_module {APACHE_MODULES}/mod_{each}.so" for each in modules)
    config.write_text(BASE.format(folder=folder, host=HOST, port=port, modules=loaded) + text)
    with (folder / "apache.out").open("wb") as output:
        process = subprocess.Popen(
            [APACHE, "-DFOREGROUND", "-f", str(config)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip

    def answers() -> bool:
        assert process.poll() is None, (folder / "apache.out").read_text()
        try:
            return requests.get(f"http://{HOST}:{port}/bye.html", timeout=patient(5)).ok
        except requests.RequestException:
            return False

    try:
        until(answers, 30, "Apache answers")
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(patient(10))


@contextmanager
def checking_assertions(folder: Path, keys: str, app: str, issuer: str) -> Iterator[str]:
    """The app of this name, which opens to an assertion that is for it and signed by one of `keys`; its address."""
    folder.mkdir()
    authority = Authority(folder, "tests")
    certificate, key = authority.issue("apps", HOST, addresses=[HOST])
    port, inner, tls = (free_port(HOST) for _ in range(3))
    text = ASSERTED.format(
        host=HOST, port=port, inner=inner, tls=tls, keys=keys, app=app, issuer=issuer, certificate=certificate, key=key,
        authority=authority.certificate,
    )  # fmt: skip
    with serving(folder, port, text, (*MODULES, "proxy", "proxy_http", "headers", "ssl")):
        yield f"http://{HOST}:{port}/"


class Apache:
    """One site with one page, *The wiki*, and one that strangers may read, *Goodbye*."""

    def __init__(self) -> None:
        self.port = free_port(HOST)
        self.url = f"http://{HOST}:{self.port}"
        self.secret = secrets.token_hex(16)

    @property
    def client(self) -> Mapping[str, object]:
        """What its provider has to know of it, as OpenID Connect registers clients."""
        return {
            "client_id": CLIENT,
            "client_secret": self.secret,
            "redirect_uris": [f"{self.url}/back"],
            "post_logout_redirect_uris": [f"{self.url}/bye.html"],
            "backchannel_logout_uri": f"{self.url}/back?logout=backchannel",
            "backchannel_logout_session_required": True,
        }

    @property
    def sign_out(self) -> str:
        """Where its own sign-out begins."""
        return f"{self.url}/back?logout={self.url}/bye.html"

    @contextmanager
    def serving(self, folder: Path, issuer: str) -> Iterator[None]:
        """It runs while the block does. Its provider runs already."""
        text = SITE.format(
            url=self.url, issuer=issuer, client=CLIENT, secret=self.secret, passphrase=secrets.token_hex(16)
        )
        with serving(folder, self.port, text):
            yield
