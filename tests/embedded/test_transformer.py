"""What the diffusion transformer may and may not depend on, tiny and random."""

import pytest
import torch

from mmspec.embedded.transformer import DiffusionTransformer
from mmspec.errors import InputError
from mmspec.image.tiny import tiny_models

# Matrix products of another shape add in another order.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def model() -> DiffusionTransformer:
    """A tiny transformer whose every layer is random."""
    return tiny_models(0).transformer


def inputs(num_tokens: int) -> dict[str, torch.Tensor]:
    """Two noisy latents with captions of 3 tokens, padded to `num_tokens`."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randn(2, 3, 16, generator=draw)
    return {
        "latents": torch.randn(2, 4, 2, 2, generator=draw),
        "time": torch.tensor([0.2, 0.9]),
        "tokens": torch.nn.functional.pad(tokens, (0, 0, 0, num_tokens - 3), value=7.0),
        "lengths": torch.tensor([3, 3]),
        "pooled": torch.randn(2, 16, generator=draw),
        "dropped": torch.tensor([False, True]),
    }


def test_padding_is_not_seen(model: DiffusionTransformer) -> None:
    """Longer padding, filled with anything, gives the same velocity."""
    torch.testing.assert_close(model(**inputs(3)), model(**inputs(9)), atol=TOLERANCE, rtol=0)


def test_dropped_caption_is_not_seen(model: DiffusionTransformer) -> None:
    """The unconditional velocity does not depend on the caption; the conditional one does."""
    given = inputs(3)
    changed = {**given, "tokens": given["tokens"] + 1, "pooled": -given["pooled"]}
    before, after = model(**given), model(**changed)
    torch.testing.assert_close(before[1], after[1], atol=TOLERANCE, rtol=0)
    assert not torch.allclose(before[0], after[0], atol=1e-2)


def test_velocity_depends_on_time(model: DiffusionTransformer) -> None:
    """The same latents at another time move differently."""
    given = inputs(3)
    assert not torch.allclose(model(**given), model(**{**given, "time": torch.tensor([0.5, 0.5])}), atol=1e-2)


def test_fresh_model_predicts_zero() -> None:
    """Training starts from the zero velocity."""
    torch.manual_seed(0)
    fresh = DiffusionTransformer(latent_channels=4, size=2, width=16, depth=1, num_heads=2, text_width=16)
    assert fresh(**inputs(3)).abs().max() == 0


def test_muon_gets_the_matrices_of_the_blocks_only(model: DiffusionTransformer) -> None:
    """Seven matrices in the block that reads the caption, four in the other; no offsets, no embeddings."""
    assert len(model.matrices()) == 7 + 4


def test_more_cross_attentions_change_nothing_until_trained() -> None:
    """A model that reads the caption in every block starts as the one that read it in every second."""
    torch.manual_seed(3)
    shape = {"latent_channels": 4, "size": 4, "width": 16, "depth": 4, "num_heads": 2, "text_width": 16}
    smaller, larger = DiffusionTransformer(**shape), DiffusionTransformer(**shape, read_every=1)
    with torch.no_grad():
        for parameter in smaller.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    larger.take_over(smaller)
    arguments = (
        torch.randn(2, 4, 4, 4),
        torch.tensor([0.3, 0.8]),
        torch.randn(2, 5, 16),
        torch.tensor([5, 3]),
        torch.randn(2, 16),
        torch.tensor([False, True]),
    )
    torch.testing.assert_close(larger(*arguments), smaller(*arguments), atol=0, rtol=0)
    with pytest.raises(InputError, match="other shapes"):
        smaller.take_over(larger)
