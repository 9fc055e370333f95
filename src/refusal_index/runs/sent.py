"""A run's record of what its models were sent: temperature, top-p, seed and token limit, as in the requests.

It is kept under ``sent`` in ``run.json``, by role. A setting that was not sent is null; one that differed between
requests, such as those of two engines, is a list of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import SENT
from refusal_index.errors import RunFolderError
from refusal_index.models.accounts import asked_as
from refusal_index.models.chat_api import rejects_sampling
from refusal_index.models.requests import ModelRequest, provider_of
from refusal_index.models.sent import SETTINGS, Sent
from refusal_index.models.settings import Decoding, Servers
from refusal_index.protocol import Role, is_auxiliary


class SentRecorder:
    """Records what each model is sent, and tells of settings of the run that its model was not sent.

    Parameters
    ----------
    folder
        The run's folder, which is locked; None to record nothing.
    model, decoding
        The model under evaluation, and how it should generate.
    tell
        Called with a line for the user.
    """

    def __init__(
        self,
        folder: RunFolder | None = None,
        model: str = "",
        decoding: Decoding | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._model = model
        self._tell = tell
        self._decoding = decoding or Decoding()
        self._seen: set[tuple[Any, ...]] = set()

    def note(self, request: ModelRequest, sent: Sent | None) -> None:
        """Record the settings that a request sent; nothing if they are unknown, or a plugin asked for its own use."""
        if sent is None or self._folder is None or is_auxiliary(request.conversation.variant):
            return
        role = request.request.role
        key = role, *sent.values()
        if key in self._seen:
            return
        try:
            before = self._folder.read_about().get(SENT) or {}
            merged = merged_settings(before.get(role), sent)
            if merged != before.get(role):
                self._folder.change_about({SENT: {**before, str(role): merged}})
        except (OSError, RunFolderError):
            return  # the next request tries again; what is not recorded is not relied on
        self._seen.add(key)
        if role is Role.MODEL and (line := difference(self._model, self._decoding, sent)):
            self._tell(line)


def merged_settings(before: Mapping[str, Any] | None, sent: Sent) -> dict[str, Any]:
    """Return a record of settings with those of another request.

    Examples
    --------
    >>> merged_settings({"temperature": 0.0, "seed": True}, {"temperature": None, "seed": True})
    {'temperature': [0.0, None], 'seed': True}
    """
    if before is None:
        return dict(sent)
    merged: dict[str, Any] = {}
    for name, value in sent.items():
        earlier = before.get(name)
        values = earlier if isinstance(earlier, list) else [earlier]
        merged[name] = earlier if value in values else [*values, value]
    return merged


def difference(model: str, decoding: Decoding, sent: Sent) -> str | None:
    """Return a line about the settings that a model was not sent, or with another value; None if there are none.

    Examples
    --------
    >>> print(difference("a/b", Decoding(), {"temperature": None, "top_p": None, "max_tokens": 4096, "seed": True}))
    a/b: temperature and top_p were not sent; the provider's defaults apply
    """
    wanted = {**{name: getattr(decoding, name, None) for name in SETTINGS}, "seed": True}
    left_out = [name for name, value in wanted.items() if sent.get(name) is None and value is not None]
    changed = [
        f"{name} was sent as {sent[name]:g} instead of {value:g}"
        for name, value in wanted.items()
        if name not in left_out and sent.get(name) != value
    ]
    parts = [f"{_listed(left_out)} not sent; the provider's defaults apply"] if left_out else []
    return f"{model}: {'; '.join([*parts, *changed])}" if parts or changed else None


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} was"
    return f"{', '.join(names[:-1])} and {names[-1]} were"


def sends_as_set(name: str, servers: Servers) -> bool:
    """Whether the model under evaluation is known beforehand to be sent the temperature of the run.

    It is for the embedded models and on OpenAI-compatible servers; other clients leave out what a provider rejects.

    Examples
    --------
    >>> at_openai, local = (Servers(base_url=url) for url in ("https://api.openai.com/v1", "http://127.0.0.1:8000/v1"))
    >>> sends_as_set("any", local), sends_as_set("o3", at_openai), sends_as_set("anthropic/any", Servers())
    (True, False, False)
    """
    if servers.base_url is not None:
        return not rejects_sampling(*asked_as(servers, Role.MODEL, name))
    plugin, _ = provider_of(name)
    return plugin is not None and plugin.is_embedded
