"""Inspect's providers as clients, its tasks for `inspect eval refusal_index/...`, and its logs as first passes."""

from refusal_index.models.asks import check_names

PRIVATE = (
    "inspect_ai._util.error:PrerequisiteError",
    "inspect_ai._util.registry:registry_find",
    "inspect_ai._util.registry:registry_unqualified_name",
    "inspect_ai.model._model:use_model_event_sink",
    "inspect_ai.model._providers.util:hooks",
)
"""Names that Inspect does not promise to keep; another release may lack them."""

check_names("inspect-ai", PRIVATE)
