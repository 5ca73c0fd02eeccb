"""Co-generation over other models than the embedded ones, from local folders in the formats of the hub, by one override."""

from pathlib import Path

import pytest

from mmspec.api import compose, load, plain
from mmspec.errors import WeightsError
from mmspec.image.diffusers_drafter import DiffusersDrafter
from mmspec.types import Verdict
from mmspec.verify.tiny import save_tiny
from tests.image import folders
from tests.verify.siglip_folder import write_siglip_folder

# diffusers 0.42 converts tensors in a way that numpy 2 frowns upon.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

TEXT = ("lm=tiny", "drafter=tiny", "tree=tiny")
SMALL = (
    "pipeline.num_branches=2",
    "pipeline.num_drafts=1",
    "pipeline.num_steps=3",
    "pipeline.draft_steps=2",
    "pipeline.steps_per_round=1",
    "pipeline.segment_tokens=6",
)
PROMPT = "a robot under an umbrella, neon street, rain"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of each architecture."""
    place = tmp_path_factory.mktemp("models")
    folders.save_sd15(place / "sd15")
    folders.save_sd15(place / "turbo", scheduler="turbo")
    folders.save_lcm(place / "lcm")
    folders.save_sdxl(place / "sdxl")
    folders.save_flux(place / "flux")
    save_tiny(place / "vit", 0)
    write_siglip_folder(place / "siglip")
    return place


@pytest.mark.parametrize(
    ("diffusion", "settings", "verifier"),
    [
        ("sd15", ("diffusion.scheduler=EulerDiscreteScheduler",), "vit"),
        ("lcm", (), "siglip"),
        ("sdxl", ("diffusion.guidance_scale=0", "diffusion.width=32"), "siglip"),
        ("flux", ("diffusion.guidance_scale=0", "diffusion.width=16", "diffusion.height=16"), "vit"),
    ],
)
def test_co_generation_runs_on_a_local_folder(
    models: Path, diffusion: str, settings: tuple[str, ...], verifier: str
) -> None:
    """`diffusion=FOLDER verifier=FOLDER`: a text, a picture of its size, and claims that were judged; twice the same."""
    overrides = [*TEXT, *SMALL, f"diffusion={models / diffusion}", *settings, f"verifier={models / verifier}"]
    pipe = load("cogen", overrides=overrides)
    first, second = (pipe(PROMPT, seed=3, max_tokens=12) for _ in range(2))
    assert first.text == second.text
    assert first.image is not None and second.image is not None
    assert first.image.size == ((32, 16) if diffusion == "sdxl" else (16, 16))
    assert first.image.tobytes() == second.image.tobytes()
    assert any(score.verdict is not Verdict.UNJUDGED for score in first.claims)


@pytest.mark.parametrize("option", ["sd15", "sd_turbo", "lcm", "sdxl_turbo", "flux_schnell"])
def test_named_options_fit_their_architecture(models: Path, option: str) -> None:
    """The option's own settings load a folder of its architecture and draw in its number of steps."""
    folder = {"sd_turbo": "turbo", "sdxl_turbo": "sdxl", "flux_schnell": "flux"}.get(option, option)
    pipe = load(
        "image",
        overrides=[
            f"diffusion={option}",
            f"diffusion.path={models / folder}",
            "diffusion.width=16",
            "diffusion.height=16",
        ],
    )
    result = pipe("an owl", seed=1)
    assert result.image is not None and result.image.size == (16, 16)
    assert result.metrics["num_draft_steps"] == (20 if option == "sd15" else 4)


@pytest.mark.parametrize(("option", "folder"), [("vit_b32", "vit"), ("vit_l14", "vit"), ("siglip2", "siglip")])
def test_named_verifiers_judge(models: Path, option: str, folder: str) -> None:
    """The option's own settings load a folder of its architecture, and claims are judged."""
    pipe = load(
        "cogen",
        overrides=[*TEXT, "diffusion=tiny", *SMALL, f"verifier={option}", f"verifier.path={models / folder}"],
    )
    result = pipe(PROMPT, seed=3, max_tokens=12)
    assert any(score.verdict is not Verdict.UNJUDGED for score in result.claims)


def test_missing_hub_is_one_line(models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The model, the cause and what to do offline."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for overrides, name in (
        (["diffusion=sd_turbo"], "stabilityai/sd-turbo"),
        (["diffusion=some/model"], "some/model"),
        (["lm=some/model", "drafter=lookup"], "some/model"),
        (["diffusion=tiny", "verifier=vit_b32"], "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"),
        (["diffusion=tiny", "verifier=open_clip:ViT-B-16-SigLIP2/webli"], "timm/ViT-B-16-SigLIP2"),
    ):
        with pytest.raises(WeightsError) as caught:
            load("cogen", overrides=[*TEXT, *overrides])
        message = str(caught.value)
        assert name in message and "HF_HUB_OFFLINE is set" in message and "name a folder" in message
        assert "\n" not in message


def test_misspelt_model_name_is_told_the_nearest() -> None:
    """A name of open_clip without weights is no folder either."""
    with pytest.raises(WeightsError, match="ViT-B-32"):
        load("cogen", overrides=[*TEXT, "diffusion=tiny", "verifier=ViT-B-33"])


def test_command_line_forms_are_read_as_meant(models: Path) -> None:
    """A folder, adapters with weights and a name of open_clip, as somebody types them."""
    config = plain(
        compose(
            [
                f"diffusion={models / 'sd15'}",
                "diffusion.loras=[{path: ink.safetensors, weight: 0.8}, other/style]",
                "verifier=ViT-B-32",
            ]
        )
    )
    assert config["diffusion"]["_target_"].endswith(DiffusersDrafter.__name__)
    assert config["diffusion"]["path"] == str(models / "sd15")
    assert config["diffusion"]["loras"] == [{"path": "ink.safetensors", "weight": 0.8}, "other/style"]
    assert config["verifier"]["path"] == "ViT-B-32"
    assert config["pipeline"]["num_steps"] == config["diffusion"]["num_steps"]
