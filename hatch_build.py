"""Puts `conf/` inside the package in a wheel, where `mmspec.configuration` looks for it.

A hook rather than a plain `force-include`: that would copy the files into an editable installation too,
where they would go stale beside the ones in the repository.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConfInWheel(BuildHookInterface):  # type: ignore[type-arg]
    """Maps `conf` to `mmspec/conf` for every wheel that is not an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the mapping to what the builder is about to do."""
        if version == "standard":
            build_data["force_include"]["conf"] = "mmspec/conf"
