"""A channel that could not work, or would say a secret, stops the start with the name of its setting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions import configure
from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core.notices import NoticeConfig
from hub_extensions.hub_service.setup.notice_texts import TRIALS, NoticeTexts
from hub_extensions.hub_service.setup.settings import Settings
from tests.patience import patient

MAIL: dict[str, Any] = {"smtp_host": "mail", "mail_from": "gpu@example.org", "mail_to": "{{ user }}@example.org"}
HOOK: dict[str, Any] = {"webhook_url": "https://chat.example.org/hook?key=of-it"}


def configured(folder: Path, public_url: str = "https://hub.example.org/", **notices: object) -> Config:
    c = Config(GpuService={"state_dir": str(folder)}, GpuNotices=notices, JupyterHub={"public_url": public_url})
    configure(c)
    return c


@pytest.mark.parametrize(
    ("notices", "said"),
    [
        ({"webhook_url": "chat.example.org"}, r"webhook_url cannot be used: .* such as https"),
        ({"webhook_url": "https://me:secret@chat/"}, r"webhook_url cannot be used"),
        ({"webhook_url": "https://chat/#secret"}, r"webhook_url cannot be used"),
        ({**HOOK, "webhook_token": "secret secret"}, r"webhook_token has to be letters"),
        ({"smtp_host": "mail"}, r"mail_from is '': with a mail server it has to be"),
        ({**MAIL, "mail_from": "gpu@example.org\nBcc: eve@example.net"}, r"mail_from is 'gpu@example\.org\\nBcc"),
        ({**MAIL, "mail_to": "{{ user }}"}, None),
        ({**MAIL, "mail_to": "{{ user }} of us"}, r"mail_to makes 'ada of us' of the name 'ada', which is no plain"),
        (
            {**MAIL, "mail_to": "{{ email }}"},
            r"mail_to cannot be used as a template: 'email' is undefined\. It knows user",
        ),
        ({**MAIL, "smtp_user": "gpu"}, r"smtp_user and its password belong together"),
        (
            {**MAIL, "smtp_user": "gpu", "smtp_password": "secret", "smtp_security": "none"},
            r"smtp_security is 'none', and",
        ),
        ({**HOOK, "text": "{{ user "}, r"GpuNotices\.text cannot be used as a template: unexpected end"),
        (
            {**HOOK, "text": "{{ token }}"},
            r"GpuNotices\.text .*'token' is undefined\. It knows user, server, title, url",
        ),
        ({**HOOK, "subject": "{{ 60 / minutes }}"}, r"GpuNotices\.subject cannot be used"),  # there may be none
        ({**HOOK, "text": "{% for x in range(10 ** 9) %}{% endfor %}"}, r"GpuNotices\.text .*[Rr]ange too big"),
        ({**HOOK, "text": "{{ url.__class__.__mro__ }}"}, r"GpuNotices\.text .*unsafe"),
    ],
)
def test_what_cannot_work_is_named_without_its_secret(
    tmp_path: Path, notices: dict[str, Any], said: str | None
) -> None:
    if said is None:
        configured(tmp_path, **notices)
        return
    with pytest.raises(ValueError, match=said) as wrong:
        configured(tmp_path, **notices)
    assert "secret" not in str(wrong.value)


@pytest.mark.parametrize("url", ["chat.example.org", "https://me:secret@chat/", "file:///etc/passwd"])
def test_the_webhook_of_stops_is_checked_as_the_other_one(tmp_path: Path, url: str) -> None:
    c = Config(GpuService={"state_dir": str(tmp_path)}, GpuCulling={"warning_webhook_url": url})
    c.JupyterHub.public_url = "https://hub.example.org/"
    with pytest.raises(
        ValueError, match=r"c\.GpuCulling\.warning_webhook_url cannot be used: .* such as https"
    ) as wrong:
        configure(c)
    assert "secret" not in str(wrong.value)
    c.JupyterHub.public_url, c.GpuCulling.warning_webhook_url = "", "https://chat.example.org/stops"
    with pytest.raises(ValueError, match=r"warning_webhook_url is to tell users .*public_url is empty"):
        configure(c)


def test_a_notice_needs_the_address_at_which_users_open_the_hub(tmp_path: Path) -> None:
    configured(tmp_path, public_url="")  # without a channel it does not matter
    with pytest.raises(ValueError, match=r"c\.JupyterHub\.public_url is empty"):
        configured(tmp_path, public_url="", **HOOK)


@pytest.mark.parametrize(
    ("base_url", "public_url", "expected"),
    [
        ("/", "https://hub.example.org/", "https://hub.example.org/user/a%20b@c/%2Flab/"),
        ("/jh/", "https://hub.example.org:8443/jh/", "https://hub.example.org:8443/jh/user/a%20b@c/%2Flab/"),
        ("/jh/", "hub.example.org", "https://hub.example.org/jh/user/a%20b@c/%2Flab/"),
        ("/jh/", "", "/jh/user/a%20b@c/%2Flab/"),
    ],
)
def test_a_servers_address_is_the_hubs_own(base_url: str, public_url: str, expected: str) -> None:
    settings = Settings(hub_secret="h", api_token="t", base_url=base_url, public_url=public_url)
    assert settings.server_url("a b@c", "/lab") == expected
    assert settings.server_url("a b@c", "") == expected.removesuffix("%2Flab/")


def test_the_shipped_words_say_the_limit_only_where_there_is_one() -> None:
    texts = NoticeTexts.of(NoticeConfig())
    with_limit, without = (texts.text(values) for values in TRIALS)
    assert with_limit == (
        "Your server runs on MIG 1g.5gb:\nhttps://hub.example.org/user/ada/\n"
        "Open it within 15 min, else its GPU goes to the next in line.\n"
    )
    assert without == "Your server thesis runs on A whole GPU:\nhttps://hub.example.org/user/ada@example.org/thesis/\n"
    assert texts.subject({**TRIALS[0], "title": "Small\r\nBcc: eve"}) == "Your GPU is ready: Small Bcc: eve"


def test_the_shipped_words_are_translated_and_an_admins_own_are_not() -> None:
    finnish, values = catalogue_for("fi"), {**TRIALS[0], "title": "Small GPU"}
    shipped = NoticeTexts.of(NoticeConfig())
    assert shipped.subject(values, finnish) == "GPU:si on valmis: Pieni GPU"
    assert shipped.text(values, finnish) == (
        "Palvelimesi on käynnissä, käytössä Pieni GPU:\nhttps://hub.example.org/user/ada/\n"
        "Avaa se 15 minuutin kuluessa, muuten sen GPU menee jonon seuraavalle.\n"
    )
    assert shipped.text(TRIALS[1], finnish).startswith("Palvelimesi thesis on käynnissä, käytössä ")
    own = NoticeTexts.of(NoticeConfig(notice_subject="Go, {{ user }}", notice_text="{{ title }}"))
    assert (own.subject(values, finnish), own.text(values, finnish)) == ("Go, ada", "Small GPU\n")


def test_the_forms_box_and_the_service_know_what_is_set_and_no_log_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_GPU_SMTP_PASSWORD", "secret of the mail server")
    c = configured(tmp_path, **MAIL, smtp_user="gpu")
    assert c.GpuSpawnerMixin.gpu_notice_channel_text == "by e-mail"
    settings = Settings.load(tmp_path / "service.json")
    assert settings.smtp_password == "secret of the mail server"
    assert "secret of the mail server" not in repr(settings)


@pytest.mark.whole
@pytest.mark.programs
def test_a_bad_template_ends_the_service_at_its_start(tmp_path: Path) -> None:
    settings = Settings(hub_secret="h", api_token="t", state_dir=str(tmp_path), notice_text="{{ token }}")
    settings.dump(tmp_path / "service.json")
    assert json.loads((tmp_path / "service.json").read_text())["notice_text"] == "{{ token }}"
    done = subprocess.run(
        [sys.executable, "-m", "hub_extensions.hub_service", "--config", str(tmp_path / "service.json")],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert (done.returncode, "c.GpuNotices.text cannot be used as a template" in done.stderr) == (78, True)
