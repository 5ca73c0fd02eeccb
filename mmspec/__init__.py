"""One prompt in, one coherent text and picture out.

    import mmspec
    pipe = mmspec.load("cogen", overrides=["policy=strict"])
    result = pipe("cyberpunk rainy street", seed=7)
    result.text, result.image, result.claims, result.verified
    result.save("street")

Importing is cheap: models, torch and the configuration library come with the first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmspec.api import load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from mmspec.api import load

        return load
    raise AttributeError(f"module 'mmspec' has no attribute {name!r}")
