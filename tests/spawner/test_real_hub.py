"""The spawner inside a real JupyterHub, with a small service: waits, refusals, restarts, stops."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from hub_extensions.adapters.linux.server_processes import mark_of, servers
from hub_extensions.core.messages import Ask, Ended, Started, Stopped
from hub_extensions.spawner.base import CONFIRM_SECONDS
from tests.fakes.service import SECRET, AwayService, GpuServiceInATest
from tests.hubs import Hub, until
from tests.loop.quiet_log import faults
from tests.patience import patient
from tests.spawner.real_hub import ours

pytestmark = pytest.mark.hub
ONE = "mig-1g.5gb"
BIG = "mig-2g.10gb"
PATIENT = 'c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 60}'
"""A start by REST is answered when it is decided, on a slow machine too."""


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1, BIG: 1}) as running:
        yield running


@contextmanager
def hub_with(tmp_path: Path, service: GpuServiceInATest, more: str = "", *names: str) -> Iterator[Hub]:
    with Hub(tmp_path / "hub", ours(service, more)) as hub:
        hub.add_users(*(names or ("ada", "ben", "cem")))
        yield hub


def says_what_is_known_of_a_place(hub: Hub, service: GpuServiceInATest) -> None:
    """The hub's page of Ben's server, which waits in line and which this hub has not been asked for yet."""
    ben = hub.login("ben")
    page = f"{hub.url}/hub/spawn-pending/ben"
    assert 'data-place="kept"' in ben.get(page).text
    service.close()
    assert 'data-place="unknown"' in ben.get(page).text
    service.open()
    ticket = service.tickets.pop(("ben", ""))
    assert "Server not running" in ben.get(page).text
    asked = ben.get(f"{hub.url}/user/ben/gpu/snapshot", headers={"Accept": "application/json"})
    assert asked.status_code == 424, "by this a page of the server knows that it does not run"
    service.tickets = {("ben", ""): ticket, **service.tickets}


@pytest.mark.whole
def test_a_hub_whose_two_lines_were_taken_out_starts_servers_as_before_without_a_form(tmp_path: Path) -> None:
    """The spawner class stays, and old choices are still in the hub's database."""
    config = 'c.JupyterHub.spawner_class = "hub_extensions.spawner.local.GpuDemoSpawner"'
    with Hub(tmp_path / "hub", config) as hub:
        hub.add_users("ada", "ben")
        assert hub.spawn("ada", {"offer": ONE}).status_code in (201, 202)
        hub.wait_ready("ada")
        assert hub.environ("ada")["CUDA_VISIBLE_DEVICES"] == "void"
        page = hub.login("ben").get(f"{hub.url}/hub/spawn")
        assert 'id="spawn_form"' not in page.text and "offer" not in page.text
        hub.wait_ready("ben")
        assert "ada: no GPU, this hub has no GPU service" in hub.log()
        assert faults(hub.log()) == []


@pytest.mark.quick
def test_an_admitted_server_runs_under_its_lease_and_the_service_hears_of_it(
    tmp_path: Path, service: GpuServiceInATest
) -> None:
    """Also T21: the admin's environment stays, ours wins for the GPU's variables."""
    more = 'c.Spawner.environment = {"COURSE": "ml", "CUDA_VISIBLE_DEVICES": "0,1,2"}'
    with hub_with(tmp_path, service, more) as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        env = hub.environ("ada")
        assert env["COURSE"] == "ml"
        assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "MIG-t1"
        assert env["JUPYTERHUB_GPU_LEASE"] == service.lease_of("t1")
        assert env["JUPYTERHUB_GPU_SERVICE_URL"] == service.url
        told = until(lambda: [m for m in service.told_of(Started) if m.ready] and service.told_of(Started))
        assert [m.ready for m in told] == [False, True]
        state = hub.server("ada")["state"]  # type: ignore[index]
        assert told[0].pid == state["pid"]
        assert told[0].pid_started == state["gpu_pid_started"]
        assert state["gpu_lease"] == service.lease_of("t1")
        hub.stop_server("ada")
        until(lambda: service.told_of(Stopped), what="the stop was told")
        assert service.told_of(Stopped) == [Stopped("ada", "", asked=True)]


@pytest.mark.whole
def test_a_hub_that_ends_with_its_servers_says_that_it_was_the_hub(tmp_path: Path, service: GpuServiceInATest) -> None:
    with hub_with(tmp_path, service, "c.JupyterHub.cleanup_servers = True") as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        hub.terminate()
        assert service.told_of(Stopped) == [Stopped("ada", "", asked=True, closing=True)]


@pytest.mark.whole
def test_cpu_only_sees_no_gpu(tmp_path: Path, service: GpuServiceInATest) -> None:
    with hub_with(tmp_path, service) as hub:
        hub.spawn("ada", {})
        hub.wait_ready("ada")
        env = hub.environ("ada")
        assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert "JUPYTERHUB_GPU_LEASE" not in env
        found = {(each.pid, each.user, each.server) for each in servers(mark_of(SECRET))}
        assert (hub.server("ada")["state"]["pid"], "ada", "") in found, "also a hub that never noted it can tell it"


def test_a_waiter_is_told_its_place_and_starts_without_a_click(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T10: the admin's start_timeout does not end a wait that is longer."""
    limit = int(patient(2))
    with hub_with(tmp_path, service, f"c.Spawner.start_timeout = {limit}") as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        assert hub.spawn("ben", {"offer": ONE}).status_code == 202
        assert hub.spawn("cem", {"offer": ONE}).status_code == 202
        until(lambda: len(service.tickets) == 2)
        asked = time.monotonic()
        events = hub.progress("cem", seconds=20)
        seen = [next(events), next(events)]
        assert seen[1]["gpu"]["position"] == 2
        assert seen[1]["gpu"]["alternatives"][0]["offer"] == BIG
        assert "2nd in line for MIG 1g.5gb" in seen[1]["message"]
        until(lambda: time.monotonic() - asked > limit + 1, what="longer than the limit of a start")
        assert "slow to start" in hub.log()
        service.release("ada")
        hub.wait_ready("ben")
        seen.append(next(events))
        assert seen[2]["gpu"]["position"] == 1
        until(lambda: ("ben", "") not in service.tickets, what="the hub has told that ben is ready")
        service.release("ben")
        assert [event["gpu"]["state"] for event in [next(events)]] == ["starting"]
        assert next(events)["ready"] is True


@pytest.mark.whole
def test_a_start_that_takes_too_long_after_admission_says_so_and_is_told(
    tmp_path: Path, service: GpuServiceInATest
) -> None:
    """T10: from admission on the admin's own start_timeout counts, by our clock, with words.

    What the server wrote goes to its own file, and its end to the service.
    """
    logs = tmp_path / "logs"
    more = f"""
c.Spawner.start_timeout = 1
c.Spawner.cmd = ["sh", "-c", "echo no module named torch >&2; [ $JUPYTERHUB_USER = ada ] || exit 3; exec sleep 600"]
c.GpuDemoSpawner.gpu_log_folder = {str(logs)!r}
from hub_extensions.spawner.local import GpuDemoSpawner
import asyncio
class SlowToLaunch(GpuDemoSpawner):
    async def _gpu_launch(self, start):
        address = await super()._gpu_launch(start)
        await asyncio.sleep(30 if self.user.name == "ada" else 0)
        return address
c.JupyterHub.spawner_class = SlowToLaunch
"""
    with hub_with(tmp_path, service, more) as hub:
        hub.spawn("ada", {"offer": ONE})
        ended = until(lambda: service.told_of(Ended), what="the failed start was told")
        assert ended[0].how == "failed"
        assert (ended[0].reason, ended[0].seconds) == ("too-slow", 1.0)
        assert ended[0].log == (logs / "ada.log").read_text() == "no module named torch\n"
        assert (logs / "ada.log").stat().st_mode & 0o777 == 0o600
        assert "\nno module named torch\n" not in hub.log()
        page = hub.login("ada").get(f"{hub.url}/hub/spawn-pending/ada").text
        assert "Your server did not start within 1 s" in page
        assert "failed to start in 1 seconds" in hub.log()
        hub.spawn("ben", {"offer": ONE})
        crashed = until(lambda: service.told_of(Ended)[1:], what="a process that has ended is not waited for")[0]
        assert (crashed.how, crashed.reason, crashed.log) == ("failed", "crashed", "no module named torch\n")
        page = hub.login("ben").get(f"{hub.url}/hub/spawn-pending/ben").text
        assert "ended by itself before it answered" in page and "Your GPU was given back." in page
        assert faults(hub.log()) == []


@pytest.mark.whole
def test_a_bad_choice_is_a_refusal_with_a_reason_and_never_counts(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T5, T6, T12: more of them in a row than the limit of 3 leave the hub alive; the reason is shown."""
    bad = [
        ({"offer": "mig-9g.99gb"}, "there is no mig-9g.99gb"),
        ({"offer": "jupyter/x:y\nevil"}, "offer"),
        ({"profile": "gpu"}, "profile"),
        ({"user_options": "gpu"}, "user_options"),
        ({"user_options": ["gpu"]}, "user_options"),
        ({"offer": None}, "offer"),
        ({"offer": "x" * 100_000}, "offer"),
        ({"offer": ONE, "y" * 100_000: 1}, "y" * 60),
        ({"offers": [ONE] * 10_000}, "offers"),
        ({"notify_when_ready": {}}, "notify_when_ready"),
        ({"offers": [ONE, ONE]}, "offers"),
    ]
    with hub_with(tmp_path, service, f"c.Spawner.consecutive_failure_limit = 3\n{PATIENT}") as hub:
        for options, words in bad:
            answer = hub.spawn("ada", options)
            assert answer.status_code == 400, answer.text
            assert words in answer.json()["message"]
        assert "Aborting" not in hub.log()
        page = hub.login("ada").get(f"{hub.url}/hub/spawn-pending/ada")
        assert "offers" in page.text
        assert hub.spawn("ada", {"offer": "cpu"}).status_code in (201, 202)
        hub.wait_ready("ada")


@pytest.mark.whole
def test_a_bad_link_or_form_shows_the_form_with_the_reason(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T6, T7: one check for form, REST and ?opt- links."""
    with hub_with(tmp_path, service) as hub:
        ada = hub.login("ada")
        page = ada.get(f"{hub.url}/hub/spawn?opt-offer=mig-9g.99gb%0Aevil")
        assert page.status_code == 400
        assert "is no offer: write for example cpu" in page.text
        finnish = ada.get(page.url, headers={"Accept-Language": "fi"}).text
        assert '<span lang="fi-FI">offer: &#39;mig-9g.99gb\\nevil&#39; ei ole vaihtoehto: kirjoita' in finnish
        assert 'id="gpu-form"' in page.text
        assert page.text.count(" checked") == 1
        xsrf = ada.headers["X-XSRFToken"]
        # what only the service knows comes with the form if it comes within the second a hub gives it, else after it
        ada.post(f"{hub.url}/hub/spawn?_xsrf={xsrf}", data={"offer": "mig-9g.99gb"})
        pending = f"{hub.url}/hub/spawn-pending/ada"
        until(lambda: "there is no mig-9g.99gb" in ada.get(pending).text, what="the reason is shown")
        page = ada.post(f"{hub.url}/hub/spawn?_xsrf={xsrf}", data={"offer": "<b>"}, headers={"Accept-Language": "fi"})
        assert page.status_code == 400
        assert '<span lang="fi-FI">offer: &#39;&lt;b&gt;&#39; ei ole vaihtoehto: kirjoita' in page.text
        assert "Error:" not in page.text and "Palvelimen valinnat</h1>" in page.text
        assert "in options_from_query" not in hub.log(), "a line, and no traceback"
        page = ada.post(f"{hub.url}/hub/spawn?_xsrf={xsrf}", data={"offer": ONE, "also": [BIG, ""]})
        hub.wait_ready("ada")
        assert service.told_of(Ask)[-1].offers == (ONE, BIG)


@pytest.mark.whole
def test_a_link_preselects_and_starts_nothing(tmp_path: Path, service: GpuServiceInATest) -> None:
    """Of this hub or of another site, by either way of writing options."""
    chosen = re.compile(rf'value="{re.escape(BIG)}"[^>]* checked')
    with hub_with(tmp_path, service) as hub:
        ada = hub.login("ada")
        for query in (f"opt-offer={BIG}", f"offer={BIG}", f"opt-offer={BIG}&next=%2Fhub%2Fhome"):
            for site in ("cross-site", "none", None):
                page = ada.get(f"{hub.url}/hub/spawn?{query}", headers={"Sec-Fetch-Site": site})
                assert page.status_code == 200 and page.url == f"{hub.url}/hub/spawn?{query}"
                assert chosen.search(page.text) and page.text.count(" checked") == 1
                assert "spawn-error-msg" not in page.text
        assert hub.server("ada") is None and service.told_of(Ask) == []
        assert not chosen.search(ada.get(f"{hub.url}/hub/spawn").text), "a link chooses for its own form only"
        gone = ada.get(f"{hub.url}/hub/spawn?offer=mig-9g.99gb").text
        assert "The link asks for MIG 9g.99gb: not offered to you now." in gone
        assert "Failed to spawn" not in hub.log()


@pytest.mark.whole
def test_the_users_own_limit_is_refused_in_words(tmp_path: Path, service: GpuServiceInATest) -> None:
    with hub_with(tmp_path, service, PATIENT) as hub:
        hub.spawn("ada", {"offer": ONE}, "thesis")
        hub.wait_ready("ada", "thesis")
        answer = hub.spawn("ada", {"offer": BIG})
        assert answer.status_code == 409
        assert answer.json()["message"] == "You already hold a GPU in server thesis. Stop it, or start CPU only."


@pytest.mark.whole
def test_leaving_the_line_is_confirmed_after_three_seconds(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T4: and T9: it is the named server that leaves, not the default one.

    In this hub after eight: the answer to the stop takes a second or two itself.
    """
    assert CONFIRM_SECONDS == 3.0
    longer = "import hub_extensions.spawner.base as mixin\nmixin.CONFIRM_SECONDS = 8.0"
    with hub_with(tmp_path, service, longer) as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        hub.spawn("ben", {"offer": "cpu"})
        hub.wait_ready("ben")
        hub.spawn("ben", {"offer": ONE}, "exam")
        until(lambda: ("ben", "exam") in service.tickets)
        assert hub.stop_server("ben", "exam").status_code in (202, 204)
        assert ("ben", "exam") in service.tickets
        ended = until(lambda: service.told_of(Ended), 20, "the stop was confirmed")
        assert ended == [Ended(1, "left")]
        assert hub.ready("ben")


@pytest.mark.whole
def test_a_stopped_waiter_is_never_said_to_be_ready(tmp_path: Path, service: GpuServiceInATest) -> None:
    """A tab that follows the start goes to no server that is not there."""
    with hub_with(tmp_path, service) as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        hub.spawn("ben", {"offer": ONE})
        events = hub.progress("ben")
        next(events), next(events)
        with ThreadPoolExecutor() as pool:
            stop = pool.submit(hub.stop_server, "ben")
            assert [event["message"] for event in events] == ["Spawn cancelled"]
            assert stop.result().ok
        assert hub.server("ben") is None


def test_taking_another_offer_keeps_the_ticket(tmp_path: Path, service: GpuServiceInATest) -> None:
    """The older attempt's cancel, told later, ends nothing: its number is old."""
    service.capacity[BIG] = 0
    with hub_with(tmp_path, service) as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        hub.spawn("ben", {"offer": BIG})
        until(lambda: ("ben", "") in service.tickets)
        hub.stop_server("ben")
        until(lambda: hub.spawn("ben", {"offers": [ONE, BIG]}).status_code == 202)
        assert service.tickets["ben", ""].attempt == 2
        until(lambda: service.told_of(Ended), 10)
        assert service.told_of(Ended) == [Ended(1, "left")]
        assert ("ben", "") in service.tickets
        service.release("ada")
        hub.wait_ready("ben")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("cleanup", "number"),
    [
        (True, signal.SIGTERM),
        (False, signal.SIGKILL),
        *(
            pytest.param(cleanup, number, marks=pytest.mark.whole)
            for cleanup, number in (
                (True, signal.SIGINT),
                (True, signal.SIGKILL),
                (False, signal.SIGTERM),
                (False, signal.SIGINT),
            )
        ),
    ],
)
def test_the_end_of_the_hub_ends_no_ticket(
    tmp_path: Path, service: GpuServiceInATest, number: int, cleanup: bool
) -> None:
    """T3, T4, T15: every waiting start is cancelled like by a Stop, and nothing is told but nothing is lost."""
    if number == signal.SIGKILL and not cleanup:
        number = signal.SIGTERM
    with hub_with(tmp_path, service, f"c.JupyterHub.cleanup_servers = {cleanup}") as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        for name in ("ben", "cem"):
            hub.spawn(name, {"offer": ONE})
        until(lambda: len(service.tickets) == 2)
        hub.signal(number)
        assert service.told_of(Ended) == []
        hub.start()
        assert service.told_of(Ended) == []
        assert list(service.tickets) == [("ben", ""), ("cem", "")]
        running = hub.ready("ada")
        assert running == (number == signal.SIGKILL or not cleanup)
        says_what_is_known_of_a_place(hub, service)
        # the service starts them again through the hub's API; the place is the same
        hub.spawn("ben", {"offer": ONE})
        if running:
            until(lambda: service.tickets["ben", ""].attempt == 2)
            service.release("ada")
        hub.wait_ready("ben")  # a hub that takes the servers along says so to the service: the GPU is free


@pytest.mark.whole
def test_cpu_only_starts_and_a_gpu_waits_while_the_service_is_away(tmp_path: Path) -> None:
    with AwayService({ONE: 1}) as service, hub_with(tmp_path, service) as hub:
        hub.spawn("ada", {"offer": "cpu"})
        hub.wait_ready("ada")
        assert hub.environ("ada")["CUDA_VISIBLE_DEVICES"] == "void"
        hub.spawn("ben", {"offer": ONE})
        events = hub.progress("ben")
        next(events)
        assert "The GPU service is not answering, since" in next(events)["message"]
        form = hub.login("cem").get(f"{hub.url}/hub/spawn").text
        assert "the GPU service is not answering" in form
        service.open()
        hub.wait_ready("ben")
        assert hub.environ("ben")["CUDA_VISIBLE_DEVICES"] == "MIG-t1"


@pytest.mark.whole
def test_a_gpu_choice_is_refused_when_patience_ends_and_is_not_counted(tmp_path: Path) -> None:
    more = "c.GpuSpawnerMixin.gpu_service_timeout_seconds = 1.5\nc.Spawner.consecutive_failure_limit = 1"
    with AwayService({ONE: 1}) as service, hub_with(tmp_path, service, more) as hub:
        hub.spawn("ben", {"offer": ONE})
        last = list(hub.progress("ben"))[-1]
        assert last["failed"]
        assert "has not answered since" in last["message"]
        assert "Aborting" not in hub.log()
        hub.spawn("ada", {"offer": "cpu"})
        hub.wait_ready("ada")


@pytest.mark.whole
def test_a_service_that_restarts_is_asked_again(tmp_path: Path, service: GpuServiceInATest) -> None:
    with hub_with(tmp_path, service) as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        hub.spawn("ben", {"offer": ONE})
        until(lambda: ("ben", "") in service.tickets)
        service.close()
        until(lambda: "is not answering" in hub.log())
        service.open()
        until(lambda: service.tickets["ben", ""].attempt >= 2, what="it asked again")
        service.release("ada")
        hub.wait_ready("ben")


@pytest.mark.whole
def test_many_waiters_share_one_connection_and_block_nobody(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T1, T2: the line fills no limit of the hub."""
    names = [f"u{n}" for n in range(12)]
    with hub_with(tmp_path, service, f"c.Spawner.start_timeout = {int(patient(1))}", *names) as hub:
        for name in names:
            hub.spawn(name, {"offer": ONE})
        until(lambda: len([s for s in service.tickets.values() if s.answer == "wait"]) == 11)
        assert len(service._streams) == 1
        hub.add_users("zoe")
        assert hub.spawn("zoe", {"offer": "cpu"}).status_code in (201, 202)
        hub.wait_ready("zoe")


@pytest.mark.whole
def test_a_refusal_while_waiting_reaches_the_page(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T5."""
    with hub_with(tmp_path, service) as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        hub.spawn("ben", {"offer": ONE})
        until(lambda: ("ben", "") in service.tickets)
        events = hub.progress("ben")
        next(events)  # the page is there before the refusal
        service.refuse("ben", "Your group <gone> may not use it any more.")
        *_, last = events
        assert last["message"] == "Spawn failed: Your group <gone> may not use it any more."
        assert last["html_message"] == "Your group &lt;gone&gt; may not use it any more."
        page = hub.login("ben").get(f"{hub.url}/hub/spawn-pending/ben").text
        assert "Your group &lt;gone&gt; may not use it any more." in page
        assert 'id="gpu-refused"' in page
        page = hub.login("ben").get(f"{hub.url}/hub/spawn-pending/ben", headers={"Accept-Language": "fi"}).text
        assert '<span lang="en">Your group &lt;gone&gt; may not use it any more.</span>' in page, "of no catalogue"
        assert service.told_of(Ended) == []


@pytest.mark.whole
def test_a_pid_that_was_used_again_is_neither_polled_nor_signalled(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T17: after a restart a pid alone proves nothing."""
    import subprocess

    with hub_with(tmp_path, service, "c.JupyterHub.cleanup_servers = False") as hub:
        hub.spawn("ada", {"offer": "cpu"})
        hub.wait_ready("ada")
        pid = hub.server("ada")["state"]["pid"]  # type: ignore[index]
        hub.kill()
        os.kill(pid, signal.SIGKILL)
        stranger = subprocess.Popen(["sleep", "60"])
        try:
            import sqlite3

            with sqlite3.connect(hub.folder / "jupyterhub.sqlite") as db:
                (state,) = db.execute("select state from spawners where state like '%gpu_pid_started%'").fetchone()
                assert str(pid) in state
                db.execute("update spawners set state = ?", (state.replace(f'"pid": {pid}', f'"pid": {stranger.pid}'),))
            hub.start()
            assert not hub.ready("ada")
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


@pytest.mark.whole
@pytest.mark.parametrize("server", ["", "exam"])
def test_an_admin_starts_a_gpu_server_for_somebody_else_by_form_and_by_rest(
    tmp_path: Path, service: GpuServiceInATest, server: str
) -> None:
    """The form lists what that user may choose, so nothing in it is refused; and it names nobody else."""
    service.groups[BIG] = "vision"
    with hub_with(tmp_path, service) as hub:
        hub.add_group("vision", "root-admin", "cem")
        hub.spawn("cem", {"offer": BIG})
        hub.wait_ready("cem")
        admin = hub.login("root-admin")
        address = f"{hub.url}/hub/spawn/ada" + (f"/{server}" if server else "")
        page = admin.get(address).text
        ours_only = page[page.index('id="gpu-form"') : page.index("</script>", page.index('id="gpu-form"'))]
        assert f'value="{ONE}"' in ours_only
        assert BIG not in ours_only, "it is not for a group of ada's, whoever opens the form"
        for name in ("ada", "cem", "root-admin"):
            assert name not in ours_only.replace("data-", "")
        answer = admin.post(f"{address}?_xsrf={admin.headers['X-XSRFToken']}", data={"offer": ONE})
        assert answer.status_code == 200, answer.text
        hub.wait_ready("ada", server)
        assert hub.environ("ada", server)["JUPYTERHUB_GPU_LEASE"]
        hub.stop_server("ada", server)
        until(lambda: not service.held.get(("ada", server)), what="its GPU is free")

        assert hub.spawn("ada", {"offer": ONE}, server, token=hub.token_of("root-admin")).ok
        hub.wait_ready("ada", server)
        assert [ask.groups for ask in service.told_of(Ask) if ask.user == "ada"] == [(), ()]


@pytest.mark.whole
def test_an_offer_for_a_group_stays_in_the_form_while_the_service_is_away(
    tmp_path: Path, service: GpuServiceInATest
) -> None:
    """Also where the hub had learned the offers from a start by REST, without any form."""
    service.groups[BIG] = "vision"
    service.capacity[ONE] = 0
    with hub_with(tmp_path, service) as hub:
        hub.add_users("dora")
        hub.add_group("vision", "ben", "dora")
        hub.spawn("ben", {"offer": ONE})
        events = hub.progress("ben")
        next(event for event in events if event.get("gpu"))
        service.close()
        page = hub.login("ben").get(f"{hub.url}/hub/spawn/ben/exam").text
        assert "the GPU service is not answering" in page
        assert f'value="{BIG}"' in page
        new = hub.login("cem").get(f"{hub.url}/hub/spawn/cem").text
        assert BIG not in new, "it is for another group"
        assert f'value="{BIG}"' in hub.login("dora").get(f"{hub.url}/hub/spawn/dora").text, "who never saw a form"


@pytest.mark.whole
def test_the_waiting_page_of_a_named_server_acts_on_that_server(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T9: and what it shows without script."""
    with hub_with(tmp_path, service) as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        hub.spawn("ben", {"offer": ONE}, "exam")
        until(lambda: ("ben", "exam") in service.tickets)
        page = hub.login("ben").get(f"{hub.url}/hub/spawn-pending/ben/exam").text
        assert 'data-server="exam"' in page
        assert "(1) in line" in page
        assert 'You are <span class="gpu-place">1st</span> in line for MIG 1g.5gb' in page
        assert "All 1 are in use" in page
        assert 'http-equiv="refresh"' in page
        assert 'id="stop-server-btn"' not in page


@pytest.mark.whole
def test_no_server_is_ever_started_with_allow_root(tmp_path: Path, service: GpuServiceInATest) -> None:
    """T18."""
    with hub_with(tmp_path, service) as hub:
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        assert "allow-root" not in hub.log()
