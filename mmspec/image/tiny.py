"""An embedded drafter of a few thousand random parameters, for tests: real classes, no weights, pictures of noise."""

from __future__ import annotations

import string

import torch

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.flow import Guidance
from mmspec.embedded.pipeline import EmbeddedModels
from mmspec.embedded.text_encoder import TextEncoder
from mmspec.embedded.transformer import DiffusionTransformer
from mmspec.image.embedded import EmbeddedDrafter

__all__ = ["tiny_drafter", "tiny_models", "tiny_text_encoder"]

_TEXT_WIDTH = 16


def tiny_drafter(seed: int, num_steps: int = 8, draft_steps: int = 6) -> EmbeddedDrafter:
    """A drafter of random weights that are fixed by `seed`; it draws 32x32 pictures."""
    guidance = Guidance(scale=3.0, emphasis_scale=2.0, early_scale=1.5, early_time=0.95)
    drafter = EmbeddedDrafter.from_models(tiny_models(seed), tiny_text_encoder(seed), guidance)
    drafter.num_steps, drafter.draft_steps = num_steps, draft_steps
    return drafter


def tiny_models(seed: int) -> EmbeddedModels:
    """Autoencoder, transformer and scheduler; every layer is random, also those that training starts at zero."""
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vae = Autoencoder(latent_channels=4, channels=(8, 8, 16)).eval()
        transformer = DiffusionTransformer(
            latent_channels=4, size=2, width=16, depth=2, num_heads=2, text_width=_TEXT_WIDTH
        ).eval()
        for parameter in transformer.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return EmbeddedModels(vae, transformer, FlowMatchEulerDiscreteScheduler())


def tiny_text_encoder(seed: int) -> TextEncoder:
    """A random BERT over single characters."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    letters = string.ascii_lowercase + string.digits + string.punctuation
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(models.WordPiece({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=_TEXT_WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(config)
    return TextEncoder.from_models(PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]"), model)
