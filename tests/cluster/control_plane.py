"""A Kubernetes control plane of real programs: etcd, API server, scheduler and controller manager, on free ports.

    with ControlPlane().start(folder) as cluster:
        cluster.apply(manifest)
        kubernetes.client.CoreV1Api(cluster.client()).list_node()

RBAC is on, and Pod Security is enforced where a namespace asks for it. It has no nodes: see ``played_nodes.py`` and
``real_node.py``. ``ControlPlane.existing(kubeconfig)`` is somebody else's cluster: its daemons are not ours to stop.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import requests
import yaml
from kubernetes import client, config

from tests.cluster.certificates import Authority, signing_key
from tests.cluster.daemons import Daemon, DaemonEnded, Daemons
from tests.cluster.programs.build import programs
from tests.patience import patient
from tests.ports import free_ports

START_SECONDS = 60.0
SERVICES = "10.213.0.0/16"
FIRST_SERVICE = "10.213.0.1"
TOKEN_SECONDS = 24 * 3600
SYNCED = "application/apply-patch+yaml"


class ControlPlane:
    """See the top of this file. ``url``, ``kubeconfig`` (an admin's) and ``ca`` are there once it has started."""

    etcd: Daemon
    api_server: Daemon
    scheduler: Daemon
    controller_manager: Daemon

    def __init__(self) -> None:
        self.url = ""
        self.address = ""
        self.kubeconfig = Path()
        self.ca = Path()
        self.authority: Authority | None = None
        self._folder = Path()
        self._daemons = Daemons()
        self._session = requests.Session()
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}
        self._ours = True

    @classmethod
    def existing(cls, kubeconfig: Path, folder: Path) -> ControlPlane:
        """The cluster of this kubeconfig, as its current context says; what is written goes into ``folder``."""
        cluster = cls()
        cluster._ours = False
        cluster._folder = folder
        cluster.kubeconfig = kubeconfig
        settings = config.new_client_from_config(str(kubeconfig)).configuration
        cluster.url = settings.host.rstrip("/")
        cluster.ca = Path(settings.ssl_ca_cert or "")
        cluster._session.verify = settings.ssl_ca_cert or settings.verify_ssl
        cluster._session.trust_env = False  # REQUESTS_CA_BUNDLE would replace the cluster's own authority
        if settings.cert_file:
            cluster._session.cert = (settings.cert_file, settings.key_file)
        if token := settings.get_api_key_with_prefix("authorization"):
            cluster._session.headers["Authorization"] = token
        return cluster

    def __enter__(self) -> ControlPlane:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(
        self,
        folder: Path,
        *,
        address: str = "127.0.0.1",
        grace_seconds: int = 40,
        api_server_flags: Sequence[str] = (),
        controllers: bool = True,
    ) -> ControlPlane:
        """Start all four and wait until they are ready. Keys, data and logs go into ``folder``.

        ``address``: where the API server listens (a bridge's, so that pods reach it). ``grace_seconds``: how long after
        its last sign of life a node is taken for lost. ``controllers``: with scheduler and controller manager; without
        them nothing is placed, and no namespace is ready for pods.

        Raises:
            DaemonEnded: one did not start, with the end of its log; nothing of the others is left running.
        """
        try:
            self._start(folder, address, grace_seconds, api_server_flags, controllers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all four; an existing cluster is left as it is."""
        self._daemons.stop()
        self._session.close()

    def client(self) -> client.ApiClient:
        """A client of the official package, with an admin's rights; close it, or use it with ``with``."""
        return client_of(self.kubeconfig)

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", *, user: str = ""
    ) -> Any:
        """One request as admin, or as that ``user``: ``call("GET", "/api/v1/nodes")``. Gives the JSON answer.

        Raises:
            requests.HTTPError: the API server refused; the text has its reason.
        """
        data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        headers = {"Content-Type": content_type} | ({"Impersonate-User": user} if user else {})
        answer = self._session.request(method, self.url + path, data=data, headers=headers, timeout=patient(60))
        if not answer.ok:
            raise requests.HTTPError(f"{method} {path}: {answer.status_code} {answer.text[:600]}", response=answer)
        return answer.json()

    def apply(self, manifests: str | Path, namespace: str = "default") -> list[Any]:
        """Create or change the objects of a YAML text or file; gives them as the API server has them now."""
        text = manifests.read_text(encoding="utf-8") if isinstance(manifests, Path) else manifests
        return [self._apply_one(one, namespace) for one in yaml.safe_load_all(text) if one]

    def kubeconfig_for(self, service_account: str, namespace: str) -> Path:
        """A kubeconfig with a token of this ServiceAccount: whoever uses it has exactly the rights RBAC gives it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        token = self.call("POST", path, asked)["status"]["token"]
        return self._write_kubeconfig(f"{namespace}-{service_account}", {"token": token}, namespace)

    def kubeconfig_for_user(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate: a node's (``system:node:<name>``, ``system:nodes``) or a person's."""
        if self.authority is None:
            raise RuntimeError("certificates are issued by a control plane of ours only")
        file = user.replace(":", "-")
        certificate, key = self.authority.issue(file, user, groups=groups)
        return self._write_kubeconfig(file, {"client-certificate": str(certificate), "client-key": str(key)})

    def restart_api_server(self, *, crash: bool = False, noticed: Callable[[], object] = bool) -> None:
        """End the API server, with every watch on it, and start it again on the same port; wait until it is ready.

        ``noticed``: is called before it starts again, and waits for whoever has to find it gone: its port is there
        again at once.
        """
        if crash:
            self.api_server.kill()
        else:
            self.api_server.stop(patience=2)  # with watches open it would take its time
        noticed()
        self.api_server.start()
        self.until_ready()

    def until_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the API server says that it is ready."""
        self.api_server.until(lambda: self._answers("/readyz"), seconds, "ready")

    def _start(self, folder: Path, address: str, grace: int, flags: Sequence[str], controllers: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.address = folder, address
        built = programs("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
        self._certificates(address)
        (peers, store), (api,) = free_ports(2), free_ports(1, address)
        manager, scheduler = free_ports(2)
        self.url = f"https://{address}:{api}"
        self.kubeconfig = self.kubeconfig_for_user("admin", ["system:masters"])
        self._session.verify = str(self.ca)
        self._session.cert = self._certificate_of("admin")
        self._session.trust_env = False

        def begin(name: str, words: Sequence[str]) -> Daemon:
            return self._daemons.start(name, [built / name, *words], folder / f"{name}.log")

        self.etcd = begin("etcd", self._etcd_flags(store, peers))
        self.api_server = begin("kube-apiserver", [*self._api_server_flags(store, api), *flags])
        self.until_ready()
        if not controllers:
            return
        self.controller_manager = begin("kube-controller-manager", self._manager_flags(manager, grace))
        self.scheduler = begin("kube-scheduler", self._scheduler_flags(scheduler))
        for daemon, port in ((self.controller_manager, manager), (self.scheduler, scheduler)):
            daemon.until(lambda at=port: _says_ok(f"https://127.0.0.1:{at}/healthz"), START_SECONDS, "ready")  # type: ignore[misc]
        if dead := self._daemons.dead():
            raise DaemonEnded(f"{dead[0].name} ended: {dead[0].last_words()}")

    def _certificates(self, address: str) -> None:
        folder = self._folder / "keys"
        self.authority = Authority(folder, "the tests' cluster")
        self.ca = self.authority.certificate
        names = ["127.0.0.1", address, FIRST_SERVICE, "localhost", "kubernetes.default.svc", "kubernetes.default"]
        self.authority.issue("api", "kube-apiserver", addresses=list(dict.fromkeys(names)))
        self.authority.issue("to-kubelet", "kube-apiserver-kubelet-client", groups=["system:masters"])
        signing_key(folder)
        Authority(folder / "front", "the tests' aggregation").issue("client", "front-proxy-client")

    def _certificate_of(self, file: str) -> tuple[str, str]:
        return str(self._folder / "keys" / f"{file}.crt"), str(self._folder / "keys" / f"{file}.key")

    def _etcd_flags(self, port: int, peers: int) -> list[str]:
        own, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
        return [
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={own}",
            f"--advertise-client-urls={own}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ]

    def _api_server_flags(self, store: int, port: int) -> list[str]:
        keys = self._folder / "keys"
        return [
            f"--etcd-servers=http://127.0.0.1:{store}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={port}",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction,PodSecurity",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            f"--client-ca-file={self.ca}",
            f"--tls-cert-file={keys / 'api.crt'}",
            f"--tls-private-key-file={keys / 'api.key'}",
            f"--kubelet-client-certificate={keys / 'to-kubelet.crt'}",
            f"--kubelet-client-key={keys / 'to-kubelet.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={keys / 'service-accounts.key'}",
            f"--requestheader-client-ca-file={keys / 'front' / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={keys / 'front' / 'client.crt'}",
            f"--proxy-client-key-file={keys / 'front' / 'client.key'}",
        ]

    def _manager_flags(self, port: int, grace: int) -> list[str]:
        keys = self._folder / "keys"
        own = self.kubeconfig_for_user("system:kube-controller-manager")
        return [
            *_common_flags(own, port),
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={keys / 'service-accounts.key'}",
            f"--root-ca-file={self.ca}",
            f"--cluster-signing-cert-file={self.ca}",
            f"--cluster-signing-key-file={keys / 'ca.key'}",
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={grace}s",
        ]

    def _scheduler_flags(self, port: int) -> list[str]:
        return _common_flags(self.kubeconfig_for_user("system:kube-scheduler"), port)

    def _write_kubeconfig(self, name: str, user: dict[str, str], namespace: str = "default") -> Path:
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": "tests", "user": name, "namespace": namespace}}],
            "current-context": name,
        }
        path = self._folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(made), encoding="utf-8")
        return path

    def _answers(self, path: str) -> bool:
        try:
            return self._session.get(self.url + path, timeout=patient(5)).text == "ok"
        except requests.RequestException:
            return False

    def _apply_one(self, manifest: dict[str, Any], namespace: str) -> Any:
        version, kind, about = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        plural, namespaced = self._kind(version, kind)
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if namespaced:
            root += f"/namespaces/{about.get('namespace', namespace)}"
        path = f"{root}/{plural}/{about['name']}?fieldManager=tests&force=true"
        return self.call("PATCH", path, json.dumps(manifest), SYNCED)

    def _kind(self, version: str, kind: str) -> tuple[str, bool]:
        """A kind's plural, and whether its objects lie in namespaces; asked again until a new kind is served."""
        deadline = time.monotonic() + patient(10)
        while (version, kind) not in self._kinds:
            try:
                served = self.call("GET", f"/apis/{version}" if "/" in version else f"/api/{version}")["resources"]
            except requests.HTTPError:
                served = []
            for one in served:
                if "/" not in one["name"]:
                    self._kinds[version, one["kind"]] = (one["name"], one["namespaced"])
            if (version, kind) not in self._kinds:
                if time.monotonic() > deadline:
                    raise LookupError(f"the API server does not serve {kind} of {version}")
                time.sleep(0.1)
        return self._kinds[version, kind]


def client_of(kubeconfig: Path) -> client.ApiClient:
    """A client of the official package for a kubeconfig, that goes through no proxy of the environment."""
    made = config.new_client_from_config(str(kubeconfig))
    settings = made.configuration
    if settings.proxy:
        settings.proxy = None
        made.close()
        made = client.ApiClient(settings)
    return made


def _common_flags(kubeconfig: Path, port: int) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
    ]


def _says_ok(url: str) -> bool:
    """Whether a daemon's own health page says ok; its certificate is one that it made for itself."""
    any_certificate = ssl.create_default_context()
    any_certificate.check_hostname = False
    any_certificate.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=any_certificate)
    )
    try:
        with opener.open(url, timeout=patient(5)) as answer:
            return bool(answer.read() == b"ok")
    except OSError:
        return False
