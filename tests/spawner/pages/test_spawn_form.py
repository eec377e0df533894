"""The spawn form from what the service said: order, escaping, preselection, suggestions, and "not known"."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from hub_extensions.adapters.files.catalogues import catalogues
from hub_extensions.core.culling import CullPolicy, culling_sentence
from hub_extensions.core.messages import FailedStart, FormState, Notice, OfferClosing, OfferState, Wait
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.failed_starts import failure
from hub_extensions.core.text.glossary import SENTENCES, WORDS
from hub_extensions.core.text.reasons import explain
from hub_extensions.core.text.translation import ENGLISH
from hub_extensions.spawner.pages.spawn_form import form_html
from hub_extensions.spawner.pages.texts import culling_text
from tests.fakes.reasons import because
from tests.fakes.service import an_offer

NOW = datetime(2026, 11, 20, 14, 2, tzinfo=timezone.utc)
SMALL = an_offer("mig-1g.5gb", free=2, total=5, name="Small GPU")
BIG = an_offer(
    "mig-2g.10gb",
    free=0,
    total=1,
    gib=9.75,
    waiting=1,
    wait=Wait(False, 25 * 60, 40 * 60, 70 * 60, 130 * 60, because("the one 2g.10gb is in use")),
)
CPU = an_offer("cpu", free=None, total=None, gib=None)


def state(*offers: OfferState, **more: object) -> FormState:
    facts: dict[str, object] = {"offers": offers, "simulated": False, "as_of": NOW, "culling": "", "gpu_servers": ()}
    return FormState(**{**facts, **more})  # type: ignore[arg-type]


def checked(html: str) -> list[str]:
    return re.findall(r'<input type="radio"[^>]*value="([^"]*)"[^>]* checked>', html)


def read(html: str) -> str:
    """As it is read: a word that is a button is a word."""
    return re.sub(r"</?button[^>]*>", "", html)


@pytest.mark.parametrize("language", ["en", *catalogues()])
def test_each_word_that_a_first_year_does_not_know_is_explained_where_it_stands_first(language: str) -> None:
    t = catalogues().get(language, ENGLISH)
    few = replace(BIG, id=OfferId("gpu"), wait=replace(BIG.wait, p10_seconds=None, note="few-data"))
    shared = replace(SMALL, id=OfferId("gpu-0.5"), memory_enforced=False)
    rule = explain("rule", idle=1800.0, warn=600.0)
    html = form_html(state(SMALL, SMALL, BIG, few, shared, CPU, rule=rule), t=t, help_url="/services/gpu/help")
    asked = re.findall(r'<button type="button" class="gpu-word" popovertarget="gpu-word-(\w+)" aria-describedby', html)
    assert sorted(asked) == sorted(WORDS), "once each"
    said = re.findall(r'<div popover class="gpu-help" id="gpu-word-(\w+)"', html)
    assert said == list(WORDS) and all(t(sentence) in html for sentence in SENTENCES.values())
    assert '<a href="/services/gpu/help"' in html


def test_whoever_can_be_told_is_asked_and_the_answer_is_remembered() -> None:
    assert "notify_when_ready" not in form_html(state(SMALL, CPU)), "no channel: nothing is promised"
    html = form_html(state(SMALL, CPU), notice_hint="in <Mattermost>")
    [box] = re.findall(r"<input[^>]*gpu-notify-option[^>]*>", html)
    assert 'type="checkbox"' in box and 'name="notify_when_ready"' in box and "checked" not in box
    assert 'for="gpu-notify-option">Tell me in &lt;Mattermost&gt; when my GPU is ready</label>' in html
    assert 'aria-describedby="gpu-notify-option-text"' in box and 'id="gpu-notify-option-text"' in html
    assert "Tell me when my GPU is ready" in form_html(state(SMALL, CPU), notice_hint="yes")
    again = form_html(None, away_since="2026-11-20T14:00:00Z", notice_hint="by e-mail", notify=True)
    assert re.findall(r"<input[^>]*gpu-notify-option[^>]* checked>", again)


def test_a_choice_that_is_not_on_the_form_is_named() -> None:
    gone = (OfferId("mig-3g.20gb"), OfferId("mig-1g.5gb"))
    sentence = "MIG 3g.20gb: not offered to you now."
    by_link = form_html(state(SMALL, CPU), saved=gone, linked=True)
    assert f"The link asks for {sentence}" in by_link and checked(by_link) == ["mig-1g.5gb"]
    assert f"You chose {sentence.replace(':', ' last:')}" in form_html(state(SMALL, CPU), saved=gone)
    assert "not offered" not in form_html(state(SMALL, CPU), saved=gone[1:], linked=True)
    assert "not offered" not in form_html(None, saved=gone, away_since="2026-11-20T14:00:00Z"), "it is not known"
    assert "not offered" not in form_html(state(CPU), saved=gone, away_since="2026-11-20T14:00:00Z"), "nor now"


def test_a_row_says_what_it_gives_whether_it_is_free_and_how_long_the_wait_is() -> None:
    html = read(form_html(state(SMALL, BIG, CPU)))
    for words in (
        "Small GPU",
        "· 4.75 GiB",
        "MIG 1g.5gb, 1/7 of a card (A100), 14 SMs",
        "2 of 5 free",
        "full · about 40 min",
        "always",
    ):
        assert words in html
    assert "if you joined now: 2nd in line, likely 25 min to 1 h 10 min, wait at most 2 h 10 min" in html
    assert html.index("4.75 GiB") < html.index("2 of 5 free") < html.index("14 SMs") < html.index("2nd in line")
    assert html.count("starts now") == 2, "free says it: only the other's suggestion, and the script"


def test_a_full_offer_can_be_chosen_and_a_smaller_free_one_is_suggested() -> None:
    html = form_html(state(SMALL, BIG, CPU), saved=("mig-2g.10gb",))
    assert checked(html) == ["mig-2g.10gb"]
    assert not re.findall(r"<(?:input|button|option)[^>]* disabled", html)
    assert "If Small GPU is enough: it starts now." in html
    assert 'data-take="mig-1g.5gb"' in html


def test_a_gpu_that_starts_now_or_the_last_choice_is_selected_and_else_nothing_silently() -> None:
    """T7."""
    for saved, wanted in [((), "mig-1g.5gb"), ((OfferId("mig-9g.99gb"),), "mig-1g.5gb"), (("cpu",), "cpu")]:
        assert checked(form_html(state(SMALL, BIG, CPU), saved=saved)) == [wanted]
    assert checked(form_html(state(CPU))) == ["cpu"]
    full = form_html(state(BIG, CPU))
    assert checked(full) == []
    assert "No GPU is free now." in full
    assert re.findall(r'data-take="([^"]*)" data-go hidden>([^<]*)<', full) == [
        ("mig-2g.10gb", "Join the line for MIG 2g.10gb, likely 25 min to 1 h 10 min"),
        ("cpu", "Start without a GPU"),
    ]
    assert full.count(" required") == 2, "a browser sends nothing without a choice"
    assert 'id="gpu-none"' not in form_html(state(SMALL, BIG, CPU))


def test_a_card_shows_its_share_of_a_gpu_and_one_pill_with_a_colour_and_a_word() -> None:
    html = form_html(state(SMALL, BIG, replace(CPU, share=0.0)))
    assert 'aria-label="14 % of a GPU"><span style="width: 14%">' in html
    pills = re.findall(r'gpu-pill gpu-pill-(\w+)"><span aria-hidden="true">(.)</span> ([^<]*)<', html)
    assert pills == [("free", "●", "2 of 5 free"), ("full", "○", "full · about 40 min"), ("free", "●", "always")]
    assert "More choices" not in form_html(state(SMALL, CPU)), "only where there are some"


def test_what_the_admin_preselects_is_for_those_who_have_not_chosen_and_may_choose_it() -> None:
    shown = (SMALL, BIG, CPU)
    assert checked(form_html(state(*shown, default_offer="cpu"))) == ["cpu"]
    assert checked(form_html(state(*shown, default_offer="mig-2g.10gb"))) == ["mig-2g.10gb"], "also where one waits"
    assert checked(form_html(state(*shown, default_offer="cpu"), saved=("mig-2g.10gb",))) == ["mig-2g.10gb"]
    assert checked(form_html(state(*shown, default_offer="cpu", last_offers=("mig-1g.5gb",)))) == ["mig-1g.5gb"]
    assert checked(form_html(state(*shown, default_offer="gpu"))) == ["mig-1g.5gb"], "it is for other groups"
    assert checked(form_html(state(SMALL, BIG, CPU, last_offers=("mig-2g.10gb",)))) == ["mig-2g.10gb"]


def test_what_is_free_while_others_wait_for_it_is_theirs_first() -> None:
    """Somebody is ahead, or starts are held back: free is not free for the reader, and both figures agree."""
    asked = replace(
        SMALL, free=1, waiting=1, wait=Wait(False, None, None, None, 600.0, because("1 person is ahead of you."))
    )
    html = read(form_html(state(asked, CPU)))
    assert '<span aria-hidden="true">●</span> 1 of 5 free, 1 ahead' in html
    assert "if you joined now: 2nd in line, wait at most 10 min" in html
    assert "1 of 5 free, " not in form_html(state(replace(asked, wait=SMALL.wait), CPU))


def test_what_is_held_is_said_and_no_more_promised() -> None:
    """How many GPUs one may hold is the admin's to say, so the form only warns."""
    html = form_html(state(SMALL, CPU, gpu_servers=("thesis", "")))
    note = " ".join(re.sub("<[^>]*>", "", html[html.index("A GPU is held now") :].split("</p>")[0]).split())
    assert note == (
        "A GPU is held now by server thesis, the default server. Another GPU may be refused meanwhile; CPU only is not."
    )


def test_the_culling_sentence_says_which_servers_stop() -> None:
    sentence = culling_sentence(CullPolicy(enabled=True))
    html = read(form_html(state(SMALL, CPU, culling=sentence)))
    assert "A server with a GPU stops when its GPU is idle for 30 min (you are warned 10 min before)" in html
    assert culling_text("") == ""
    assert 'id="gpu-culling"' not in form_html(state(SMALL, CPU))


def test_everything_is_escaped() -> None:
    """T8: titles, descriptions, notices, server names, sentences."""
    evil = '"><script>alert(1)</script>'
    offer = replace(
        SMALL,
        title=evil,
        description=evil,
        product=evil,
        id=evil,
        isolation={evil: evil},
        wait=Wait(False, None, None, None, None, because(evil)),
        free=None,
    )
    full = replace(BIG, wait=Wait(False, None, None, None, None, because(evil)))
    html = form_html(
        state(offer, full, CPU, notices=(Notice(NOW, evil, evil),), gpu_servers=(evil,), culling=evil), saved=(evil,)
    )
    assert "<script>alert" not in html
    assert '"><' not in html.replace('" hidden><', "").split("<script>")[0] or evil not in html


def test_a_service_that_is_away_leaves_every_gpu_not_known_and_cpu_free() -> None:
    html = form_html(state(SMALL, CPU), away_since="2026-11-20T14:02:00Z")
    assert "the GPU service is not answering" in html
    assert '<time datetime="2026-11-20T14:02:00Z">14:02 UTC</time>' in html
    assert "2 of 5" not in html
    assert "It is not known which GPUs are free." in html
    assert checked(html) == [], "nothing silently"


def test_a_form_without_any_news_offers_the_last_choice_and_cpu_only() -> None:
    html = form_html(None, saved=(OfferId("mig-2g.10gb"),), away_since="2026-11-20T14:02:00Z")
    assert "MIG 2g.10gb" in html
    assert "CPU only" in html


def test_simulated_gpus_are_called_so() -> None:
    simulated = form_html(state(replace(SMALL, simulated=True), CPU, simulated=True))
    assert "simulated GPU" in simulated
    assert "simulated" not in form_html(state(SMALL, CPU))


def test_the_signs_never_stand_alone() -> None:
    html = form_html(state(SMALL, BIG, replace(BIG, id=OfferId("gpu"), free=None), CPU))
    for sign, words in (("●", "2 of 5 free"), ("○", "full"), ("?", "not known")):
        assert f'<span aria-hidden="true">{sign}</span> {words}' in html


def test_notices_stand_on_top_and_the_culling_sentence_last() -> None:
    html = form_html(state(SMALL, CPU, notices=(Notice(NOW, "", "Your server was idle."),), culling="Stops when idle."))
    assert html.index("Your server was idle.") < html.index("What the server gets") < html.index("stops when idle.")


def test_why_the_last_start_of_this_server_failed_stands_on_top() -> None:
    failed = FailedStart(NOW, "ada", "", OfferId("mig-1g.5gb"), "Small GPU", failure("no-answer", "", 120.0))
    html = form_html(state(SMALL, CPU, failed=(failed,)))
    text = "did not answer within 2 min, so it was ended. Your GPU was given back."
    assert text in html and html.index(text) < html.index("What the server gets")
    assert f'It failed at <time datetime="{NOW:%Y-%m-%dT%H:%M}' in html and "Your place is kept until" not in html
    kept = form_html(state(SMALL, CPU, failed=(replace(failed, kept_until=NOW),)))
    assert "Your place is kept until <time" in kept
    assert text not in form_html(state(SMALL, CPU, failed=(failed,)), server="exam")


def test_figures_that_do_not_count_everything_say_so() -> None:
    caution = "What others in the cluster use is not counted, so fewer may be free."
    assert caution in form_html(replace(state(SMALL, CPU), caution=caution))
    assert caution not in form_html(state(SMALL, CPU))


def test_gpus_that_were_never_read_are_said_to_be_with_the_reason_where_there_is_one() -> None:
    assert "The GPUs have not been read yet." in form_html(replace(state(SMALL, CPU), as_of=None))
    unread = "The cluster has not been read yet."
    page = form_html(replace(state(SMALL, CPU), as_of=None, caution=unread))
    assert unread in page and "The GPUs have not" not in page


@pytest.mark.parametrize(
    ("closed", "pill", "told"),
    [
        (
            OfferClosing(1, True, NOW, "a <new> fan"),
            "closed by an administrator",
            'An administrator closed it at <time datetime="2026-11-20T14:02:00Z">14:02 UTC</time>. “a &lt;new&gt; fan”',
        ),
        (OfferClosing(1, True, None, ""), "closed by an administrator", "An administrator closed it."),
        (
            OfferClosing(1, False, NOW, "a fan"),
            "full · about 40 min",
            'An administrator closed 1 of them at <time datetime="2026-11-20T14:02:00Z">14:02 UTC</time>. “a fan”',
        ),
        (OfferClosing(2, False, None, ""), "full · about 40 min", "An administrator closed 2 of them."),
        (None, "full · about 40 min", ""),
    ],
)
def test_a_card_that_an_administrator_closed_is_called_so_since_when_and_in_which_words(
    closed: OfferClosing | None, pill: str, told: str
) -> None:
    html = form_html(state(SMALL, replace(BIG, closed=closed), CPU))
    card = html.split('data-offer="mig-2g.10gb"')[1].split("</div>")[0]
    assert pill in re.sub(r"<[^>]+>", "", card.split('data-live="free"')[1]).strip().split("\n")[0]
    assert re.search(r'data-live="closed">(.*?)</span>', card, re.DOTALL)[1].strip() == told  # type: ignore[index]
    assert "wait not known" not in card
    if closed is not None and closed.all:
        assert "You can join the line: it goes on once an administrator opens it again." in card


def test_nobody_is_sent_to_the_line_of_a_closed_card_while_another_is_open() -> None:
    other = replace(BIG, id=OfferId("mig-3g.20gb"), name="Large GPU")
    html = form_html(state(replace(BIG, closed=OfferClosing(1, True, NOW, "a fan")), other, CPU))
    assert 'data-take="mig-3g.20gb" data-go' in html and 'data-take="mig-2g.10gb" data-go' not in html
