"""Training on another device, without having one: torch's fake tensors know where they are, and refuse to be mixed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from mmspec.embedded.autoencoder import Autoencoder
from mmspec.embedded.judge import Judge
from mmspec.embedded.training.device import Place
from mmspec.embedded.transformer import DiffusionTransformer
from mmspec.errors import InputError

# Without a GPU there is no automatic precision either; devices are what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:CUDA is not available")


def test_unknown_device_is_refused() -> None:
    """One line that names it and what there is."""
    with pytest.raises(InputError, match=r"loop.device=toaster cannot be used .*expected cpu, cuda or mps"):
        Place("toaster")


def test_passes_run_there_and_the_rest_here() -> None:
    """Inputs and results are on the CPU, the pass is on the device, and gradients flow through."""
    with FakeTensorMode():
        model = nn.Linear(3, 2, device="cuda")
        result = Place("cuda").run(model, torch.randn(4, 3))
        assert result.device.type == "cpu" and result.dtype == torch.float32
        assert result.requires_grad


def test_models_keep_to_one_device() -> None:
    """No pass of a model makes a tensor of its own on the CPU."""
    with FakeTensorMode():
        place = Place("cuda")
        with torch.device("cuda"):
            autoencoder = Autoencoder(4, (8, 8, 16), 8)
            transformer = DiffusionTransformer(latent_channels=4, size=8, width=16, depth=2, num_heads=2, text_width=16)
            judge = Judge((8, 8, 16))
        latents = place.run(autoencoder.encode, torch.randn(2, 3, 64, 64))
        place.run(autoencoder.decode, latents)
        text = (torch.randn(2, 5, 16), torch.tensor([3, 5]), torch.randn(2, 16), torch.tensor([False, True]))
        place.run(transformer, latents, torch.rand(2), *text, autocast=False)
        with place.autocast():
            reading = judge(torch.rand(2, 3, 64, 64, device="cuda"))
        found = judge.describe(reading, torch.tensor([0], device="cuda"), torch.tensor([3], device="cuda"))
        assert found.colour.device == reading.nouns.device == torch.device("cuda", 0)
