"""The command line: what a person reads, what a program reads, and the exit codes."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import date, datetime, timezone
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pydantic import TypeAdapter
from traitlets.config import Config

from hub_extensions import __version__
from hub_extensions.adapters.kubernetes import cluster_view, watch
from hub_extensions.adapters.kubernetes.reflector import Pace
from hub_extensions.adapters.prometheus import DcgmReading
from hub_extensions.adapters.service.signatures import Signatures, SignatureVerdict, VerifiedRequest
from hub_extensions.adapters.store import Store
from hub_extensions.adapters.store.copies import copy_of_today
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.gpu.dcgm import DcgmUse
from hub_extensions.core.messages import CulledServer, CullingView, FailedStop
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.signing import ANSWER_HEADER, SIGN_AGAIN
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.cli import main
from hub_extensions.tools.doctor.config import grace, prometheus_finding
from hub_extensions.tools.doctor.service import disk_of, evidence, failed_stops
from tests.fakes.curl_client import NAME as CURL
from tests.fakes.curl_client import curl_configured
from tests.fakes.kubernetes_api import NODES, PODS, ApiServerAsTold
from tests.fakes.prometheus import PrometheusAsTold
from tests.patience import patient

pytestmark = pytest.mark.slow

SECRET = "s" * 64
TOKEN = "a-token-of-the-hub"


@pytest.fixture(autouse=True)
def a_short_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that may not be read, or does not answer, is waited for a moment only."""
    monkeypatch.setattr(cluster_view, "SOON_SECONDS", patient(0.4))
    monkeypatch.setattr(watch, "ClusterWatch", partial(watch.ClusterWatch, pace=Pace(doubted=0.05)))


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def findings(*words: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    result = run("doctor", "--json", *words)
    found: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(result.output):
        found.setdefault(finding["check"], []).append(finding)
    return result.exit_code, found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A hub's configuration that is right, with simulated GPUs."""
    return write(tmp_path, 'c.GpuOffers.simulate = "lab-a100"')


def write(folder: Path, *lines: str, call: bool = True) -> Path:
    path = folder / "jupyterhub_config.py"
    text = ["c = get_config()", f"c.GpuService.state_dir = {str(folder / 'gpu-state')!r}"]
    text += ['c.JupyterHub.spawner_class = "gpu-demo"', *lines]  # needs no accounts: who tests need not be root
    if call:
        text += ["from hub_extensions import configure", "configure(c)"]
    path.write_text("\n".join(text) + "\n")
    return path


def test_the_version_is_the_packages() -> None:
    assert __version__ in run("--version").output


def test_the_doctor_finds_a_damaged_or_emptied_store_and_points_to_the_way_back(config: Path, tmp_path: Path) -> None:
    state = tmp_path / "gpu-state"
    state.mkdir(mode=0o700)
    file = state / "gpu.sqlite"
    Store.open(f"sqlite:///{file}").close()
    (found,) = findings("--config", str(config))[1]["database"]
    assert found["state"] == "ok" and found["text"].endswith("There is no copy of it yet.")
    copy_of_today(file, state, date(2026, 11, 23))
    (found,) = findings("--config", str(config))[1]["database"]
    assert found["state"] == "ok" and found["text"].endswith("Its last copy is gpu.copy-2026-11-23.sqlite.")
    whole = file.read_bytes()
    file.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    code, found_now = findings("--config", str(config))
    assert (code, found_now["database"][0]["state"]) == (1, "problem")
    assert f"{file} is damaged" in found_now["database"][0]["text"]
    assert f"jupyterhub-gpu store restore --state-dir {state}" in found_now["database"][0]["fix"]
    file.write_bytes(b"")
    (found,) = findings("--config", str(config))[1]["database"]
    assert found["state"] == "warning" and "gpu.copy-2026-11-23.sqlite" in found["text"]


# ------------------------------------------------------------------ offers


def test_offers_of_the_lab_machine_say_what_they_really_give() -> None:
    listed = {offer["id"]: offer for offer in json.loads(run("offers", "--json", "--layout", "lab-a100").output)}
    assert set(listed) == {"cpu", "mig-1g.5gb", "mig-2g.10gb"}
    small = listed["mig-1g.5gb"]
    assert small["memory_bytes"] == int(4.75 * 1024**3)
    assert (small["total"], small["free"], small["simulated"]) == (5, None, True)
    assert small["isolation"]["access"] == "by agreement"


def test_a_layouts_fractions_are_offered_too() -> None:
    text = run("offers", "--layout", "mixed").output
    assert "gpu-0.5" in text
    assert "no, shared" in text
    assert "simulated GPU" in text


def test_an_unknown_layout_is_a_sentence_and_exit_code_one() -> None:
    result = run("offers", "--layout", "lab-b200")
    assert result.exit_code == 1
    assert "lab-a100" in result.output
    assert result.output.count("\n") == 1


AT = datetime(2026, 11, 20, 12, 30, tzinfo=timezone.utc)
CULLING = (
    TypeAdapter(CullingView)
    .dump_json(
        CullingView(
            AT,
            (
                CulledServer(
                    "ada", "thesis", OfferId("gpu"), "warn", False, "idle", AT, None,
                    "Idle for 21 min.", "[b]night[/b]", "use 0 % by nvml",
                ),
                CulledServer("ben", "", OfferId("cpu"), "keep", False, "", None, None, "Used lately.", "", ""),
            ),
            (FailedStop("cem", "", OfferId("gpu"), AT, "hangs", 0, None, "The hub is at it.", "See its log."),),
        )
    )
)  # fmt: skip
"""What a service says of three servers."""


class _Service(BaseHTTPRequestHandler):
    """Answers as the GPU service does, to the one who has the secret."""

    asked: str = ""
    signs: bool = True
    signatures = Signatures(SECRET)

    def do_GET(self) -> None:
        type(self).asked = self.path
        judged = self.signatures.verify("GET", self.path, self.headers["Authorization"])
        if judged is None and self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send_error(403)
            return
        if judged is not None and judged.verdict is SignatureVerdict.AGAIN:
            self.say(SIGN_AGAIN, b"", judged)
            return
        if self.path.endswith("/culling"):
            self.say(200, CULLING, judged)
            return
        wait = {"now": True, "reason": None} | dict.fromkeys(
            ("p10_seconds", "p50_seconds", "p90_seconds", "at_most_seconds")
        )
        isolation = {"memory": "hardware", "fault": "hardware", "compute": "hardware", "access": "by agreement"}
        offer = {
            "id": "mig-1g.5gb",
            "kind": "mig",
            "title": "[b]Small[/b]",
            "description": "",
            "pool": "mig-1g.5gb",
            "share": 1.0,
            "isolation": isolation,
            "memory_bytes": None,
            "memory_enforced": True,
            "sm_count": None,
            "sm_total": None,
            "product": "",
            "simulated": False,
            "free": 2,
            "total": 5,
            "held": 3,
            "lost": 0,
            "held_by_others": 0,
            "waiting": 4,
            "wait": wait,
        }
        body = json.dumps({"offers": [offer], "simulated": False, "as_of": None, "culling": "", "gpu_servers": []})
        self.say(200, body.encode(), judged)

    def say(self, status: int, body: bytes, judged: VerifiedRequest | None) -> None:
        self.send_response(status)
        if judged is not None and self.signs:
            self.send_header(ANSWER_HEADER, self.signatures.signed(judged.request, status, body))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def service() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_running_service_is_asked_with_the_secret_of_its_state_folder(service: int, tmp_path: Path) -> None:
    Settings(state_dir=str(tmp_path), hub_secret=SECRET, api_token="", port=service).dump(tmp_path / "service.json")
    result = run("offers", "--state-dir", str(tmp_path))
    assert result.exit_code == 0
    assert _Service.asked.startswith("/services/gpu/hub/form?")
    words = result.output.split()
    assert "[b]Small[/b]" in words  # an admin's title is no markup
    assert words[-3:] == ["5", "2", "4"]
    assert "not known" in result.output


def test_a_running_service_says_what_it_would_stop_and_when_also_while_culling_is_a_dry_run(
    service: int, tmp_path: Path
) -> None:
    Settings(state_dir=str(tmp_path), hub_secret=SECRET, api_token="", port=service).dump(tmp_path / "service.json")
    result = run("cull", "--dry-run", "--state-dir", str(tmp_path))
    assert (result.exit_code, _Service.asked) == (0, "/services/gpu/hub/culling")
    said = [" ".join(each.split()) for each in result.output.splitlines()]
    assert said[1] == (
        "ada/thesis gpu be warned 2026-11-20 12:30+00:00 Idle for 21 min. [b]night[/b] use 0 % by nvml"
    ), "an admin's name of a rule is no markup"
    assert said[2] == "ben cpu go on no end in sight Used lately. c.GpuCulling"
    assert "Culling is a dry run (c.GpuCulling.enabled = False): nothing of this happens." in said[3]
    assert said[4].startswith("FAILED: cem: not stopped since 2026-11-20T12:30:00+00:00, 0 tries. The hub is at it.")
    url = f"http://127.0.0.1:{service}/services/gpu"
    result = run("cull", "--dry-run", "--json", "--url", url, "--token", TOKEN)
    assert (result.exit_code, _Service.asked) == (0, "/services/gpu/api/culling")
    assert [each["rule"] for each in json.loads(result.output)["servers"]] == ["[b]night[/b]", ""]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ((), 2, "Give --dry-run to see what it would do"),
        (("--dry-run", "--url", "http://127.0.0.1:9/services/gpu"), 1, "--url needs a token"),
        (("--dry-run", "--url", "http://127.0.0.1:9/services/gpu", "--token", "t"), 1, "Is the hub running?"),
        (("--dry-run", "--state-dir", "nowhere"), 1, "service.json"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence_and_an_exit_code(words: tuple[str, ...], code: int, sentence: str) -> None:
    result = run("cull", *words)
    assert result.exit_code == code and sentence in result.output


def test_who_does_not_prove_that_it_is_the_service_is_not_believed(
    service: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Service, "signs", False)
    Settings(state_dir=str(tmp_path), hub_secret=SECRET, api_token="", port=service).dump(tmp_path / "service.json")
    result = run("offers", "--state-dir", str(tmp_path))
    assert (result.exit_code, "did not prove" in " ".join(result.output.split())) == (1, True)


def test_a_running_service_is_asked_with_a_token(service: int) -> None:
    url = f"http://127.0.0.1:{service}/services/gpu/"
    assert run("offers", "--url", url, "--token", TOKEN).exit_code == 0
    assert _Service.asked == "/services/gpu/api/offers"
    refused = run("offers", "--url", url, "--token", "another")
    assert (refused.exit_code, "access to the service gpu" in refused.output) == (1, True)


def test_a_service_that_is_not_there_is_a_sentence(free_port: int) -> None:
    result = run("offers", "--url", f"http://127.0.0.1:{free_port}/services/gpu", "--token", SECRET)
    assert result.exit_code == 1
    assert "Is the hub running?" in result.output
    assert SECRET not in result.output


# ------------------------------------------------------------------ doctor


def test_a_service_apart_has_no_folder_database_or_port_here(config: Path) -> None:
    more = 'c.JupyterHub.services = [{"name": "gpu", "api_token": "t" * 32}]\nc.GpuService.started_by_hub = False\n'
    text = config.read_text().replace("configure(c)", f'{more}c.GpuService.url = "http://gpu:8191"\nconfigure(c)')
    config.write_text(text)
    code, found = findings("--config", str(config))
    assert code == 0
    assert "http://gpu:8191" in found["place"][0]["text"]
    assert not {"state-dir", "database", "port", "roles"} & set(found)


def test_a_right_configuration_has_no_problem(config: Path) -> None:
    code, found = findings("--config", str(config))
    assert [finding for several in found.values() for finding in several if finding["state"] == "problem"] == []
    assert code == 0
    assert found["service"][0]["state"] == "ok"
    assert found["gpus"][0]["text"].startswith("The GPUs are simulated")


def test_looking_writes_nothing(config: Path) -> None:
    findings("--config", str(config))
    assert not (config.parent / "gpu-state").exists()


def test_a_missing_call_of_configure_is_a_problem_with_its_fix(tmp_path: Path) -> None:
    path = write(tmp_path, call=False)
    code, found = findings("--config", str(path))
    assert code == 1
    assert "configure(c) is not called" in found["service"][0]["text"]
    assert "from hub_extensions import configure" in found["service"][0]["fix"]


def test_a_wrong_setting_is_a_problem_that_names_it(tmp_path: Path) -> None:
    code, found = findings("--config", str(write(tmp_path, "c.GpuQueue.max_waiting = -1")))
    assert code == 1
    assert found["config"][0]["text"].startswith("c.GpuQueue.max_waiting is -1")


@pytest.mark.parametrize("line", ["raise RuntimeError('x')", "import nix_da", "exit(3)", "c.JupyterHub.port = ("])
def test_a_file_that_does_not_load_is_a_sentence(tmp_path: Path, line: str) -> None:
    code, found = findings("--config", str(write(tmp_path, line)))
    assert code == 1
    assert "does not load" in found["config"][0]["text"]


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    code, found = findings("--config", str(tmp_path / "nix.py"))
    assert (code, found["config"][0]["text"]) == (1, f"There is no file {tmp_path / 'nix.py'}.")


def test_what_configure_left_alone_is_said(tmp_path: Path) -> None:
    """T2: both limits count servers that wait."""
    path = write(tmp_path, "c.JupyterHub.concurrent_spawn_limit = 20", "c.JupyterHub.active_server_limit = 30")
    _, found = findings("--config", str(path))
    assert "concurrent_spawn_limit is left alone (20)" in found["config"][0]["text"]
    assert [finding["text"].split()[0] for finding in found["limits"]] == [
        "concurrent_spawn_limit",
        "active_server_limit",
    ]


def test_the_stock_culler_beside_ours_is_said(tmp_path: Path) -> None:
    service = "{'name': 'idle', 'command': ['python3', '-m', 'jupyterhub_idle_culler']}"
    _, found = findings("--config", str(write(tmp_path, f"c.JupyterHub.services = [{service}]")))
    assert "'idle' stops idle servers too" in found["config"][0]["text"]


def test_roles_that_were_replaced_after_configure_are_a_problem(config: Path) -> None:
    with config.open("a") as file:
        file.write("c.JupyterHub.load_roles = []\n")
    code, found = findings("--config", str(config))
    assert code == 1
    assert len(found["roles"]) == 3


def test_a_database_that_others_can_read_is_a_problem(config: Path) -> None:
    database = config.parent / "gpu-state" / "gpu.sqlite"
    database.parent.mkdir(mode=0o700)
    database.touch(mode=0o644)
    database.chmod(0o644)
    code, found = findings("--config", str(config))
    assert code == 1
    assert found["database"][0]["fix"] == f"chmod 600 {database}"


def test_the_disk_of_proc_is_known() -> None:
    assert disk_of(Path("/proc/self")) == "proc"


async def test_a_prometheus_that_answers_and_one_that_does_not_are_one_line_with_a_fix(tmp_path: Path) -> None:
    told = PrometheusAsTold(time.time)
    lines = (f"c.GpuService.prometheus_url = {told.url!r}", "c.GpuService.prometheus_token = 'prometheus-secret'")
    path = str(write(tmp_path, 'c.GpuOffers.simulate = "lab-a100"', *lines))
    _, found = await asyncio.to_thread(findings, "--config", path)
    assert [finding["state"] for finding in found["prometheus"]] == ["ok"]
    assert set(told.tokens) == {"Bearer prometheus-secret"}
    await told.stop()
    code, found = await asyncio.to_thread(findings, "--config", path)
    (line,) = found["prometheus"]
    assert (code, line["state"]) == (0, "warning")
    assert line["text"].startswith("Prometheus does not answer (") and "curl" in line["fix"]
    assert "prometheus-secret" not in json.dumps(found)


def test_a_configuration_without_a_prometheus_says_nothing_of_it(config: Path) -> None:
    assert "prometheus" not in findings("--config", str(config))[1]


@pytest.mark.parametrize(
    ("source", "reason", "age", "state", "words"),
    [
        ("dcgm", "measured", 12.4, "ok", "of 2 of 3 servers, the oldest figure 12 s old."),
        ("none", "pod-not-named", None, "warning", "measured by nobody since"),
        ("report", "no-prometheus", 3.0, "warning", "the servers themselves, which their users can forge"),
    ],
)
def test_doctor_says_of_each_offer_of_the_running_service_who_measures_it_since_when(
    source: str, reason: str, age: float | None, state: str, words: str
) -> None:
    said = {"offer": "mig-1g.5gb", "source": source, "reason": reason, "age_seconds": age, "leases": 3, "measured": 2}
    told = {**said, "since": "2026-11-20T09:00:00Z", "text": "What to do."}
    (found,) = evidence({"ready": True, "evidence": [told]})
    assert (found.check, found.state) == ("evidence", state) and words in found.text
    assert found.text.startswith("mig-1g.5gb: ") and " since 2026-11-20 09:00 UTC, of 2 of 3 servers" in found.text
    assert found.fix == ("" if state == "ok" else "What to do.")
    assert list(evidence(None)) == list(evidence({"ready": True})) == []


def test_a_port_that_the_service_itself_has_is_no_trouble_and_one_of_somebody_else_is(tmp_path: Path) -> None:
    class Answer(BaseHTTPRequestHandler):
        said = b'{"ready": true}'

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.said)

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        port = server.server_address[1]
        path = write(tmp_path, 'c.GpuOffers.simulate = "lab-a100"', f"c.GpuService.port = {port}")
        _, found = findings("--config", str(path))
        assert found["port"][0]["text"] == f"The GPU service answers at http://127.0.0.1:{port}."
        Answer.said = b"hello"
        _, found = findings("--config", str(path))
        assert (found["port"][0]["state"], "no GPU service answers" in found["port"][0]["text"]) == ("warning", True)
        server.shutdown()


def test_doctor_says_which_mig_devices_prometheus_lacks_and_what_to_do() -> None:
    now = datetime(2026, 1, 5, tzinfo=timezone.utc)
    known = {"MIG-1": DcgmUse("MIG-1", now, 3.0)}
    assert prometheus_finding(DcgmReading(known)).text == "Prometheus answers and has the use of all MIG devices (1)."
    lacking = prometheus_finding(DcgmReading(known, {"MIG-2": "none", "MIG-3": "old", "MIG-4": "none"}))
    assert lacking.state == "warning" and "3 of 4 MIG devices" in lacking.text
    assert "dcgm-exporter has to collect it" in lacking.fix and "every 30 s" in lacking.fix


async def test_doctor_asks_prometheus_in_a_hub_whose_configuration_selects_curl_as_the_charts_does(
    tmp_path: Path,
) -> None:
    server = PrometheusAsTold(time.time)
    lines = [f'from tornado.httpclient import AsyncHTTPClient; AsyncHTTPClient.configure("{CURL}")']
    lines += ['c.GpuOffers.simulate = "lab-a100"', f"c.GpuService.prometheus_url = {server.url!r}"]
    path = write(tmp_path, *lines)
    with curl_configured():  # and given back behind it
        _, found = await asyncio.to_thread(findings, "--config", str(path))
    assert found["prometheus"][0]["state"] == "ok" and "Prometheus answers" in found["prometheus"][0]["text"]
    await server.stop()


def test_people_read_the_fix_below_the_problem(tmp_path: Path) -> None:
    result = run("doctor", "--config", str(write(tmp_path, call=False)))
    lines = [line.strip() for line in result.output.splitlines()]
    place = next(i for i, line in enumerate(lines) if "configure(c) is not called" in line)
    assert lines[place].startswith("wrong")
    assert lines[place + 1].startswith("On the last line:")


# ------------------------------------------------------------------ a cluster


@pytest.mark.whole
@pytest.mark.slow
def test_doctor_of_a_hub_on_a_cluster_that_does_not_answer_says_so_and_looks_for_no_card(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound, and nobody listens
        cluster = {"server": f"http://127.0.0.1:{probe.getsockname()[1]}"}
        context = {"cluster": "away", "user": "hub"}
        away = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "away",
            "clusters": [{"name": "away", "cluster": cluster}],
            "contexts": [{"name": "away", "context": context}],
            "users": [{"name": "hub", "user": {}}],
        }
        kubeconfig.write_text(json.dumps(away))
        lines = ('c.JupyterHub.spawner_class = "gpu"', f"c.GpuCluster.kubeconfig = {str(kubeconfig)!r}")
        code, found = findings("--config", str(write(tmp_path, *lines)))
    assert code == 1
    assert [finding["state"] for finding in found["cluster"]] == ["problem"]
    assert "cannot be read" in found["cluster"][0]["text"]
    assert "gpus" not in found and "spawner" not in found


ASK_THERE = "kubectl exec -n jhub deploy/jupyterhub-gpu -- python3 -m hub_extensions.tools.cli offers --cluster"


def on_a_cluster(folder: Path, kubeconfig: str, *, apart: bool) -> Path:
    """As the chart's hub has it, with the service in its pod or in a Deployment of its own."""
    lines = [
        'c.JupyterHub.spawner_class = "gpu"',
        'c.KubeSpawner.namespace = "jhub"',
        f"c.GpuCluster.kubeconfig = {kubeconfig!r}",
    ]
    if apart:
        lines += [
            "c.GpuService.started_by_hub = False",
            'c.GpuService.url = "http://jupyterhub-gpu:8191"',
            f"c.JupyterHub.services = [{{'name': 'gpu', 'api_token': {SECRET!r}}}]",
        ]
    return write(folder, *lines)


async def test_doctor_wants_no_rights_for_a_hub_whose_service_is_apart_and_says_where_to_ask(tmp_path: Path) -> None:
    async with ApiServerAsTold(dra=False) as server:
        server.forbidden |= {NODES, PODS}
        config = on_a_cluster(tmp_path, server.kubeconfig(tmp_path), apart=True)
        code, found = await asyncio.to_thread(findings, "--config", str(config))
        assert server.asked == []
    assert [finding["state"] for finding in found["cluster"]] == ["ok"]
    assert ASK_THERE in found["cluster"][0]["text"]
    assert code == 0 and "gpus" not in found
    assert "manifests" not in json.dumps(found)


@pytest.mark.parametrize(
    ("exported", "state", "word"),
    [
        (None, "warning", "c.GpuService.prometheus_url"),
        ("2g.10gb", "warning", "dcgm-exporter"),
        ("1g.5gb", "ok", "DCGM measures the use of mig-1g.5gb"),
    ],
)
async def test_doctor_says_who_measures_a_clusters_gpus_and_what_to_do_where_nobody_does(
    exported: str | None, state: str, word: str, tmp_path: Path
) -> None:
    told = PrometheusAsTold(time.time)
    async with ApiServerAsTold(dra=False) as server:
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": {"nvidia.com/mig-1g.5gb": "7"}, "conditions": ready}
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}
        server.put(NODES, {"metadata": {"name": "a", "labels": labels}, "status": status})
        config = on_a_cluster(tmp_path, server.kubeconfig(tmp_path), apart=False)
        lines = ["c.GpuCulling.enabled = True"]
        if exported is not None:
            told.tell("GPU-1", 7, 0.0, GPU_I_PROFILE=exported, Hostname="a")
            lines.append(f"c.GpuService.prometheus_url = {told.url!r}")
        config.write_text("\n".join([*lines, config.read_text()]))
        _, found = await asyncio.to_thread(findings, "--config", str(config))
    await told.stop()
    said, *labels = found["use"]
    assert said["state"] == state and word in said["text"] + said["fix"]
    of_its_labels = "with the labels GPU_I_ID, GPU_I_PROFILE, Hostname, UUID, gpu has no pod"
    assert [of_its_labels in each["text"] for each in labels] == ([] if exported is None else [True])
    assert "prometheus" not in found, "not that it answers and has nothing to say"


@pytest.mark.whole
async def test_doctor_of_a_hub_that_has_the_service_in_its_pod_says_which_rights_it_lacks(tmp_path: Path) -> None:
    async with ApiServerAsTold(dra=False) as server:
        server.forbidden |= {NODES, PODS}
        config = on_a_cluster(tmp_path, server.kubeconfig(tmp_path), apart=False)
        _, found = await asyncio.to_thread(findings, "--config", str(config))
    assert [finding["state"] for finding in found["cluster"]] == ["warning", "warning"]
    assert all("helm-values/manifests/rbac.yaml" in finding["fix"] for finding in found["cluster"])


@pytest.mark.parametrize("words", [(), ("--json",)])
async def test_offers_of_an_account_that_may_not_read_nodes_is_a_sentence_with_where_to_ask(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ApiServerAsTold(dra=False) as server:
        server.forbidden |= {NODES, PODS}
        monkeypatch.setenv("KUBECONFIG", server.kubeconfig(tmp_path))
        result = await asyncio.to_thread(run, "offers", "--cluster", *words)
        server.forbidden.clear()
        allowed = await asyncio.to_thread(run, "offers", "--cluster")
    assert result.exit_code == 1
    assert result.output.startswith("This account may not read the cluster's nodes")
    assert ASK_THERE in result.output and "not known" not in result.output.replace("is not known here", "")
    assert len(result.output.splitlines()) == 1
    assert allowed.exit_code == 0 and "From which nodes:" in allowed.output


async def test_what_an_admin_says_there_is_stands_in_for_nodes_that_may_not_be_read(tmp_path: Path) -> None:
    async with ApiServerAsTold(dra=False) as server:
        server.forbidden |= {NODES, PODS}
        cluster = ClusterConfig(kubeconfig=server.kubeconfig(tmp_path), capacity={"gpu": 2})
        settings = Settings(state_dir=str(tmp_path), hub_secret=SECRET, api_token="", cluster=cluster)
        settings.dump(tmp_path / "service.json")
        result = await asyncio.to_thread(run, "offers", "--cluster", "--state-dir", str(tmp_path))
    assert result.exit_code == 0
    assert "the totals below are what c.GpuCluster.capacity says" in result.output


async def test_with_nodes_but_no_foreign_pods_it_says_which_of_the_two_may_not_be_read(tmp_path: Path) -> None:
    async with ApiServerAsTold(dra=False) as server:
        server.forbidden |= {PODS}
        for name, product in (("a", "NVIDIA-A100-PCIE-40GB"), ("h", "NVIDIA-H100-PCIe")):
            labels = {"nvidia.com/gpu.product": product}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": {"nvidia.com/gpu": "2"}, "conditions": ready}
            server.put(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
        cluster = ClusterConfig(kubeconfig=server.kubeconfig(tmp_path), namespace="jhub")
        settings = Settings(state_dir=str(tmp_path), hub_secret=SECRET, api_token="", cluster=cluster)
        settings.dump(tmp_path / "service.json")
        result = await asyncio.to_thread(run, "offers", "--cluster", "--state-dir", str(tmp_path))
    assert result.exit_code == 0
    assert "The nodes may not be read" not in result.output
    assert "Others' pods may not be read: the totals below are what c.GpuCluster.capacity says." in result.output
    assert "A new hub would give these ids." in result.output


def test_the_doctor_says_that_a_server_could_not_be_stopped() -> None:
    assert list(failed_stops({"stops_failed": 0})) == list(failed_stops(None)) == []
    (found,) = failed_stops({"stops_failed": 2})
    assert (found.check, found.state) == ("stops", "problem")
    assert found.text.startswith("2 server(s) could not be stopped") and "cull --dry-run" in found.fix


@pytest.mark.parametrize(
    ("config", "culls", "on_cluster", "found"),
    [
        ({}, True, True, ["warning c.KubeSpawner.delete_grace_period"]),
        ({"KubeSpawner": {"delete_grace_period": 30}}, True, True, []),
        ({"GpuKubeSpawner": {"delete_grace_period": 400}}, True, True, ["problem c.KubeSpawner.delete_grace_period"]),
        ({}, False, True, []),
        ({}, True, False, []),
    ],
)
def test_the_doctor_says_how_long_a_pod_has_to_end(
    config: dict[str, Any], culls: bool, on_cluster: bool, found: list[str]
) -> None:
    cluster = ClusterConfig() if on_cluster else None
    settings = Settings(
        state_dir="", hub_secret=SECRET, api_token="", cluster=cluster, culling=CullPolicy(enabled=culls)
    )
    said = [*grace(Config(config), settings)]
    assert [f"{each.state} {each.text.partition(':')[0]}" for each in said] == found
