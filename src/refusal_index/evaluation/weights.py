"""What tells the weights of a model from others that have the same name: a number that all of them go into.

Every weight counts, since a training may leave most of them as they are: new tokens alone, the last layers, an adapter.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from refusal_index.evaluation.checkpoints import Checkpoint

TAG = 8
"""Letters of a tag."""

AT_ONCE = 1 << 24
"""Numbers that are added up at once, as whole numbers of eight bytes."""


@lru_cache(maxsize=1)  # a watch asks for that of its first checkpoint twice
def weights_digest(one: Checkpoint) -> str:
    """Return a hash of all files of weights of a checkpoint; a second a gigabyte, which loading them reads anyway.

    Raises
    ------
    OSError
        If one of them cannot be read.
    """
    digest = hashlib.sha256()
    for name, size, _ in one.signature:
        if name.endswith((".safetensors", ".bin")):
            digest.update(f"{name} {size} ".encode())
            with (one.path / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, hashlib.sha256).digest())
    return digest.hexdigest()


def weights_tag(model: Any) -> str:
    """Return a few letters that tell a model of torch in memory from itself at another step, or in another training.

    Of each parameter the bits of all numbers are added up where they lie, which takes a pass over the memory; unlike
    a sum of the numbers that is exact, and so the same on every device. Of a parameter that is spread over processes it
    is the part of this one.
    """
    import torch  # noqa: PLC0415 - of models in memory only

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        own = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        bits = own.detach().contiguous().view(whole[own.element_size()]).flatten()
        total = sum(int(part.sum(dtype=torch.int64)) for part in bits.split(AT_ONCE))
        digest.update(f"{name} {total} ".encode())
    return digest.hexdigest()[:TAG]
