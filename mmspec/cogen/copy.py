"""Copy: what the language model is asked to write beside the picture, and how freely.

Knows words and sampling settings; knows no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmspec.errors import InputError
from mmspec.text.prompt import CompletionTemplate, PromptTemplate, Template
from mmspec.text.types import SamplingParams

__all__ = ["Copy", "copy_from_file"]


@dataclass(frozen=True)
class Copy:
    """One kind of copy: the template that wraps the prompt, and the fields of `SamplingParams` it is tuned for.

    As configured: lists in place of tuples, `json_schema` also as a mapping.

    Raises `InputError` for a sampling field that does not exist or is out of range.
    """

    template: Template
    sampling: dict[str, Any]

    def __post_init__(self) -> None:
        self.params(1)

    def params(self, max_tokens: int) -> SamplingParams:
        """How freely it is written, for a text of at most `max_tokens` tokens."""
        fields: dict[str, Any] = {"max_tokens": max_tokens} | self.sampling
        try:
            for name in ("stop", "stop_token_ids"):
                fields[name] = tuple(fields.get(name, ()))
            fields["logit_bias"] = tuple((int(token), float(by)) for token, by in fields.get("logit_bias", ()))
            if isinstance(fields.get("json_schema"), dict):
                fields["json_schema"] = json.dumps(fields["json_schema"])
            if fields.get("json_schema") or fields.get("regex"):
                fields["stop"] = ()  # those of the template end plain sentences; a grammar knows its own end
            return SamplingParams(**fields)
        except (TypeError, ValueError) as error:
            raise InputError(f"copy.sampling has an unknown or misshapen field: {error}") from error


def copy_from_file(path: str, sampling: dict[str, Any], *, continued: bool) -> Copy:
    """A template of the user's own: a UTF-8 text file that holds "{prompt}" where the prompt goes.

    The model answers it as a request or, if `continued`, goes on with it as it stands.
    Raises `InputError` if the file cannot be read or has no place for the prompt.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"copy.path={path}: cannot read the template as UTF-8 text ({error})") from error
    return Copy(CompletionTemplate(text.strip()) if continued else PromptTemplate(text.strip()), sampling)
