"""A setting: a field of a dataclass with everything that an administrator has to know about it.

``idle: timedelta = setting(timedelta(minutes=30), "A server whose …", name="idle_minutes", least=0)`` in a class with
the `section` ``GpuCulling`` defines ``c.GpuCulling.idle_minutes``. Its trait (``spawner/config/traits.py``), its row in
the reference and its place in the service's settings file follow from this one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

UNITS = {"hours": timedelta(hours=1), "minutes": timedelta(minutes=1), "seconds": timedelta(seconds=1)}
"""Word in a setting's name, as in ``idle_minutes`` -> the unit in which the configuration gives its duration."""

RENAMED: Mapping[str, str] = {
    "GpuLine": "GpuQueue",
    "GpuQueue.max_line": "GpuQueue.max_waiting",
    "GpuCulling.extend_lifetime_times": "GpuCulling.max_lifetime_extensions",
    "GpuCulling.notify_url": "GpuCulling.warning_webhook_url",
    "GpuCulling.soft": "GpuCulling.restart_on_cpu",
    "GpuCulling.stops_at_once": "GpuCulling.concurrent_stop_limit",
    "GpuCulling.wanted_minutes": "GpuCulling.contended_idle_minutes",
    "GpuService.public_metrics_token": "GpuService.metrics_token",
    "GpuNotices.after_seconds": "GpuNotices.delay_seconds",
    "GpuNotices.hint": "GpuNotices.channel_text",
    "GpuCluster.drain_nodes": "GpuCluster.allow_node_drain",
    "GpuCluster.forgotten_minutes": "GpuCluster.orphaned_pod_minutes",
    "GpuCluster.fractions_by": "GpuCluster.fraction_scheduler",
    "GpuCluster.outside_seconds": "GpuCluster.unschedulable_seconds",
    "GpuCluster.remove_forgotten": "GpuCluster.delete_orphaned_pods",
    "GpuCluster.servers_url": "GpuCluster.service_connect_url",
    "SignOn.events_days": "SignOn.audit_retention_days",
    "SignOn.orphan_hours": "SignOn.unknown_account_hours",
    "SignOn.server_cache_seconds": "SignOn.token_cache_seconds",
    "SignOn.servers_at_lost_right": "SignOn.servers_at_revocation",
    "SignOn.tokens_at_lost_right": "SignOn.tokens_at_revocation",
    "SingleSignOnOIDCAuthenticator.ask_userinfo": "SingleSignOnOIDCAuthenticator.request_userinfo",
    "SingleSignOnOIDCAuthenticator.group_names": "SingleSignOnOIDCAuthenticator.group_map",
    "SingleSignOnOIDCAuthenticator.groups_keep_hours": "SingleSignOnOIDCAuthenticator.unknown_groups_hours",
    "SingleSignOnOIDCAuthenticator.groups_kept": "SingleSignOnOIDCAuthenticator.synced_groups",
    "SingleSignOnOIDCAuthenticator.reached_at": "SingleSignOnOIDCAuthenticator.issuer_connect_url",
    "GpuSpawnerMixin.gpu_cpu_ask_seconds": "GpuSpawnerMixin.gpu_cpu_service_timeout_seconds",
    "GpuSpawnerMixin.gpu_notice_hint": "GpuSpawnerMixin.gpu_notice_channel_text",
    "GpuSpawnerMixin.gpu_other_options": "GpuSpawnerMixin.gpu_extra_user_options",
    "GpuSpawnerMixin.gpu_patience_seconds": "GpuSpawnerMixin.gpu_service_timeout_seconds",
    "GpuSpawnerMixin.gpu_servers_url": "GpuSpawnerMixin.gpu_service_connect_url",
    "GpuSpawnerMixin.gpu_service_account": "GpuSpawnerMixin.gpu_service_uid",
    "GpuKubeSpawner.gpu_describe_first": "GpuKubeSpawner.gpu_build_pod_before_queueing",
    "GpuKubeSpawner.gpu_outside_seconds": "GpuKubeSpawner.gpu_unschedulable_seconds",
}
"""Earlier names of sections and settings -> today's names, which the error message about an earlier name contains."""

Value = TypeVar("Value")
_KEY = "setting"


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of a setting, from which its trait, its row in the reference and its checks are made.

    Attributes:
        name: name in the configuration, which for a duration contains the unit.
        text: the help for administrators. The unit of a duration is added to it.
        unit: the unit in the name, a key of `UNITS`; "" if the setting is not a duration.
        least, most: limits of a number, or of the numbers in a dict; `None` for no limit. Limits of a duration are in
            its unit.
        variable: environment variable that is read if the configuration does not set the value; "" for none.
        token: minimum length of a token that is sent in an HTTP header; `None` if the setting is not a token.
    """

    name: str
    text: str
    least: float | None = None
    most: float | None = None
    variable: str = ""
    token: int | None = None
    unit: str = ""


def setting(
    default: Value,
    text: str,
    *,
    name: str = "",
    least: float | None = None,
    most: float | None = None,
    variable: str = "",
    token: int | None = None,
    secret: bool = False,
) -> Value:
    """Return a dataclass field that an administrator can set.

    Args:
        default: the value if the administrator sets none.
        text: the help for administrators.
        name: name in the configuration; "" for the field's own name.
        least, most: limits of a number, or of the numbers in a dict; `None` for no limit. Limits of a duration are in
            the unit of the configuration.
        variable: environment variable that is read if the configuration does not set the value; "" for none.
        token: minimum length of a token that is sent in an HTTP header; `None` if the setting is not a token.
        secret: whether the value is left out of ``repr``.
    """
    about = Setting(name, text, least, most, variable, token)
    common: dict[str, Any] = {"repr": not secret, "metadata": {_KEY: about}}
    made: Any = field(default_factory=dict, **common) if isinstance(default, dict) else field(default=default, **common)
    return cast(Value, made)


def settings_in(value: type[Any]) -> Mapping[str, Setting]:
    """Return field name -> setting for a dataclass, in the order of its fields.

    Fields that were not made with `setting` are left out.

    Args:
        value: the dataclass.
    """
    return _settings_in(cast(Any, value))


@cache
def _settings_in(value: Any) -> Mapping[str, Setting]:
    found: dict[str, Setting] = {}
    for each in fields(value):
        about = each.metadata.get(_KEY)
        if about is not None:
            full = about.name or each.name
            unit = next((part for part in full.split("_") if part in UNITS), "")
            found[each.name] = replace(about, name=full, unit=unit)
    return MappingProxyType(found)


def spelled(value: type[Any], name: str) -> str:
    """Return the full name of a setting, such as ``c.GpuCulling.idle_minutes``.

    Args:
        value: the dataclass that has the setting as a field.
        name: name of the field.

    Returns:
        "" if the field is not a setting, that is, was not made with `setting`.
    """
    about = settings_in(value).get(name)
    if about is None:
        return ""
    # a class can inherit from several sections: find the one that defines the field
    *_, owner = (
        each for each in value.__mro__ if is_dataclass(each) and name in {field.name for field in fields(each)}
    )
    return f"c.{cast(Any, owner).section}.{about.name}"


def check_name(section: str, key: str = "") -> None:
    """Refuse the earlier name of a section or setting that was renamed.

    Args:
        section: the section, such as ``GpuCulling``.
        key: name of a setting in the section; "" checks the section's own name.

    Raises:
        ValueError: the name is an earlier one; the message has the present name.
    """
    name = f"{section}.{key}" if key else section
    if name in RENAMED:
        raise ValueError(f"c.{name} is called c.{RENAMED[name]} now.")
