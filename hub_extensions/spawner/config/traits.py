"""The sections of ``jupyterhub_config.py``, generated from dataclasses of ``core`` such as `OfferConfig`.

Each field made by `setting` (``core/settings.py``) becomes a trait, whose type, default and help follow from the field.
`Section.build` turns the traits that an administrator has set into an instance of the dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints

from traitlets import Bool, Dict, Enum, Float, HasTraits, Int, List, TraitType, Unicode
from traitlets import Union as OneOf

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.notices import NoticeConfig
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.settings import UNITS, Setting, settings_in, spelled
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.gate_config import GateConfig

Trait = TraitType[Any, Any]
_NUMBERS: Mapping[type, type[Int[Any, Any] | Float[Any, Any]]] = {int: Int, float: Float, timedelta: Float}


class Section(HasTraits):
    """A section of ``jupyterhub_config.py`` such as ``c.GpuOffers``, with one trait for each setting.

    Subclasses are made by `section_of`.

    Attributes:
        value: the dataclass of ``core`` whose settings are the section's traits.
    """

    value: ClassVar[type[Any]]

    def build(self) -> Any:
        """Return an instance of the dataclass `value` with the values that the traits of this section have.

        Raises:
            ValueError: a duration is too long for a `timedelta`; the text names the setting.
        """
        kinds = _types_of(cast(Any, self.value))
        built = {}
        for name, about in settings_in(self.value).items():
            try:
                built[name] = _built(kinds[name], getattr(self, about.name), about)
            except OverflowError:
                raise ValueError(
                    f"{spelled(self.value, name)} is too large: at most {timedelta.max.days} days can be counted."
                ) from None
        return self.value(**built)


@cache
def _types_of(value: Any) -> Mapping[str, Any]:
    return get_type_hints(value)


def section_of(value: type[Any]) -> type[Section]:
    """Return the section class for a dataclass of ``core`` such as `OfferConfig`.

    The class has the name `value.section`.
    """
    return _section_of(cast(Any, value))


@cache
def _section_of(value: Any) -> type[Section]:
    kinds, by_name = _types_of(value), {each.name: each for each in fields(value)}
    traits = {
        about.name: _trait(kinds[name], about, **_default(by_name[name], about)).tag(config=True)
        for name, about in settings_in(value).items()
    }
    return type(value.section, (Section,), {"__doc__": value.__doc__, "value": value, **traits})


def _trait(kind: Any, about: Setting, **more: Any) -> Trait:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        [kind] = [each for each in inner if each is not NoneType]
        return _trait(kind, about, allow_none=True, **more)
    if origin is Literal:
        return Enum(inner, **more)
    if origin is tuple:
        return List(_trait(inner[0], about), **more)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return Dict(key_trait=Unicode(), value_trait=_trait(inner[1], about), **more)
    if kind is Any:  # a dict, or the path of a file that contains it
        return OneOf([Dict(key_trait=Unicode()), Unicode()], **more)
    if kind in _NUMBERS:
        return _NUMBERS[kind](min=about.least, max=about.most, **more)
    plain: Mapping[Any, type[Trait]] = {bool: Bool, str: Unicode}
    return plain[kind](**more)


def _default(field: Field[Any], about: Setting) -> Mapping[str, Any]:
    """Return the arguments ``default_value`` and ``help`` with which the trait of a setting is created.

    The default is written as an administrator would write it, so a duration is a number of units. The help names the
    unit.

    Args:
        field: the field of the dataclass, with the default.
        about: the help and the unit of the setting.
    """
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    if isinstance(default, timedelta):
        default = default / UNITS[about.unit]
    help_text = f"{about.text} Unit: {about.unit}." if about.unit else about.text
    return {"default_value": list(default) if isinstance(default, tuple) else default, "help": help_text}


def _built(kind: Any, written: Any, about: Setting) -> Any:
    """Convert an administrator's value to the type of the field: numbers to durations, lists to tuples.

    Args:
        kind: type of the field.
        written: the value as the administrator wrote it; None only for a field that may be None.
        about: the setting, which has the unit of durations.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        [kind] = [each for each in inner if each is not NoneType]
        return None if written is None else _built(kind, written, about)
    if origin is tuple:
        return tuple(_built(inner[0], each, about) for each in written)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _built(inner[1], each, about) for key, each in written.items()}
    return written * UNITS[about.unit] if kind is timedelta else written


GpuOffers = section_of(OfferConfig)
GpuQueue = section_of(QueueLimits)
GpuCulling = section_of(CullPolicy)
GpuService = section_of(ServiceConfig)
GpuNotices = section_of(NoticeConfig)
GpuCluster = section_of(ClusterConfig)
SignOn = section_of(SignOnConfig)
SignOnGate = section_of(GateConfig)

SECTIONS: tuple[type[Section], ...] = (
    GpuOffers,
    GpuQueue,
    GpuCulling,
    GpuService,
    GpuNotices,
    GpuCluster,
    SignOn,
    SignOnGate,
)
"""Every section of the configuration, in the order the reference lists them."""
