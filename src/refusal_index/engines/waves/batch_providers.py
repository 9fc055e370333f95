"""The providers whose batches are understood, each imported only where it is asked."""

from __future__ import annotations

from importlib import import_module

from refusal_index.engines.waves.batch_provider import Provider

HERE = "refusal_index.engines.waves"
PROVIDERS = {
    "anthropic": f"{HERE}.batch_anthropic:AnthropicBatches",
    "google": f"{HERE}.batch_gemini:GeminiBatches",
    "mistral": f"{HERE}.batch_mistral:MistralBatches",
}
"""Those with an API of their own."""

COMPATIBLE = f"{HERE}.batch_openai:OpenAIBatches"
"""That of OpenAI, which other servers speak as well."""


def provider_of(name: str, timeout: float) -> Provider:
    """Return who takes the batches for a model.

    Parameters
    ----------
    name
        Of the model.
    timeout
        Seconds that the server may take for any step of a request.

    Raises
    ------
    ModelError
        If its address, its key or its client is missing.
    """
    module, _, found = PROVIDERS.get(name.partition("/")[0], COMPATIBLE).partition(":")
    made: Provider = getattr(import_module(module), found)(name, timeout)
    return made
