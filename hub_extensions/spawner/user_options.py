"""What the user chose, by the form, by a link or by REST: read, checked and put into its plain form.

Not here: the form itself (``pages/spawn_form.py``), what a choice is (``core/offers/user_options.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.utils import maybe_future
from tornado import web
from traitlets import default
from traitlets.config import LoggingConfigurable

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.user_options import NOTIFY, UserOptionsError, parse_notify, parse_user_options
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.pages.spawn_form import render_form, user_options_from_form

NOT_OPTIONS = ("next", "display_name")
"""What the address of the form may have besides options."""


class UserOptions(LoggingConfigurable):
    """The part of a spawner that reads user options. Refuses what is unknown, and names the field."""

    handler: Any
    """The hub's, while it makes the form."""
    _log_name: str

    gpu_service_url: str
    gpu_other_options: list[str]
    """Settings; see the class that inherits from this one."""

    gpu_linked: Mapping[str, Any] = {}
    """What the link that led to the form chose: the form preselects it, once."""
    _gpu_refused_link: web.HTTPError | None = None

    @default("options_form")
    def _gpu_options_form(self) -> Any:
        return render_form if self.gpu_service_url else self.gpu_form_without_offers()

    def gpu_form_without_offers(self) -> Any:
        """The real spawner's own `options_form`, for a hub without a GPU service; "" for none."""
        return ""

    @default("options_from_form")
    def _gpu_options_from_form(self) -> Callable[[Mapping[str, list[Any]]], dict[str, Any]]:
        return lambda formdata: self._gpu_checked(user_options_from_form(formdata))

    def options_from_query(self, query_data: Mapping[str, list[Any]]) -> Any:
        """``?opt-offer=mig-1g.5gb``: the same check as form and REST. JupyterHub 5 leaves the ``opt-`` on."""
        refused, self._gpu_refused_link = self._gpu_refused_link, None
        if refused is not None:
            raise refused
        prefixed = {key[4:]: value for key, value in query_data.items() if key.startswith("opt-")}
        return self._gpu_from_link(prefixed or query_data)

    def _gpu_from_link(self, fields: Mapping[str, list[Any]]) -> Any:
        return self._gpu_checked(fields)

    async def run_auth_state_hook(self, auth_state: Any) -> None:
        """As the real spawner does. A page calls it just before it looks for a start in its own address.

        A GET starts nothing, for anybody's link can be one: its options are taken out of the address and preselect.
        Those that are refused stay, so that JupyterHub shows the form with the reason.
        """
        await maybe_future(super().run_auth_state_hook(auth_state))  # type: ignore[misc]  # the spawner's
        self.gpu_linked, self._gpu_refused_link = {}, None
        request = self.handler.request if self.handler is not None else None
        if request is None or request.method != "GET":
            return
        given = request.query_arguments
        fields = {
            key: [value.decode(errors="replace") for value in given[key]] for key in given if key not in NOT_OPTIONS
        }
        if not fields:
            return
        try:
            self.gpu_linked = await maybe_future(self.options_from_query(fields))
        except web.HTTPError as error:
            self._gpu_refused_link = error
        else:
            request.query_arguments = {key: given[key] for key in given if key == "next"}

    @default("apply_user_options")
    def _gpu_apply_user_options(self) -> Callable[[Spawner, Mapping[str, Any]], None]:
        return lambda spawner, options: None  # start() reads them; without this the hub logs them as unhandled

    def _gpu_checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options in their plain form. Raises a refusal that names the field and what would be right."""
        others = self.gpu_other_keys(options)
        try:
            offers, notify = self.gpu_offers_of(options), parse_notify(options)
        except UserOptionsError as error:
            raise self._gpu_bad_options(error) from error
        chosen: dict[str, Any] = {"offer": offers[0]} if len(offers) == 1 else {"offers": list(offers)}
        if notify:
            chosen[NOTIFY] = True
        return {**{key: options[key] for key in others if key in options}, **chosen}

    def gpu_offers_of(self, options: object) -> tuple[OfferId, ...]:
        """The offers that user options name, in the user's order. Raises UserOptionsError."""
        return parse_user_options(options, also=self.gpu_other_keys(options))

    def _gpu_bad_options(self, error: UserOptionsError) -> web.HTTPError:
        log = f"{self._log_name}: {error.field}: {error.text}"
        spawn_errors.keep_ends_short(self.log)
        return spawn_errors.refusal(error.reasons, reason="bad-choice", log_message=log)

    def gpu_other_keys(self, options: object) -> tuple[str, ...]:
        """Keys of the user options that are not ours to judge here."""
        return tuple(self.gpu_other_options)

    async def _gpu_check_others(self, options: Mapping[str, Any]) -> None:
        """What can only be checked with time: the real spawner's own choices. Raises a refusal."""

    async def gpu_profiles_form(self) -> str:
        """HTML of the real spawner's own choices, which stand above ours; "" for none."""
        return ""
