"""A hub of the tests that is killed just before a step of its own code, as ``kill -9`` may do at any moment."""

from __future__ import annotations

from tests.hubs import Hub, until

FILE = "dies-before"
NOTHING_IS_WRITTEN = {
    "a logout token is good": "openid.backchannel:LogoutTokens._end",
    "its id is written": "openid.links:ProviderLinks.mark_due",
    "anything ends": "session_ender:SessionEnder.end",
    "tokens are gone and the session is written": "sign_on:SignOnStore.put",
    "the audit log's line is written": "sign_on:SignOnStore.record",
}
"""What is next when it is killed -> the function of the hub that would do it."""
ALL_IS_WRITTEN = {
    "memory has it": "registry:SessionRegistry.put",
    "a line of the log": "registry:SessionRegistry.be_quiet",
    "servers are asked": "servers:UserServers.ask_again",
    "late tokens are looked for": "session_ender:SessionEnder.delete_late_tokens",
}
A_SERVER_STOPS = {
    "it is stopped": "servers:UserServers.stop",
    "its process ends, its route gone": "user:User.stop",
    "its stop is crossed out": "sign_on:SignOnStore.remove_stop",
}
TAKES_OVER = {"the service takes a stop over": "servers:UserServers.hand_over"}
TELLS_THE_GATE = {"the gate is told": "gate_caller:GateCaller._send"}
_PLACES = {"sign_on": "hub_extensions.adapters.store.sign_on", "user": "jupyterhub.user"}
_CONFIG = """
import os, signal
import hub_extensions.authenticator.session_ender as _ender
from contextvars import ContextVar
from functools import partialmethod
from importlib import import_module
from pathlib import Path

_made_up_for = ContextVar("_made_up_for", default=False)

async def _makes_up_for(self, *args, _whole):
    # what the last death left undone comes to the same steps: that is not what is to die
    _made_up_for.set(True)
    await _whole(self, *args)

for _name in ("_ask_what_comes_back", "_ask_once_more"):
    setattr(_ender.SessionEnder, _name, partialmethod(_makes_up_for, _whole=getattr(_ender.SessionEnder, _name)))

def _dies(self, *args, _step, _whole, **more):
    armed = Path({file!r})
    if armed.exists() and armed.read_text() == _step and not _made_up_for.get():
        armed.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return _whole(self, *args, **more)

for _step, (_module, _owner, _name) in {places!r}.items():
    _owner = getattr(import_module(_module), _owner)
    setattr(_owner, _name, partialmethod(_dies, _step=_step, _whole=getattr(_owner, _name)))
_ender.LATE_SECONDS = 0.2
"""


def config() -> str:
    """Text for the hub's configuration."""
    places = {}
    for step, place in (NOTHING_IS_WRITTEN | ALL_IS_WRITTEN | A_SERVER_STOPS | TAKES_OVER | TELLS_THE_GATE).items():
        module, _, function = place.partition(":")
        owner, _, name = function.partition(".")
        places[step] = (_PLACES.get(module, f"hub_extensions.authenticator.{module}"), owner, name)
    return _CONFIG.format(file=FILE, places=places)


def dies_before(hub: Hub, step: str) -> None:
    """The next time it comes to this step."""
    (hub.folder / FILE).write_text(step)


def again(hub: Hub) -> None:
    """Wait until it is dead, and start it again."""
    until(lambda: not hub.running, 30, lambda: f"the hub dies; its log ends:\n{hub.log()[-2000:]}")
    hub.start()
