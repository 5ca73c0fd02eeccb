"""The exceptions a caller may meet.

MmspecError
├── InputError      the request or the configuration is wrong
├── WeightsError    model files are missing, unreachable or corrupt
├── ModelError      a model misbehaved (NaN, wrong shape, mismatched pair)
└── OutputError     the result could not be written
"""


class MmspecError(Exception):
    """Base of every error this package raises on purpose; its message is one line for a person."""


class InputError(MmspecError):
    """The request or the configuration is wrong: says what was given, what was expected."""


class WeightsError(MmspecError):
    """Model files are missing, unreachable or corrupt: says which, and what to do."""


class ModelError(MmspecError):
    """A model misbehaved or two models do not fit: says the stage and the cause."""


class OutputError(MmspecError):
    """The result could not be written: says where and why."""
