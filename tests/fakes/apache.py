"""An Apache whose page wants a sign-in at the same provider as the hub (mod_auth_openidc), on an address of its own."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.machine_needs import APACHE, APACHE_MODULES
from tests.patience import patient, until
from tests.ports import free_port

HOST = "127.0.0.2"
"""Not the hub's: a browser's cookies know no ports."""
CLIENT = "wiki"
MODULES = ("mpm_event", "authn_core", "authz_core", "authz_user", "dir", "auth_openidc")
CONFIG = """
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
        (folder / "pages").mkdir(parents=True)
        for name, words in (("index", "The wiki"), ("bye", "Goodbye")):
            (folder / "pages" / f"{name}.html").write_text(f"<h1>{words}</h1>")
        config = folder / "apache.conf"
        config.write_text(
            CONFIG.format(
                folder=folder, host=HOST, port=self.port, url=self.url, issuer=issuer, client=CLIENT,
                secret=self.secret, passphrase=secrets.token_hex(16),
                modules="\n".join(f"LoadModule {each}_module {APACHE_MODULES}/mod_{each}.so" for each in MODULES),
            )
        )  # fmt: skip
        with (folder / "apache.out").open("wb") as output:
            process = subprocess.Popen(
                [APACHE, "-DFOREGROUND", "-f", str(config)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        try:
            until(lambda: self._answers(process, folder), 30, "Apache answers")
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(patient(10))

    def _answers(self, process: subprocess.Popen[bytes], folder: Path) -> bool:
        assert process.poll() is None, (folder / "apache.out").read_text()
        try:
            return requests.get(f"{self.url}/bye.html", timeout=patient(5)).ok
        except requests.RequestException:
            return False
