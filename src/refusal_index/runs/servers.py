"""The servers of a run: which settings name them, and at which addresses its models were asked.

The addresses are recorded in ``run.json`` without credentials, outside the identity of the run. No request is ever sent
to an address from there: a folder may come from a stranger.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import ASKED_AT, NAMED_BY_SERVER, addresses_in
from refusal_index.findings.metrics import Statement
from refusal_index.findings.models_asked import several_addresses
from refusal_index.models.accounts import account_for, address_of
from refusal_index.models.functions import is_function_name
from refusal_index.models.settings import ADDRESS_NOT_GIVEN, SettingError
from refusal_index.protocol import Role
from refusal_index.runs.engines import DIRECT, engine_of
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, open_store


def check_servers(settings: Settings, names: Mapping[Role, str], objects: Container[str] = ()) -> None:
    """Raise if an address or the variable of a key is given that would not be used, or names two models alike.

    Parameters
    ----------
    settings, names, objects
        The settings of a run, the names of the models that it asks, by role, and those of models and functions in
        memory.

    Raises
    ------
    SettingError
        The message says what to add or to leave out.
    """
    servers = settings.servers
    asked = {role: name for role, name in names.items() if not is_function_name(name) and name not in objects}
    for role, prefix, asks in (
        (Role.MODEL, "", Role.MODEL in asked),
        (Role.GRADER, "grader_", any(role is not Role.MODEL for role in asked)),
    ):
        url, variable = servers.of_role(role)
        if variable is not None and url is None:
            raise SettingError(
                f"{{{prefix}api_key_env}}: requires {{{prefix}base_url}}; add the address that receives the key, or "
                "leave it out: a model of a provider takes its key from the provider's own variable"
            )
        if variable is not None and url is not None and "@" in url.partition("://")[2].partition("/")[0]:
            raise SettingError(
                f"{{{prefix}api_key_env}}: has no effect, since the address holds a login; leave out one of the two"
            )
        if url and not asks:
            expected = "a model of a server as {model}" if role is Role.MODEL else "a model as {grader}"
            raise SettingError(f"{{{prefix}base_url}}: expected {expected}, got none; leave it out, or name one")
    for role, name in asked.items():
        if role is not Role.MODEL and "/" not in name and servers.grader_base_url is None:
            raise SettingError(
                f"grader {name!r}: expected PROVIDER/NAME; for a server's own name, add its address with "
                "{grader_base_url}"
            )
    addresses = {(name, servers.of_role(role).base_url) for role, name in asked.items()}
    if settings.sending.engine != DIRECT and len(addresses) > len(set(asked.values())):
        raise SettingError(
            f"{{grader}}: expected another name than that of the model, {settings.model!r}, since both are at "
            f"different addresses; {{engine}} {DIRECT} can ask both, {settings.sending.engine} cannot"
        )


def as_in_folder(settings: Settings, before: Mapping[str, Any]) -> Settings:
    """Return settings under which models are named as in a run's folder, by a provider or by a server.

    Parameters
    ----------
    settings
        The settings, with the addresses that the user gives.
    before
        The settings of the folder.

    Raises
    ------
    SettingError
        If an address is given for a model that no server named.
    """
    given = settings.servers
    grader = before.get("grader") or {}
    urls = {}
    for name, named in (("base_url", before.get(NAMED_BY_SERVER)), ("grader_base_url", grader.get(NAMED_BY_SERVER))):
        url = getattr(given, name)
        if url is not None and not named:
            raise SettingError(f"{{{name}}}: this run did not ask that model at a server; leave it out")
        urls[name] = ADDRESS_NOT_GIVEN if named and url is None else url
    return replace(settings, servers=replace(given, **urls))


def check_addresses(settings: Settings, names: Mapping[Role, str]) -> None:
    """Raise ModelError if the address of a model is missing that a server named when its run was made."""
    for role, name in names.items():
        url = settings.servers.of_role(role).base_url
        if url == ADDRESS_NOT_GIVEN and engine_of(settings.sending.engine).uses_addresses:
            account_for(role, name, settings)


def record_addresses(folder: RunFolder, store: ReplyStore, settings: Settings, names: Mapping[Role, str]) -> None:
    """Record the addresses at which a run asks its models; hold the folder's lock."""
    merged = _addresses_so_far(folder, store, settings, names)
    if merged != addresses_in(folder.read_about()):
        folder.change_about({ASKED_AT: merged})


def other_addresses(folder: RunFolder, settings: Settings, names: Mapping[Role, str]) -> tuple[Statement, ...]:
    """Return what to say before a run is resumed at other addresses than those of its folder."""
    if not folder.run_json.exists():
        return ()
    before = addresses_in(folder.read_about())
    with open_store(folder, made=False) as store:
        now = _addresses_so_far(folder, store, settings, names)
    return several_addresses({role: addresses for role, addresses in now.items() if before.get(role) != addresses})


def _addresses_so_far(
    folder: RunFolder, store: ReplyStore, settings: Settings, names: Mapping[Role, str]
) -> dict[str, list[str]]:
    """Return the addresses by role: of models that have replied before, those of earlier commands come first."""
    addresses = addresses_in(folder.read_about())
    if not engine_of(settings.sending.engine).uses_addresses:
        return addresses
    for role in names:
        if url := settings.servers.of_role(role).base_url:
            earlier = addresses.get(role, []) if store.has_reply_from(role) else []
            addresses[str(role)] = list(dict.fromkeys([*earlier, address_of(url)]))
    return addresses
