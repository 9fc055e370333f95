"""The embedded default: a small language model of a closed, made-up world, its runtime and its server.

The model knows the almanac's facts and nothing else. It makes the whole pipeline run for real without a key, a download
or an accelerator; what it says about anything outside the almanac is worth nothing.

The modules need the packages of the extra ``eval``; importing this one loads none of them.
"""

ALMANAC = "almanac"
"""What the questions are called, and the provider of the models."""
