"""Every option in `conf/` composes, and its keys are those of the constructor it names."""

import pytest
import yaml

from mmspec.api import compose, kind_of, plain
from mmspec.configuration import UsageError, check_node, conf_folder, groups, nearest, settings_of
from mmspec.pipeline import Pipeline

_OPTIONS = [(group, option) for group, options in groups().items() for option in options]


@pytest.mark.parametrize(("group", "option"), _OPTIONS)
def test_every_option_composes_and_fits_its_constructor(group: str, option: str) -> None:
    """Names, types and targets are right; nothing is built."""
    node = yaml.safe_load((conf_folder() / group / f"{option}.yaml").read_text(encoding="utf-8"))
    given = [f"{group}.{key}=x" for key, value in node.items() if value == "???"]
    config = plain(compose([f"{group}={option}", *given]))
    settings_of(config)
    chosen = config[group]
    # An option is one part, or names several.
    for key, part in {group: chosen}.items() if "_target_" in chosen else chosen.items():
        check_node(part, key=key)
    kind_of(config["pipeline"])


def test_default_is_co_generation() -> None:
    """Without a word, the main job runs."""
    assert issubclass(kind_of(plain(compose([]))["pipeline"]), Pipeline)


def test_mandatory_value_that_is_missing_is_named() -> None:
    """A key that has no default, `???` in its file."""
    with pytest.raises(UsageError, match=r"copy\.path is missing"):
        plain(compose(["copy=file"]))


def test_every_knob_has_a_comment() -> None:
    """A person who opens an option file reads what each of its knobs does."""
    for path in conf_folder().glob("*/*.yaml"):
        assert "#" in path.read_text(encoding="utf-8"), path


def test_nearest_names() -> None:
    """Near ones first; all where none is near; none where there are too many."""
    assert nearest("promt", ["prompt", "seed"]) == "did you mean prompt?"
    assert nearest("zzz", ["b", "a"]) == "expected one of a, b"
    assert "--cfg job" in nearest("zzz", [f"key{k}" for k in range(50)])


class Part:
    """A target with every kind of argument that a node can have."""

    def __init__(self, *, name: str, size: int, share: float, part: "Part | None" = None, flag: bool = False) -> None:
        """Take them."""


def _node(**changes: object) -> dict[str, object]:
    return {"_target_": f"{__name__}.Part", "name": "a", "size": 1, "share": 1, **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": "1"}, "x.size=1 is no int"),
        ({"size": True}, "x.size=True is no int"),
        ({"size": None}, "x.size=None is no int"),
        ({"share": "half"}, "x.share=half is no float"),
        ({"flag": 1}, "x.flag=1 is no bool"),
        ({"sise": 1}, "unknown key x.sise: did you mean size"),
        ({"part": _node(nam="a")}, "unknown key x.part.nam: did you mean name"),
        ({"_target_": "mmspec.nothing"}, "x._target_=mmspec.nothing cannot be imported"),
    ],
)
def test_misfit_is_named(changes: dict[str, object], said: str) -> None:
    """The key, the value and what is allowed."""
    check_node(_node(), key="x")
    with pytest.raises(UsageError) as caught:
        check_node(_node(**changes), key="x")
    assert str(caught.value).startswith(said)


def test_missing_argument_is_named() -> None:
    """A key that the constructor needs; a partial node may leave it to the caller."""
    node = _node()
    del node["size"]
    with pytest.raises(UsageError, match=r"x\.size is missing"):
        check_node(node, key="x")
    check_node({**node, "_partial_": True}, key="x")
