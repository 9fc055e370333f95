"""Inspect as the engine: its providers and logs, driven by the two-pass protocol."""

from refusal_index.engines.asks import check_names

PRIVATE = (
    "inspect_ai._util.error:PrerequisiteError",
    "inspect_ai._util.registry:registry_find",
    "inspect_ai._util.registry:registry_unqualified_name",
    "inspect_ai.log._recorders:eval",
    "inspect_ai.model._providers.util:hooks",
    "inspect_ai.util._display:init_display_type",
)
"""Names that Inspect does not promise to keep; another release may lack them."""

check_names("inspect-ai", PRIVATE)
