"""Shapes, ranges and latents of the autoencoder, tiny and random."""

import pytest
import torch

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.pixels import signed_from_bytes, unit_from_signed
from mmspec.errors import ModelError


def tiny() -> Autoencoder:
    """An autoencoder of a few hundred parameters."""
    torch.manual_seed(0)
    return Autoencoder(latent_channels=4, channels=(8, 8, 16))


def test_pictures_come_back_at_twice_the_size() -> None:
    """64 px in, 8x8 latents, 128 px out."""
    model = tiny().eval()
    latents = model.encode(torch.zeros(2, 3, 64, 64))
    assert latents.shape == (2, 4, 8, 8)
    assert model.decode(latents).shape == (2, 3, 128, 128)
    fine = Autoencoder(latent_channels=4, channels=(8, 8, 16), fine_channels=8)
    assert fine.decode(latents).shape == (2, 3, 128, 128)


def test_latents_have_unit_variance_while_training() -> None:
    """The normalisation makes a scale factor unnecessary."""
    latents = tiny().train().encode(torch.rand(64, 3, 16, 16) * 2 - 1)
    torch.testing.assert_close(latents.std((0, 2, 3)), torch.ones(4), atol=0.05, rtol=0)


def test_decode_unit_stays_in_range() -> None:
    """Previews are in [0, 1] whatever the latents."""
    pixels = tiny().eval().decode_unit(torch.randn(2, 4, 2, 2) * 100)
    assert pixels.min() >= 0
    assert pixels.max() <= 1


def test_ranges_convert_by_hand() -> None:
    """0, 127.5 and 255 are -1, 0 and 1; and back to [0, 1]."""
    assert signed_from_bytes(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1.0, 1.0]
    assert unit_from_signed(torch.tensor([-1.0, 0.0, 1.0, 3.0])).tolist() == [0.0, 0.5, 1.0, 1.0]


def test_survives_a_diffusers_folder(tmp_path) -> None:
    """Saved and loaded, it decodes to the same pixels."""
    model = tiny().eval()
    model.save_pretrained(tmp_path)
    again = Autoencoder.from_pretrained(tmp_path).eval()
    latents = torch.randn(1, 4, 2, 2)
    assert torch.equal(model.decode(latents), again.decode(latents))


def test_frozen_encoder_keeps_its_latents() -> None:
    """Training a decoder with a layer more moves neither weights nor running statistics of the encoder taken over."""
    old = tiny().eval()
    old.norm.running_mean.fill_(0.3)
    pictures = torch.rand(8, 3, 16, 16) * 2 - 1
    before = old.encode(pictures)
    model = Autoencoder(latent_channels=4, channels=(8, 8, 16), fine_channels=8).train()
    model.freeze_encoder(old)
    stepper = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    latents = model.train().encode(pictures)
    assert torch.equal(latents, before)  # not normalised by the batch
    model.decode(latents).sum().backward()
    stepper.step()
    assert torch.equal(model.eval().encode(pictures), before)
    assert not torch.equal(model.decoder[0].weight, old.decoder[0].weight)


def test_decoder_begins_with_the_old_one() -> None:
    """Of the same shape, the decoder draws the same pictures before it is trained."""
    old, model = tiny().eval(), Autoencoder(latent_channels=4, channels=(8, 8, 16))
    model.freeze_encoder(old)
    latents = torch.randn(2, 4, 2, 2)
    assert torch.equal(model.eval().decode(latents), old.decode(latents))


def test_another_encoder_is_refused() -> None:
    """Latents of another encoder have another meaning."""
    with pytest.raises(ModelError, match="encoder"):
        Autoencoder(latent_channels=4, channels=(8, 8, 32)).freeze_encoder(tiny())


def test_encodes_in_low_precision() -> None:
    """A model wholly in bfloat16 encodes too, and its latents are float32."""
    model = tiny().eval()
    pictures = torch.rand(1, 3, 16, 16) * 2 - 1
    exact = model.encode(pictures)
    low = torch.nn.Module.to(model, torch.bfloat16).encode(pictures.bfloat16())
    assert low.dtype == torch.float32
    # bfloat16 keeps about two and a half digits a layer.
    torch.testing.assert_close(low, exact, atol=0.2, rtol=0)
