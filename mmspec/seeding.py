"""Named random streams: every draw takes a generator from here, none touches the global state.

Text, picture and request streams are independent, so switching one on never changes another.
"""

import hashlib

import torch


def derive(seed: int, stream: str, index: int | str = 0) -> int:
    """A 63-bit seed for one named stream.

    Derived by SHA-256 from the root seed, the stream's name and an index (a number or a branch id), so
    that streams are independent of each other and of how many others exist.
    """
    digest = hashlib.sha256(f"{seed}/{stream}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, stream: str, index: int | str = 0) -> torch.Generator:
    """A CPU generator for one named stream (always CPU: the same draws on every device)."""
    return torch.Generator().manual_seed(derive(seed, stream, index))
