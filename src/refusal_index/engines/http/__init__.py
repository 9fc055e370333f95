"""The engine that asks any server that speaks OpenAI's chat API, by the official client."""

from refusal_index.engines.asks import check_names

check_names("openai", ("openai:AsyncOpenAI", "openai:DefaultAioHttpClient"))
