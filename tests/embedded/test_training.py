"""The shared training loop and its parts, on models of a few parameters."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typing_extensions import override

import mmspec.embedded.training.scenes as scenes_module
from mmspec.embedded.training.captions import encode_captions
from mmspec.embedded.training.diffusion import DiffusionTask, LatentScenes, encode_scenes
from mmspec.embedded.training.loop import LoopSettings, Task, train
from mmspec.embedded.training.optimiser import Optimiser
from mmspec.embedded.training.scenes import caption_at, paint_scenes, scene_at
from mmspec.embedded.training.schedule import Schedule
from mmspec.embedded.transformer import DiffusionTransformer
from mmspec.errors import InputError
from mmspec.image.tiny import tiny_models, tiny_text_encoder

ONCE = LoopSettings(log_steps=1, checkpoint_s=1e9, export_s=1e9, num_threads=1, fast_dev_run=True)
LONG = Schedule(duration_s=1e6, decay_s=0, num_warmup_steps=1)


class Line(Task):
    """Fits y = 3x with one weight."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(1, 1, bias=False)
        self.optimiser = Optimiser(
            self.model, learning_rate=0.1, weight_decay=0.0, betas=(0.9, 0.99), average_decay=0.9
        )

    @override
    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        x = torch.full((4, 1), 1.0 + step % 3)
        return (self.model(x) - 3 * x).pow(2).mean(), {"figure": 1.0}

    @override
    def update(self, scale: float) -> None:
        self.optimiser.step(scale)

    @override
    def state(self) -> dict[str, Any]:
        return self.optimiser.state()

    @override
    def load(self, state: dict[str, Any]) -> None:
        self.optimiser.load(state)

    @override
    def evaluate(self) -> dict[str, float]:
        return {"weight": float(self.model.weight.detach())}

    @override
    def sheet(self) -> Image.Image:
        return Image.new("RGB", (4, 4))

    @override
    def export(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)


def test_resumed_run_equals_an_uninterrupted_one(tmp_path) -> None:
    """Two and two steps end at the same weight as four, optimiser state included."""
    for _ in range(2):
        resumed = train(Line(), LONG, ONCE, folder=tmp_path / "resumed")
    task = Line()
    for step in range(4):
        task.loss(step)[0].backward()
        task.update(1.0)
    assert resumed["weight"] == task.evaluate()["weight"]


def test_run_leaves_log_curve_sheet_and_checkpoint(tmp_path) -> None:
    """Everything that a person looks at afterwards is there."""
    train(Line(), LONG, ONCE, folder=tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"checkpoint.pt", "log.jsonl", "curve.png", "sheet_000002.png", "export"}
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[0]["figure"] == 1.0


def test_control_file_ends_a_run_and_refuses_unknown_keys(tmp_path) -> None:
    """An end in the past stops at once; a misspelt key is named."""
    forever = LoopSettings(log_steps=1, checkpoint_s=1e9, export_s=1e9, num_threads=1)
    (tmp_path / "control.json").write_text('{"end_at": "2020-01-01T00:00:00"}')
    train(Line(), LONG, forever, folder=tmp_path)
    (tmp_path / "control.json").write_text('{"end": "2020-01-01T00:00:00"}')
    with pytest.raises(InputError, match="end"):
        train(Line(), LONG, forever, folder=tmp_path)


def test_schedule_rises_stays_and_falls() -> None:
    """By hand: warm-up of 10 steps, decay over the last 20 s."""
    schedule = Schedule(duration_s=100, decay_s=20, num_warmup_steps=10)
    assert schedule.scale(4, remaining_s=90) == 0.5
    assert schedule.scale(50, remaining_s=50) == 1.0
    assert schedule.scale(50, remaining_s=5) == 0.25
    with pytest.raises(InputError, match="decay_s"):
        Schedule(duration_s=10, decay_s=20, num_warmup_steps=1)


def test_low_precision_model_keeps_a_float32_master() -> None:
    """Steps too small for bfloat16 still add up."""
    model = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    nn.init.ones_(model.weight)
    optimiser = Optimiser(model, learning_rate=1e-4, weight_decay=0.0, betas=(0.0, 0.9), average_decay=0.5)
    for _ in range(100):
        model(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
        optimiser.step(1.0)
    # 100 steps of 1e-4; bfloat16 resolves 0.004 below 1.
    assert float(model.weight.detach()) == pytest.approx(0.99, abs=0.004)


def test_average_is_lent_and_given_back() -> None:
    """Inside the `with` the model is its moving average, afterwards itself again."""
    task = Line()
    for step in range(5):
        task.loss(step)[0].backward()
        task.update(1.0)
    own = task.model.weight.detach().clone()
    with task.optimiser.averaged():
        assert not torch.equal(task.model.weight, own)
    assert torch.equal(task.model.weight, own)


def test_scenes_are_fixed_by_seed_and_index() -> None:
    """Scene and caption depend on (seed, index) alone; variants differ in words only."""
    assert scene_at(1, 5) == scene_at(1, 5)
    assert caption_at(1, 5, variant=0) == caption_at(1, 5, variant=0)
    assert len({caption_at(1, index, variant=variant) for index in range(5) for variant in range(4)}) > 10


def test_diffusion_training_runs_on_painted_scenes(tmp_path) -> None:
    """Paint, encode, two steps, export: the whole path at tiny size, loss finite and falling from its start."""
    painted = paint_scenes(tmp_path / "scenes", seed=3, num_scenes=4, size=128, num_workers=1)
    assert painted.batch(torch.tensor([0, 2])).shape == (2, 3, 128, 128)
    models, encoder = tiny_models(0), tiny_text_encoder(0)
    captions = encode_captions(tmp_path / "captions", encoder, seed=3, num_scenes=4, num_variants=2)
    scenes = LatentScenes(encode_scenes(models.vae, painted), torch.from_numpy(painted.masks.copy()), captions)
    assert scenes.latents.shape == (4, 4, 8, 8)
    text = captions.batch(torch.tensor([1, 3]), torch.tensor([0, 1]))
    (features,) = encoder.encode([caption_at(3, 3, variant=1)])
    torch.testing.assert_close(text.tokens[1, : text.lengths[1]].float(), features.tokens, atol=2e-3, rtol=2e-3)
    transformer = DiffusionTransformer(latent_channels=4, size=8, width=16, depth=1, num_heads=2, text_width=16)
    task = DiffusionTask(
        transformer,
        models.vae,
        scenes=scenes,
        held_out=scenes,
        prompts=text,
        batch_size=4,
        learning_rate=1e-2,
        matrix_learning_rate=1e-2,
        average_decay=0.5,
        dropout=0.1,
        prop_weight=2.0,
        origin={"seed": 3},
        seed=0,
    )
    first = task.evaluate()["held_out"]
    figures = train(task, LONG, ONCE, folder=tmp_path / "run")
    assert figures["held_out"] < first
    assert (tmp_path / "run" / "export" / "model_index.json").exists()
    assert json.loads((tmp_path / "run" / "export" / "origin.json").read_text()) == {"seed": 3}


def test_another_set_in_the_folder_is_refused(tmp_path) -> None:
    """Scenes of another seed are never taken for the right ones."""
    paint_scenes(tmp_path, seed=3, num_scenes=1, size=16, num_workers=1)
    with pytest.raises(InputError, match="another folder"):
        paint_scenes(tmp_path, seed=4, num_scenes=1, size=16, num_workers=1)


def test_data_version_follows_the_painter(monkeypatch) -> None:
    """The same painter has the same version, one that draws or says otherwise another."""
    before = scenes_module.data_version()
    assert before == scenes_module.data_version()
    monkeypatch.setattr(scenes_module, "caption_at", lambda *_, **__: "a dragon")
    assert scenes_module.data_version() != before
