"""Folders of tiny pipelines, written once a session."""

from pathlib import Path

import pytest

from tests.image import folders


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pipeline folders by the name of their architecture or, for Stable Diffusion 1.5, of their scheduler."""
    place = tmp_path_factory.mktemp("pipelines")
    found = {name: folders.save_sd15(place / name, name) for name in folders.SCHEDULERS}
    found["sdxl"] = folders.save_sdxl(place / "sdxl")
    found["consistency"] = folders.save_lcm(place / "consistency")
    found["flux"] = folders.save_flux(place / "flux")
    found["flux_dev"] = folders.save_flux(place / "flux_dev", dev=True)
    return found
