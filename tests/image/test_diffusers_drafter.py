"""The drafter over `diffusers` on tiny random models of the real architectures, in the real folder formats."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline, DPMSolverMultistepScheduler
from PIL import Image

from mmspec.errors import InputError, WeightsError
from mmspec.image.diffusers_drafter import DiffusersDrafter
from mmspec.image.prompts import pieces
from mmspec.seeding import generator
from tests.image.folders import LENGTH, T5_LENGTH, clip_tokenizer, save_lora

# diffusers 0.42 converts tensors in a way that numpy 2 frowns upon.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

# Matrix products and convolutions of another batch size add in another order.
BATCH_TOLERANCE = 1e-4
LONG = "an owl beside a red car in the deep forest at night under a clear sky"
SIZED = {"flux", "flux_dev"}  # whose folder does not say how large pictures are


def drafter(folder: Path, **settings: Any) -> DiffusersDrafter:
    """A drafter in float32 with guidance 3, unless `settings` say otherwise."""
    side = 16 if folder.name in SIZED else None
    plain: dict[str, Any] = {
        "num_steps": 4,
        "draft_steps": 3,
        "width": side,
        "height": side,
        "guidance_scale": 3.0,
        "emphasis_scale": 1.0,
        "negative_prompt": "",
        "scheduler": None,
        "loras": [],
        "init_image": None,
        "init_level": 0.6,
        "device": "cpu",
        "dtype": "float32",
        "vae_dtype": None,
        "offload": "none",
    }
    return DiffusersDrafter(str(folder), **plain | settings)


def picture(drafts: DiffusersDrafter, text: str = "an owl", *, negative: str = "", seed: int = 1) -> torch.Tensor:
    """The finished picture of a text, `[3, h, w]`."""
    started = drafts.start([text], [seed], num_steps=3, negative=negative)
    return drafts.preview(drafts.advance(started, 3))[0].pixels


@pytest.mark.parametrize(
    "name", ["euler", "ancestral", "ddim", "lcm", "dpm", "consistency", "sdxl", "flux", "flux_dev"]
)
def test_pixels_do_not_depend_on_the_batch(pipelines: dict[str, Path], name: str) -> None:
    """Also with schedulers that draw noise at every step, drafts at different steps and prompts of different lengths."""
    drafts = drafter(pipelines[name])
    started = drafts.start(["an owl", LONG], [1, 2], num_steps=4)
    started = [started[0], *drafts.advance(started[1:], 1)]
    together = drafts.preview(drafts.advance(started, 2, emphasis=[(), (("an owl", 1.0),)]))
    for k, draft in enumerate(started):
        (alone,) = drafts.preview(drafts.advance([draft], 2, emphasis=[() if k == 0 else (("an owl", 1.0),)]))
        torch.testing.assert_close(alone.pixels, together[k].pixels, atol=BATCH_TOLERANCE, rtol=0)
    assert together[0].noise_level > together[1].noise_level > 0
    (image,) = drafts.finish(started[:1])
    assert image.size == (16, 16)


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("euler", 3.0),
        ("euler", 0.0),
        ("ddim", 3.0),
        ("dpm", 3.0),
        ("sdxl", 3.0),
        ("consistency", 3.0),
        ("flux", 0.0),
        ("flux_dev", 3.0),
    ],
)
def test_pictures_are_those_of_the_pipeline_itself(pipelines: dict[str, Path], name: str, scale: float) -> None:
    """Same noise, prompt and guidance: our loop over drafts ends where the library's ends."""
    pipeline = DiffusionPipeline.from_pretrained(pipelines[name])
    pipeline.set_progress_bar_config(disable=True)
    noise = torch.randn(4, 8, 8, generator=generator(1, "image-noise"))[None]
    arguments: dict[str, Any] = {"num_inference_steps": 3, "guidance_scale": scale, "output_type": "pt"}
    if name in SIZED:
        noise = pipeline._pack_latents(noise, 1, 4, 8, 8)
        arguments |= {"height": 16, "width": 16, "max_sequence_length": T5_LENGTH}
    if name == "consistency":  # its scheduler draws noise between the steps, from the draft's own stream
        draw = generator(1, "image-noise")
        torch.randn(4, 8, 8, generator=draw)
        arguments["generator"] = draw
    expected = pipeline("an owl", latents=noise, **arguments).images[0]
    torch.testing.assert_close(picture(drafter(pipelines[name], guidance_scale=scale)), expected, atol=1e-4, rtol=0)


def test_negative_prompt_is_that_of_the_pipeline(pipelines: dict[str, Path]) -> None:
    """The request's and the configured one are joined, and what comes out is the library's picture."""
    pipeline = DiffusionPipeline.from_pretrained(pipelines["euler"])
    pipeline.set_progress_bar_config(disable=True)
    noise = torch.randn(4, 8, 8, generator=generator(1, "image-noise"))[None]
    expected = pipeline(
        "an owl",
        negative_prompt="rain, fog",
        latents=noise,
        num_inference_steps=3,
        guidance_scale=3.0,
        output_type="pt",
    ).images[0]
    drafts = drafter(pipelines["euler"], negative_prompt="fog")
    torch.testing.assert_close(picture(drafts, negative="rain"), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("name", "scale"), [("euler", 1.0), ("consistency", 3.0), ("flux_dev", 3.0)])
def test_negative_prompt_without_effect_is_refused(pipelines: dict[str, Path], name: str, scale: float) -> None:
    """A model that is asked once per step cannot move away from anything: never silently."""
    assert not drafter(pipelines[name], guidance_scale=scale).reads_negative
    with pytest.raises(InputError, match="no effect"):
        drafter(pipelines[name], guidance_scale=scale, negative_prompt="rain")


@pytest.mark.parametrize("name", ["euler", "sdxl"])
def test_the_end_of_a_long_prompt_is_read(pipelines: dict[str, Path], name: str) -> None:
    """What lies beyond the encoder's length changes the picture, and nothing is reported as unread."""
    drafts = drafter(pipelines[name])
    assert len(pieces(clip_tokenizer(), LONG)) > 1
    assert not torch.allclose(picture(drafts, LONG), picture(drafts, LONG.replace("clear sky", "red moon")))
    assert drafts.unread(LONG) == ""


def test_pieces_hold_every_token_in_order_and_break_between_words() -> None:
    """Without begin, end and padding they are the tokens of the whole text; a giant word is broken."""
    tokenizer = clip_tokenizer()
    assert len(pieces(tokenizer, "an owl")) == 1
    for text in (LONG, "x" * 50):
        rows = pieces(tokenizer, text)
        assert rows.shape[1] == LENGTH
        body = [token for row in rows.tolist() for token in row if token not in (0, 1)]
        assert body == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(pieces(tokenizer, LONG)[0][1:-1]).replace("<|endoftext|>", "").split()[-1] in LONG.split()


def test_flux_says_what_it_does_not_read(pipelines: dict[str, Path]) -> None:
    """T5 has a limit: what is beyond is given back, and the rest changes nothing."""
    drafts = drafter(pipelines["flux"], guidance_scale=0.0)
    assert drafts.unread("an owl") == ""
    cut = drafts.unread(LONG)
    assert cut and LONG.endswith(cut)
    assert torch.equal(picture(drafts, LONG), picture(drafts, LONG + " and a castle"))


def test_a_draft_is_a_value(pipelines: dict[str, Path]) -> None:
    """Advancing twice from the same draft gives the same bytes: scheduler and noise are not shared."""
    drafts = drafter(pipelines["lcm"], guidance_scale=1.0)
    (draft,) = drafts.start(["an owl"], [1], num_steps=3)
    first, second = (drafts.finish([draft])[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("name", ["euler", "dpm", "flux"])
def test_renoise_goes_back_and_forward_again(pipelines: dict[str, Path], name: str) -> None:
    """A finished draft at level 0.9 has steps to do again, from fresh noise fixed by its seed."""
    drafts = drafter(pipelines[name])
    (draft,) = drafts.advance(drafts.start(["an owl"], [1], num_steps=5), 5)
    again = drafts.renoise(draft, 0.75, seed=3)
    assert 0 < again.step < 5
    assert torch.equal(again.latents, drafts.renoise(draft, 0.75, seed=3).latents)
    assert drafts.finish([again])[0].size == (16, 16)
    with pytest.raises(InputError, match="noise level"):
        drafts.renoise(draft, 0.0, seed=3)


@pytest.mark.parametrize("name", ["ddim", "sdxl", "flux"])
def test_variations_of_a_picture_keep_more_of_it_with_less_noise(pipelines: dict[str, Path], name: str) -> None:
    """Two seeds agree more at a low level; the preview before any step is the picture, cut to shape."""
    drafts = drafter(pipelines[name])
    original = torch.rand(3, 40, 20, generator=torch.Generator().manual_seed(0))

    def distance(level: float) -> float:
        first, second = (
            drafts.preview(drafts.advance([drafts.start_from(original, "an owl", seed, num_steps=10, level=level)], 10))
            for seed in (1, 2)
        )
        return float((first[0].pixels - second[0].pixels).abs().mean())

    assert distance(0.2) < distance(1.0)
    with pytest.raises(InputError, match="noise level"):
        drafts.start_from(original, "an owl", 1, num_steps=10, level=1.5)


def test_init_image_is_where_drafts_begin(pipelines: dict[str, Path], tmp_path: Path) -> None:
    """A file by configuration is what `start_from` would begin with."""
    Image.new("RGBA", (20, 30), (200, 30, 30, 128)).save(tmp_path / "sketch.png")
    drafts = drafter(pipelines["ddim"], init_image=str(tmp_path / "sketch.png"), init_level=0.5)
    (draft,) = drafts.start(["an owl"], [1], num_steps=4)
    assert 0 < draft.step < 4
    red = torch.tensor([200 * 128 + 255 * 127, 30 * 128 + 255 * 127, 30 * 128 + 255 * 127]) / 255 / 255  # on white
    plain = red[:, None, None].expand(3, 30, 20)
    expected = drafter(pipelines["ddim"]).start_from(plain, "an owl", 1, num_steps=4, level=0.5)
    torch.testing.assert_close(draft.latents, expected.latents, atol=0.01, rtol=0)  # the file has 8 bits
    with pytest.raises(InputError, match="nowhere"):
        drafter(pipelines["ddim"], init_image="nowhere.png")


def test_width_and_height_are_kept(pipelines: dict[str, Path]) -> None:
    """A wide picture is wide; a side that does not divide is refused."""
    for name in ("sdxl", "flux"):
        drafts = drafter(pipelines[name], width=32, height=16)
        assert drafts.finish(drafts.start(["an owl"], [1], num_steps=1))[0].size == (32, 16)
    with pytest.raises(InputError, match="multiple of 4"):
        drafter(pipelines["flux"], width=18)


def test_lora_is_added_with_its_weight(pipelines: dict[str, Path], tmp_path: Path) -> None:
    """Weight 0 is no adapter, another weight another picture; a file that is none is said so."""
    path = save_lora(tmp_path / "lora", pipelines["euler"])
    plain, nothing, half, whole = (
        picture(drafter(pipelines["euler"], loras=loras))
        for loras in (
            [],
            [{"path": str(path), "weight": 0.0}],
            [{"path": str(path.parent), "weight": 0.5}],
            [str(path)],
        )
    )
    torch.testing.assert_close(nothing, plain, atol=1e-5, rtol=0)
    assert not torch.allclose(half, plain, atol=1e-4)
    assert not torch.allclose(whole, half, atol=1e-4)
    with pytest.raises(InputError, match="expected a path"):
        drafter(pipelines["euler"], loras=[{"file": str(path)}])
    with pytest.raises(WeightsError, match="LoRA"):
        drafter(pipelines["euler"], loras=[str(pipelines["euler"])])


def test_scheduler_without_x0_is_refused_until_another_is_named(pipelines: dict[str, Path]) -> None:
    """Stable Diffusion 1.5 comes with one; `scheduler` replaces it."""
    with pytest.raises(WeightsError, match=r"diffusion\.scheduler"):
        picture(drafter(pipelines["pndm"]))
    pipeline = DiffusionPipeline.from_pretrained(pipelines["pndm"])
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = DPMSolverMultistepScheduler.from_config(pipeline.scheduler.config)
    noise = torch.randn(4, 8, 8, generator=generator(1, "image-noise"))[None]
    expected = pipeline("an owl", latents=noise, num_inference_steps=3, guidance_scale=3.0, output_type="pt").images[0]
    replaced = picture(drafter(pipelines["pndm"], scheduler="DPMSolverMultistepScheduler"))
    torch.testing.assert_close(replaced, expected, atol=1e-4, rtol=0)
    with pytest.raises(InputError, match="no scheduler of diffusers"):
        drafter(pipelines["pndm"], scheduler="BestScheduler")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "float8"}, "float8"),
        ({"vae_dtype": "double"}, "double"),
        ({"device": "gpu"}, "is no device"),
        ({"dtype": "float16"}, "float16 on a CPU"),
        ({"offload": "model"}, "needs a GPU"),
        ({"offload": "disk"}, "disk"),
    ],
)
def test_placements_that_do_not_go_together_are_refused(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    """Before anything is loaded, in one line."""
    with pytest.raises(InputError, match=message):
        drafter(tmp_path, **settings)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("offload", ["none", "model", "sequential"])
@pytest.mark.parametrize("name", ["euler", "sdxl", "flux"])
def test_pictures_on_a_gpu_are_those_of_the_cpu(pipelines: dict[str, Path], name: str, offload: str) -> None:
    """Wherever the parts of the model are kept."""
    expected = picture(drafter(pipelines[name]))
    found = picture(drafter(pipelines[name], device="cuda", offload=offload))
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=0)  # other kernels


def test_autoencoder_may_have_a_precision_of_its_own(pipelines: dict[str, Path]) -> None:
    """The UNet in bfloat16, the autoencoder in float32."""
    drafts = drafter(pipelines["euler"], dtype="bfloat16", vae_dtype="float32")
    assert drafts._denoiser._pipeline.vae.dtype == torch.float32
    assert picture(drafts).isfinite().all()


def test_foreign_folders_are_named(tmp_path: Path) -> None:
    """Neither an empty folder nor another kind of pipeline is loaded."""
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(WeightsError, match="model_index"):
        drafter(tmp_path)
    (tmp_path / "model_index.json").write_text('{"_class_name": "AudioPipeline"}')
    with pytest.raises(WeightsError, match="AudioPipeline"):
        drafter(tmp_path)
