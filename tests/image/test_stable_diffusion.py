"""The Stable Diffusion drafter on tiny random models of the real architectures, in the real folder formats."""

import functools
import string
from pathlib import Path

import pytest
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    LCMScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from mmspec.errors import InputError, WeightsError
from mmspec.image.stable_diffusion import StableDiffusionDrafter

# diffusers 0.42 converts tensors in a way that numpy 2 frowns upon.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

WIDTH, LENGTH = 16, 24
# Matrix products and convolutions of another batch size add in another order.
BATCH_TOLERANCE = 1e-4
SCHEDULERS = {
    "euler": EulerDiscreteScheduler,
    "ancestral": EulerAncestralDiscreteScheduler,
    "ddim": functools.partial(DDIMScheduler, clip_sample=False),
    "lcm": LCMScheduler,
    "dpm": DPMSolverMultistepScheduler,
}


def tokenizer() -> CLIPTokenizer:
    """A CLIP tokenizer over single characters."""
    letters = string.ascii_lowercase + string.digits
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    return CLIPTokenizer(vocab={word: k for k, word in enumerate(words)}, merges=[], model_max_length=LENGTH)


def text_config() -> CLIPTextConfig:
    """A text tower of one layer."""
    return CLIPTextConfig(
        vocab_size=80,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
        projection_dim=WIDTH,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )


def autoencoder() -> AutoencoderKL:
    """An autoencoder that halves once."""
    return AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=2,
        sample_size=16,
    )


def unet(cross_width: int, **extra: object) -> UNet2DConditionModel:
    """A UNet of one cross-attention level."""
    return UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=cross_width,
        attention_head_dim=4,
        norm_num_groups=2,
        **extra,
    )


def save_sd(folder: Path, scheduler: str) -> Path:
    """A Stable Diffusion 1.5 folder."""
    torch.manual_seed(0)
    StableDiffusionPipeline(
        vae=autoencoder(),
        text_encoder=CLIPTextModel(text_config()),
        tokenizer=tokenizer(),
        unet=unet(WIDTH),
        scheduler=SCHEDULERS[scheduler](steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    return folder


def save_sdxl(folder: Path) -> Path:
    """A Stable Diffusion XL folder."""
    torch.manual_seed(0)
    StableDiffusionXLPipeline(
        vae=autoencoder(),
        text_encoder=CLIPTextModel(text_config()),
        text_encoder_2=CLIPTextModelWithProjection(text_config()),
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer(),
        unet=unet(
            2 * WIDTH,
            addition_embed_type="text_time",
            addition_time_embed_dim=4,
            projection_class_embeddings_input_dim=WIDTH + 6 * 4,
        ),
        scheduler=EulerDiscreteScheduler(steps_offset=1),
        add_watermarker=False,
    ).save_pretrained(folder)
    return folder


def load(folder: Path, *, guidance_scale: float = 3.0) -> StableDiffusionDrafter:
    """A drafter in float32."""
    return StableDiffusionDrafter(
        str(folder),
        device="cpu",
        dtype="float32",
        guidance_scale=guidance_scale,
        emphasis_scale=1.0,
        negative_prompt="",
    )


@pytest.mark.parametrize("name", ["euler", "ancestral", "ddim", "lcm", "sdxl"])
def test_pixels_do_not_depend_on_the_batch(tmp_path: Path, name: str) -> None:
    """Also with schedulers that draw noise at every step, and with drafts at different steps."""
    folder = save_sdxl(tmp_path) if name == "sdxl" else save_sd(tmp_path, name)
    drafter = load(folder)
    drafts = drafter.start(["an owl", "a red car"], [1, 2], num_steps=4)
    drafts = [drafts[0], *drafter.advance(drafts[1:], 1)]
    together = drafter.preview(drafter.advance(drafts, 2, emphasis=[None, "an owl"]))
    for k, draft in enumerate(drafts):
        (alone,) = drafter.preview(drafter.advance([draft], 2, emphasis=[None if k == 0 else "an owl"]))
        torch.testing.assert_close(alone.pixels, together[k].pixels, atol=BATCH_TOLERANCE, rtol=0)
    assert together[0].noise_level > together[1].noise_level > 0
    (image,) = drafter.finish(drafts[:1])
    assert image.size == (16, 16)


def test_a_draft_is_a_value(tmp_path: Path) -> None:
    """Advancing twice from the same draft gives the same bytes: scheduler and noise are not shared."""
    drafter = load(save_sd(tmp_path, "lcm"), guidance_scale=1.0)
    (draft,) = drafter.start(["an owl"], [1], num_steps=3)
    first, second = (drafter.finish([draft])[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_renoise_goes_back_and_forward_again(tmp_path: Path) -> None:
    """A finished draft at level 0.9 has steps to do again, from fresh noise fixed by its seed."""
    drafter = load(save_sd(tmp_path, "euler"))
    (draft,) = drafter.advance(drafter.start(["an owl"], [1], num_steps=4), 4)
    again = drafter.renoise(draft, 0.9, seed=3)
    assert 0 < again.step < 4
    assert torch.equal(again.latents, drafter.renoise(draft, 0.9, seed=3).latents)
    assert drafter.finish([again])[0].size == (16, 16)
    with pytest.raises(InputError, match="noise level"):
        drafter.renoise(draft, 0.0, seed=3)


def test_scheduler_without_x0_is_refused(tmp_path: Path) -> None:
    """A multistep solver gives nothing to look at midway: the message names what does."""
    drafter = load(save_sd(tmp_path, "dpm"))
    with pytest.raises(WeightsError, match="EulerDiscreteScheduler"):
        drafter.advance(drafter.start(["an owl"], [1], num_steps=2), 1)
