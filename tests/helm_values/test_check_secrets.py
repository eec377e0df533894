"""``helm check`` never repeats a value that may be a secret: its answers go into tickets, chats and logs of a CI.

Values of any shape stand where secrets do, each with one word in it that must not come out, in text and in JSON. Not
here: settings that are told by their value because they hold none (a folder, a port, a class's name).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from hub_extensions.tools.cli import main
from tests.examples import many
from tests.hubs import ROOT

BASE = str(ROOT / "helm-values" / "gpu.yaml")
WORD = "hunter2-never-told"
PLACES = (
    "hub.config.GenericOAuthenticator",
    "hub.config.GenericOAuthenticator.client_secret",
    "hub.config.LTI11Authenticator.consumers",
    "hub.config.CryptKeeper.keys",
    "hub.config.DummyAuthenticator.password",
    "hub.config.JupyterHub.cookie_secret",
    "hub.config.JupyterHub.db_url",
    "hub.config.JupyterHub.services",
    "hub.config.JupyterHub.load_roles",
    "hub.config.KubeSpawner.environment",
    "hub.config.KubeSpawner.args",
    "hub.config.GpuKubeSpawner.environment",
    "hub.config.GpuKubeSpawner.gpu_hub_secret",
    "hub.config.GpuSpawnerMixin.gpu_hub_secret",
    "hub.config.GpuService",
    "hub.config.GpuService.database_url",
    "hub.config.GpuService.metrics_token",
    "hub.config.GpuService.prometheus_token",
    "hub.config.GpuService.prometheus_url",
    "hub.config.GpuService.url",
    "hub.config.GpuCluster.service_connect_url",
    "hub.extraConfig",
    "hub.extraConfig.own",
    "hub.extraConfig.zzz-last",
    "hub.extraEnv",
    "hub.extraEnv.PASSWORD",
    "hub.extraEnv.JUPYTERHUB_GPU_DATABASE_URL",
    "hub.extraFiles",
    "hub.extraFiles.own",
    "hub.extraFiles.own.stringData",
    "hub.extraFiles.own.data",
    "hub.services",
    "hub.services.gpu",
    "hub.services.own",
    "hub.services.own.apiToken",
    "hub.services.own.command",
    "hub.loadRoles.own",
    "hub.db.url",
    "hub.db.password",
    "hub.cookieSecret",
    "hub.existingSecret",
    "imagePullSecret.password",
    "proxy.secretToken",
    "proxy.chp.extraEnv",
    "proxy.chp.extraEnv.CONFIGPROXY_SSL_KEY_PASSPHRASE",
    "proxy.chp.extraCommandLineFlags",
    "proxy.https.manual.key",
    "singleuser.extraEnv",
    "singleuser.extraEnv.HTTP_PROXY",
    "singleuser.extraFiles.own",
    "singleuser.cmd",
)
"""Where texts stand that nobody but their owner should read."""

TEXTS = st.sampled_from(
    [
        WORD,
        f"c.JupyterHub.cookie_secret = '{WORD}'",
        f"this is no Python: {WORD}",
        f"c.JupyterHub.spawner_class = {WORD!r}",
        f"postgresql://gpu:{WORD}@db:port/gpu",
        f"http://gpu:{WORD}@prometheus:9090/?x",
        f"{WORD};{WORD}",
        f"{WORD}\n",
    ]
)
# no "name" among them: what stands beside it is how an entry of a list is called, and is told
NAMES = st.sampled_from(["key", "value", "scopes", "url", "command", "mountPath", "data", "apiToken", "other"])
SHAPES = st.recursive(
    TEXTS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2), st.dictionaries(NAMES, inner, min_size=1, max_size=2)
    ),
    max_leaves=4,
)
ANOTHER = st.sampled_from([None, "another", ["another"], {}, {"another": "another"}, 7, True])


def tree_of(values: dict[str, Any]) -> dict[str, Any]:
    """Values at dotted keys, as one tree; a longer key takes the place of what stands above it."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *above, last = key.split(".")
        place = tree
        for name in above:
            inner = place.get(name)
            if not isinstance(inner, dict):
                inner = place[name] = {}
            place = inner
        place[last] = copy.deepcopy(value)
    return tree


def said(*files: Path, more: tuple[str, ...] = ("--json",)) -> str:
    words = [word for file in (BASE, *files) for word in ("-f", str(file))]
    answer = CliRunner().invoke(main, ["helm", "check", *words, *more], catch_exceptions=False)
    return answer.output + answer.stderr


@pytest.mark.whole
@pytest.mark.slow
@many(80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(PLACES), SHAPES, min_size=1, max_size=3), ANOTHER)
@example({"hub.config.CryptKeeper.keys": [WORD]}, ["another"])
@example({"hub.config.CryptKeeper.keys": f"{WORD};{WORD}"}, None)
@example({"hub.config.GpuService.database_url": {"a": WORD}}, None)
@example({"hub.config.GenericOAuthenticator": WORD}, None)
@example({"hub.extraEnv": WORD}, None)
@example({"hub.extraFiles.own": WORD}, None)
@example({"hub.services.gpu": [WORD]}, None)
def test_a_secret_of_any_shape_is_not_repeated(tmp_path: Path, secret: dict[str, Any], after: object) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(json.dumps(tree_of(secret)))
    two.write_text(json.dumps(tree_of(dict.fromkeys(secret, after))))
    assert WORD not in said(one, more=())
    assert WORD not in said(one, two), "replaced by another"
    assert WORD not in said(two, one), "in the place of another"


NO_YAML = [*(f"{sign}{WORD}" for sign in ("!", "!!int ", "!!bool ", "*", "%", "@", "'", "[")), f"{WORD}: : x"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["hub.db.password", "hub.config.CryptKeeper.keys", "proxy.secretToken"])
@pytest.mark.parametrize("written", NO_YAML)
def test_nor_is_one_that_is_no_yaml(tmp_path: Path, place: str, written: str) -> None:
    file = tmp_path / "values.yaml"
    *above, last = place.split(".")
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(above)]
    file.write_text("\n".join([*lines, f"{'  ' * len(above)}{last}: {written}", ""]))
    assert WORD not in said(file)
    assert "is not YAML" in said(file, more=())
    assert WORD not in said(file, more=())
