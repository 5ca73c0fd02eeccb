"""From what a person asked to the ids that a model continues.

Knows chat templates; knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmspec.errors import InputError


@dataclass(frozen=True)
class PromptTemplate:
    """Wraps a prompt for an instruction-tuned model.

    `user` holds `{prompt}` where the request goes; `system` may be empty; `opening` starts the model's own
    answer and is not part of the text. Raises `InputError` without the place for the prompt.
    """

    user: str
    system: str = ""
    opening: str = ""

    def __post_init__(self) -> None:
        if "{prompt}" not in self.user:
            raise InputError(f"template {self.user!r} has no {{prompt}}: nothing of the request would reach the model")

    def render(self, tokenizer: Any, prompt: str) -> str:
        """The text that the model continues, in the tokenizer's own chat format."""
        messages = [{"role": "user", "content": self.user.replace("{prompt}", prompt)}]
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        if tokenizer.chat_template is None:
            return "\n\n".join([*(message["content"] for message in messages), self.opening])
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return str(rendered) + self.opening


@dataclass(frozen=True)
class CompletionTemplate:
    """A text that the model continues as it stands, without chat format: examples teach it the form.

    `text` holds `{prompt}` where the request goes. Raises `InputError` without the place for the prompt.
    """

    text: str

    def __post_init__(self) -> None:
        if "{prompt}" not in self.text:
            raise InputError(f"template {self.text!r} has no {{prompt}}: nothing of the request would reach the model")

    def render(self, tokenizer: Any, prompt: str) -> str:
        """The text that the model continues."""
        return str(tokenizer.bos_token or "") + self.text.replace("{prompt}", prompt)


Template = PromptTemplate | CompletionTemplate
"""What `TextDecoder.start` takes."""


def beginning(template: Template, tokenizer: Any) -> str:
    """What every text of the template begins with, up to the prompt."""
    return template.render(tokenizer, "{prompt}").partition("{prompt}")[0]
