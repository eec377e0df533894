"""Storage of the keys that sign assertions: the gate's folder, or the database that several gates share."""

from __future__ import annotations

from hub_extensions.adapters.provider.assertions import AssertionKeys, KeyFolder, SharedKeys
from hub_extensions.adapters.store.database import parse_url
from hub_extensions.adapters.store.gate import GateStore
from hub_extensions.gate.settings import GateSettings


def keys_of(settings: GateSettings, store: GateStore | None = None) -> AssertionKeys:
    """Return the storage of the keys that sign assertions (the tokens that identify a caller to an app).

    Args:
        settings: the settings of the gate.
        store: the gate's database if the caller has opened it already; `None` to open it if it is where the keys are.

    Raises:
        StoreUnavailable: the database cannot be opened.
    """
    if parse_url(settings.store_url).get_backend_name() != "postgresql":
        return KeyFolder(settings.folder)
    return SharedKeys(store or GateStore.open(settings.store_url), settings.client_secret)
