"""Prompts of the benchmark and how drawings of them are counted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mmspec.embedded.captions import plural
from mmspec.embedded.judge import Judge
from mmspec.embedded.rephrase import rephrased
from mmspec.embedded.scenes import Prop, Scene
from mmspec.embedded.training.benchmark import KINDS, Prompt, draw, prompts, rates, shown
from mmspec.embedded.training.scenes import caption_at
from mmspec.embedded.world import NOUNS, PLACES, TIMES, WEATHERS
from mmspec.image.tiny import tiny_drafter

NAMES = list(NOUNS)


def test_kinds_come_in_their_shares_and_hold_what_they_say() -> None:
    """Every kind as often as asked for; one or two things; the same prompts for the same seed."""
    asked = prompts(5, 50)
    assert asked == prompts(5, 50)
    for kind, share in KINDS.items():
        scenes = [prompt.scene for prompt in asked if prompt.kind == kind]
        assert len(scenes) == round(share * 50)
        assert {len(scene.props) for scene in scenes} == {2 if kind == "pair" else 1}


def test_held_out_words_are_in_no_training_name() -> None:
    """The table of held-out synonyms shares no word with the training captions' names of anything."""
    terms = [*PLACES.values(), *TIMES.values(), *WEATHERS.values(), *NOUNS.values()]
    trained = {name for term in terms for name in term.names}
    held_out = [name for term in terms for name in term.held_out]
    assert len(held_out) > 100
    assert trained.isdisjoint(held_out)


def test_synonym_prompts_say_things_only_in_held_out_words() -> None:
    """Neither the thing's plain name nor a trained synonym is in the prompt."""
    asked = [prompt for prompt in prompts(5, 60) if prompt.kind == "synonyms"]
    assert asked
    for prompt in asked:
        noun = NOUNS[prompt.scene.props[0].noun]
        words = [word for name in noun.held_out for word in (name, plural(name))]
        assert any(word in prompt.text for word in words), prompt
        assert any(name in prompt.text for name in PLACES[prompt.scene.place].held_out), prompt


def test_rephrasing_leaves_no_held_out_word() -> None:
    """What the drafter reads of a synonym prompt holds the plain names; prompts in trained words stay as they are."""
    for prompt in prompts(5, 60):
        said = rephrased(prompt.text)
        if prompt.kind != "synonyms":
            assert said == prompt.text
            continue
        noun = NOUNS[prompt.scene.props[0].noun]
        assert noun.name in said or noun.plural in said, (prompt.text, said)
        assert PLACES[prompt.scene.place].names[0] in said
        assert rephrased(said) == said


def test_sentences_are_not_those_of_training() -> None:
    """No prompt is a caption that the same scene has in training."""
    for prompt in prompts(5, 20):
        assert prompt.text not in {caption_at(5, prompt.index, variant=k) for k in range(30)}


class _Sees(Judge):
    """A judge that sees a forest at night in the rain, a dragon best and a castle next, two red ones on the left."""

    def attributes(self, pixels: list[Tensor]) -> dict[str, Tensor]:
        """The same for every picture."""

        def likeliest(size: int, *order: int) -> Tensor:
            row = torch.zeros(size)
            for rank, index in enumerate(order):
                row[index] = 1 - 0.1 * rank
            return row.expand(len(pixels), size)

        return {
            "place": likeliest(len(PLACES), list(PLACES).index("forest")),
            "time": likeliest(len(TIMES), list(TIMES).index("night")),
            "weather": likeliest(len(WEATHERS), list(WEATHERS).index("rain")),
            "noun": likeliest(len(NAMES) + 1, NAMES.index("dragon"), NAMES.index("castle")),
            "colour": likeliest(7, 0),
            "count": likeliest(3, 1),
            "position": likeliest(3, 0),
        }


def test_counting_by_hand() -> None:
    """Attributes that a scene does not have are not counted; those of a thing only where the thing is seen."""
    night = ("forest", "night", "rain")
    scenes = {
        "single": [
            Scene(*night, (Prop("dragon", "red", 2),)),
            Scene("forest", "noon", "rain", (Prop("dragon", "blue", 1, position="left"),)),
            Scene("cave", None, None, (Prop("owl"),)),
        ],
        "pair": [Scene(*night, (Prop("castle", position="left"), Prop("dragon", position="right")))],
    }
    asked = [Prompt(k, kind, scene, "") for kind, group in scenes.items() for k, scene in enumerate(group)]
    right = shown(_Sees(channels=(8, 8, 16)), asked, torch.zeros(4, 3, 8, 8))
    assert right[0] == {"place": True, "time": True, "weather": True, "things": True, "count": True, "colour": True}
    assert right[1]["time"] is False and right[1]["count"] is False and right[1]["position"] is True
    assert right[2] == {"place": False, "things": False}
    counted = rates(asked, right)
    assert counted["single"]["place"] == pytest.approx(2 / 3)
    assert counted["single"]["time"] == pytest.approx(1 / 2)
    assert counted["single"]["things"] == pytest.approx(2 / 3)
    assert counted["pair"] == {"place": 1.0, "time": 1.0, "weather": 1.0, "things": 1.0, "n": 1}


def test_drawings_know_their_scenes() -> None:
    """Pictures of held-out words are left out; each prompt is drawn from its own seed, whatever the others are."""
    asked = prompts(5, 8)
    drawing = draw(tiny_drafter(0), asked, num_steps=2, seed=1)
    known = drawing.known(5, size=16)
    assert drawing.pixels.shape == (len(asked), 3, 32, 32)
    assert known.pictures.shape == (sum(prompt.kind != "synonyms" for prompt in asked), 3, 16, 16)
    alone = draw(tiny_drafter(0), asked[3:4], num_steps=2, seed=1)
    torch.testing.assert_close(alone.pixels[0], drawing.pixels[3], atol=1e-3, rtol=0)
