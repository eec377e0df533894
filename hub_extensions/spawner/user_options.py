"""Read a user's choice from the spawn form, a link or the REST API, and check it.

A choice goes through three steps. It is *parsed* here into one `UserOptions` value
(``core/offers/user_options.py``), *checked* against what the real spawner offers (`_gpu_check_others`), and *applied*
when the server starts (``base.py``, and ``pods/apply_request.py`` on Kubernetes).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.utils import maybe_future
from tornado import web
from traitlets import default
from traitlets.config import LoggingConfigurable

from hub_extensions.core.offers.user_options import UserOptions, UserOptionsError
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.pages.spawn_form import render_form

NOT_OPTIONS = ("next", "display_name")
"""Query parameters in the URL of the spawn form that are not options of a start."""


class UserOptionsMixin(LoggingConfigurable):
    """Mixin of our spawners that reads user options. An unknown or wrong option is refused, with its name."""

    handler: Any
    """The hub's request handler, while the hub renders the form."""
    _log_name: str

    gpu_service_url: str
    gpu_extra_user_options: list[str]
    """`gpu_service_url` and this one are settings, which `GpuSpawnerMixin` defines."""

    gpu_linked: UserOptions | None = None
    """Options of the link by which the user opened the form; the form preselects them. None without such a link."""
    _gpu_refused_link: web.HTTPError | None = None

    @default("options_form")
    def _gpu_options_form(self) -> Any:
        return render_form if self.gpu_service_url else self.gpu_form_without_offers()

    def gpu_form_without_offers(self) -> Any:
        """Return the `options_form` for a hub without a GPU service.

        That is the form of the spawner behind this mixin, or "" if this spawner has none.
        """
        return ""

    @default("options_from_form")
    def _gpu_options_from_form(self) -> Callable[[Mapping[str, list[Any]]], Any]:
        return self._gpu_from_form

    def _gpu_from_form(self, fields: Mapping[str, list[Any]]) -> Any:
        return self._gpu_parsed(UserOptions.from_form, fields, self.gpu_other_keys).to_dict()

    def options_from_query(self, query_data: Mapping[str, list[Any]]) -> Any:
        """Return the user options in a link such as ``?opt-offer=mig-1g.5gb``, checked as those of the form.

        Args:
            query_data: the link's arguments. JupyterHub 6 removes the prefix ``opt-`` of their names, JupyterHub 5 does
                not.
        """
        refused, self._gpu_refused_link = self._gpu_refused_link, None
        if refused is not None:
            raise refused
        prefixed = {key[4:]: value for key, value in query_data.items() if key.startswith("opt-")}
        return self._gpu_from_link(prefixed or query_data)

    def _gpu_from_link(self, fields: Mapping[str, list[Any]]) -> Any:
        return self._gpu_checked(fields).to_dict()

    async def run_auth_state_hook(self, auth_state: Any) -> None:
        """Run the hook of the spawner behind this mixin. Then move the options of a link from the URL to the form.

        JupyterHub calls this just before it looks for options in the URL of a GET request. If it found any, it would
        start the server at once. But a GET must not start a server, because anybody can send a user a link. Options
        that are refused stay in the URL, so that JupyterHub shows the form with the reason.
        """
        await maybe_future(super().run_auth_state_hook(auth_state))  # type: ignore[misc]  # the spawner's
        self.gpu_linked, self._gpu_refused_link = None, None
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
            self.gpu_linked = self._gpu_checked(await maybe_future(self.options_from_query(fields)))
        except web.HTTPError as error:
            self._gpu_refused_link = error
        else:
            request.query_arguments = {key: given[key] for key in given if key == "next"}

    @default("apply_user_options")
    def _gpu_apply_user_options(self) -> Callable[[Spawner, Mapping[str, Any]], None]:
        return lambda spawner, options: None  # start() reads them; without this the hub logs them as unhandled

    def _gpu_checked(self, user_options: object) -> UserOptions:
        """Parse the ``user_options`` of a start, and refuse them if one is unknown or wrong.

        Raises:
            web.HTTPError: a refusal that names the field and what would be right.
        """
        return self._gpu_parsed(UserOptions.from_dict, user_options, self.gpu_other_keys)

    def _gpu_parsed(self, parse: Callable[..., UserOptions], *arguments: Any) -> UserOptions:
        try:
            return parse(*arguments)
        except UserOptionsError as error:
            raise self._gpu_bad_options(error) from error

    def gpu_saved(self, user_options: object) -> UserOptions | None:
        """Parse options of an earlier start. None if nothing was chosen, or if they are not valid any more."""
        try:
            return UserOptions.from_dict(user_options, self.gpu_other_keys) if user_options else None
        except UserOptionsError:
            return None

    def _gpu_bad_options(self, error: UserOptionsError) -> web.HTTPError:
        log = f"{self._log_name}: {error.field}: {error.text}"
        spawn_errors.install_short_logs(self.log)
        return spawn_errors.refusal(error.reasons, reason="bad-choice", log_message=log)

    @property
    def gpu_other_keys(self) -> Collection[str] | None:
        """Keys of ``user_options`` that are accepted beside this product's own.

        None if the spawner behind this mixin accepts any key, and checks it later.
        """
        return tuple(self.gpu_extra_user_options)

    async def _gpu_check_others(self, options: UserOptions) -> None:
        """Check the options of the spawner behind this mixin, such as a profile, before the start joins the line.

        Raises:
            web.HTTPError: an option is wrong.
        """

    async def gpu_profiles_form(self) -> str:
        """Return the HTML of the choices of the spawner behind this mixin, such as profiles; "" without choices.

        The choices stand above the offers on the spawn form.
        """
        return ""
