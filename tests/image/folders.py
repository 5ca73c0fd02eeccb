"""Tiny random models of the real architectures in the real folder formats of `diffusers`."""

import string
from functools import partial
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    LatentConsistencyModelPipeline,
    LCMScheduler,
    PNDMScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

WIDTH, LENGTH = 16, 24
T5_LENGTH = 40
# As the real folders have them: betas of Stable Diffusion, x0 estimates not clipped.
BETAS = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
SCHEDULERS = {
    "euler": partial(EulerDiscreteScheduler, **BETAS),
    "turbo": partial(EulerDiscreteScheduler, **BETAS, timestep_spacing="trailing"),
    "ancestral": partial(EulerAncestralDiscreteScheduler, **BETAS),
    "ddim": partial(DDIMScheduler, **BETAS, clip_sample=False, set_alpha_to_one=False),
    "lcm": partial(LCMScheduler, **BETAS),
    "dpm": partial(DPMSolverMultistepScheduler, **BETAS),
    "pndm": partial(PNDMScheduler, **BETAS, skip_prk_steps=True),
}
LETTERS = string.ascii_lowercase + string.digits


def clip_tokenizer() -> CLIPTokenizer:
    """A CLIP tokenizer over single characters."""
    words = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS), ",</w>"]
    return CLIPTokenizer(vocab={word: k for k, word in enumerate(words)}, merges=[], model_max_length=LENGTH)


def text_config() -> CLIPTextConfig:
    """A text tower of two layers."""
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


def autoencoder(**extra: object) -> AutoencoderKL:
    """An autoencoder that halves once."""
    return AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=2,
        sample_size=16,
        **extra,
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


def save_sd15(folder: Path, scheduler: str = "pndm") -> Path:
    """Stable Diffusion 1.5, as its repository is: with a scheduler that gives no x0 estimate."""
    torch.manual_seed(0)
    StableDiffusionPipeline(
        vae=autoencoder(),
        text_encoder=CLIPTextModel(text_config()),
        tokenizer=clip_tokenizer(),
        unet=unet(WIDTH),
        scheduler=SCHEDULERS[scheduler](),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    return folder


def save_lcm(folder: Path) -> Path:
    """A latent consistency model that takes its guidance as an input."""
    torch.manual_seed(0)
    LatentConsistencyModelPipeline(
        vae=autoencoder(),
        text_encoder=CLIPTextModel(text_config()),
        tokenizer=clip_tokenizer(),
        unet=unet(WIDTH, time_cond_proj_dim=8),
        scheduler=SCHEDULERS["lcm"](),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    return folder


def save_sdxl(folder: Path) -> Path:
    """Stable Diffusion XL."""
    torch.manual_seed(0)
    StableDiffusionXLPipeline(
        vae=autoencoder(),
        text_encoder=CLIPTextModel(text_config()),
        text_encoder_2=CLIPTextModelWithProjection(text_config()),
        tokenizer=clip_tokenizer(),
        tokenizer_2=clip_tokenizer(),
        unet=unet(
            2 * WIDTH,
            addition_embed_type="text_time",
            addition_time_embed_dim=4,
            projection_class_embeddings_input_dim=WIDTH + 6 * 4,
        ),
        scheduler=SCHEDULERS["euler"](),
        add_watermarker=False,
    ).save_pretrained(folder)
    return folder


def save_flux(folder: Path, *, dev: bool = False) -> Path:
    """Flux schnell, or dev: with guidance as an input and a schedule that depends on the size."""
    torch.manual_seed(0)
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((letter, -3.0) for letter in LETTERS)]
    t5 = T5Config(vocab_size=len(pieces), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=dev),
        vae=autoencoder(scaling_factor=0.36, shift_factor=0.12),
        text_encoder=CLIPTextModel(text_config()),
        tokenizer=clip_tokenizer(),
        text_encoder_2=T5EncoderModel(t5),
        tokenizer_2=T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=T5_LENGTH),
        transformer=FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            pooled_projection_dim=WIDTH,
            axes_dims_rope=(4, 4, 8),
            guidance_embeds=dev,
        ),
    ).save_pretrained(folder)
    return folder


def save_lora(folder: Path, pipeline_folder: Path) -> Path:
    """A LoRA of the UNet of a Stable Diffusion folder: one .safetensors file."""
    from diffusers.utils import convert_state_dict_to_diffusers
    from peft import LoraConfig, get_peft_model_state_dict

    net = UNet2DConditionModel.from_pretrained(pipeline_folder, subfolder="unet")
    torch.manual_seed(1)
    net.add_adapter(LoraConfig(r=2, lora_alpha=2, init_lora_weights=False, target_modules=["to_q", "to_k", "to_v"]))
    layers = convert_state_dict_to_diffusers(get_peft_model_state_dict(net))
    StableDiffusionPipeline.save_lora_weights(folder, unet_lora_layers=layers)
    return folder / "pytorch_lora_weights.safetensors"
