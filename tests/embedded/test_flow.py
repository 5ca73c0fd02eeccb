"""The equations of rectified flow and guidance."""

import torch

from mmspec.embedded.flow import Guidance, euler_sample, guided_velocity, noisy, x0_of
from mmspec.embedded.text_encoder import pad_features
from mmspec.image.tiny import tiny_models, tiny_text_encoder

NOBODY = torch.zeros(0, dtype=torch.long)


def guidance(scale: float, emphasis: float = 0.0) -> Guidance:
    """A guidance that is the same at all times."""
    return Guidance(scale=scale, emphasis_scale=emphasis, early_scale=scale, early_time=1.0)


def test_x0_is_recovered_from_the_true_velocity() -> None:
    """x_t - t (eps - x0) = x0 for any t."""
    draw = torch.Generator().manual_seed(0)
    x0, noise = torch.randn(2, 5, 3, 2, 2, generator=draw)
    time = torch.rand(5, generator=draw)
    torch.testing.assert_close(x0_of(noisy(x0, noise, time), noise - x0, time), x0)


def test_guidance_of_one_is_the_conditional_velocity() -> None:
    """v_free + 1 (v_text - v_free) = v_text, and guidance 0 is the unconditional velocity."""
    models, encoder = tiny_models(0), tiny_text_encoder(0)
    text = pad_features(encoder.encode(["an owl", "a red car"]))
    latents, time = torch.randn(2, 4, 2, 2), torch.tensor([0.3, 0.8])

    def guided(scale: float) -> torch.Tensor:
        return guided_velocity(
            models.transformer,
            latents,
            time,
            text=text,
            emphasis=None,
            emphasised=NOBODY,
            strengths=NOBODY,
            guidance=guidance(scale),
        )

    for scale, dropped in ((1.0, False), (0.0, True)):
        plain = models.transformer(latents, time, text.tokens, text.lengths, text.pooled, torch.tensor([dropped] * 2))
        # Two rows of four add in another order than two of two.
        torch.testing.assert_close(guided(scale), plain, atol=1e-5, rtol=0)
    torch.testing.assert_close(guided(3.0), guided(0.0) + 3 * (guided(1.0) - guided(0.0)), atol=1e-4, rtol=0)


def test_emphasis_adds_its_direction_to_the_chosen_picture_only() -> None:
    """Emphasising a picture's own caption by e (in parts that add up) is guidance g + e; the other is untouched."""
    models, encoder = tiny_models(0), tiny_text_encoder(0)
    features = encoder.encode(["an owl", "a red car"])
    text, phrase = pad_features(features), pad_features([features[1]] * 2)
    latents, time = torch.randn(2, 4, 2, 2), torch.tensor([0.3, 0.8])

    def guided(scale: float, emphasis: float) -> torch.Tensor:
        return guided_velocity(
            models.transformer,
            latents,
            time,
            text=text,
            emphasis=phrase,
            emphasised=torch.tensor([1, 1]),
            strengths=torch.tensor([1.5, -0.5]),
            guidance=guidance(scale, emphasis),
        )

    torch.testing.assert_close(guided(2.0, 1.5)[1], guided(3.5, 0.0)[1], atol=1e-4, rtol=0)
    torch.testing.assert_close(guided(2.0, 1.5)[0], guided(2.0, 0.0)[0], atol=1e-5, rtol=0)


def test_early_guidance_replaces_a_larger_one_only() -> None:
    """Above the early time the smaller of both scales holds."""
    strong = Guidance(scale=4.0, emphasis_scale=0.0, early_scale=1.5, early_time=0.95)
    assert strong.at(torch.tensor([1.0, 0.5])).tolist() == [1.5, 4.0]
    weak = Guidance(scale=1.0, emphasis_scale=0.0, early_scale=1.5, early_time=0.95)
    assert weak.at(torch.tensor([1.0, 0.5])).tolist() == [1.0, 1.0]


def test_one_euler_step_is_the_x0_estimate() -> None:
    """A single step from pure noise lands where the velocity points."""
    models, encoder = tiny_models(0), tiny_text_encoder(0)
    text, noise = pad_features(encoder.encode(["an owl"])), torch.randn(1, 4, 2, 2)
    sampled = euler_sample(models.transformer, noise, text=text, guidance=guidance(1.0), num_steps=1)
    velocity = models.transformer(
        noise, torch.ones(1), text.tokens, text.lengths, text.pooled, torch.zeros(1, dtype=torch.bool)
    )
    torch.testing.assert_close(sampled, x0_of(noise, velocity, torch.ones(1)), atol=1e-5, rtol=0)
