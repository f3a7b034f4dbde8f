"""Trained drafters are found by name, and what is none is refused in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from spd_lib.draft import make_drafter
from spd_lib.draft.pretrained import DrafterError, load_module, shipped_module
from spd_lib.target.layers import Decoder
from tests.draft.modules import deep_llama, tiny_module


def test_the_path_of_a_drafter_is_no_name_of_a_target(tmp_path) -> None:
    tiny_module(Decoder(deep_llama())).save_pretrained(tmp_path)
    with pytest.raises(DrafterError, match="no drafter is shipped for"):
        shipped_module(str(tmp_path))


def test_loading_says_nothing_on_stdout(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_module(Decoder(deep_llama())).save_pretrained(tmp_path)
    load_module(tmp_path)
    assert capsys.readouterr().out == ""


def test_the_shipped_module_is_for_smollm2() -> None:
    config = shipped_module().config
    assert (config.target, config.target_layers, config.vocab_size) == ("smollm2", 30, 49152)


def test_weights_that_are_not_all_there_are_refused(tmp_path) -> None:
    module = tiny_module(Decoder(deep_llama()))
    module.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["layers.1.q_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(DrafterError, match="layers.1.q_proj.weight"):
        load_module(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A drafter that can be read."""
    tiny_module(Decoder(deep_llama())).save_pretrained(tmp_path)
    return tmp_path


def test_a_path_is_a_drafter(folder: Path) -> None:
    assert make_drafter(folder).module.config == make_drafter(str(folder)).module.config


@pytest.mark.parametrize("text", ["{broken", "", "\x00\x01"])
def test_a_config_that_is_no_json_is_named(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(DrafterError, match="config.json is not JSON"):
        load_module(folder)


@pytest.mark.parametrize("found", [[], {"window": 3}, 7])
def test_a_config_of_something_else_is_named(folder: Path, found) -> None:
    (folder / "config.json").write_text(json.dumps(found))
    with pytest.raises(DrafterError, match="config.json is no drafter's: it lacks anchors, draft_vocab_size, head_dim"):
        load_module(folder)


def test_a_folder_without_files_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(DrafterError, match="cannot load the drafter .*model.safetensors"):
        load_module(folder)
    (folder / "config.json").unlink()
    with pytest.raises(DrafterError, match="no trained drafter is in .*: cannot read config.json .No such file"):
        load_module(folder)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_kv_heads", 0, "num_kv_heads must be a whole number from 1 to 1,048,576, got 0"),
        ("window", 256.5, "window must be a whole number .*, got 256.5"),
        ("window", 10**12, "window must be a whole number .*, got 1000000000000"),
        ("head_dim", "64", "head_dim must be a whole number .*, got '64'"),
        ("num_layers", True, "num_layers must be a whole number .*, got True"),
        ("rope_theta", 0, "rope_theta must be a number above 0, got 0"),
        ("norm_eps", math.nan, "norm_eps must be a number above 0, got nan"),
        ("tokenizer", None, "tokenizer must be a text, got None"),
        ("anchors", "0,16", "anchors must be whole numbers, got '0,16'"),
        ("anchors", [0, 8.5, 16], "anchors must be whole numbers"),
        ("anchors", [], "anchors must run from 0 to the target's 16 layers"),
        ("draft_vocab_size", 1000, "draft_vocab_size must be at most the vocabulary's"),
    ],
)
def test_a_field_that_cannot_be_is_named(folder: Path, field: str, value, message: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(DrafterError, match=f"config.json: {message}"):
        load_module(folder)


@pytest.mark.parametrize(
    ("tensor", "value", "message"),
    [
        ("head.weight", math.nan, "its weights head.weight are not finite"),
        ("kind_scales", math.inf, "its weights kind_scales are not finite"),
        ("draft_ids", 60_000, "draft_ids must be from 0 to .*, got 60000"),
        ("draft_ids", -3, "draft_ids must be from 0 to .*, got -3"),
        ("draft_ids", "the same", "draft_ids has an id twice"),
    ],
)
def test_weights_that_draft_nothing_are_refused(folder: Path, tensor: str, value, message: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    changed = tensors[tensor].flatten()
    changed[0] = changed[1] if value == "the same" else torch.tensor(value)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DrafterError, match=message):
        load_module(folder)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_layers", 1_000_000, "layers.999999.q_proj.weight must be .* found nothing"),
        ("intermediate_size", 1_000_000, r"layers.1.gate_proj.weight must be \[1000000, .*found \[48, "),
        ("head_dim", 500_000, "layers.1.q_proj.weight must be"),
        ("draft_vocab_size", 41, r"draft_ids must be \[41\] by config.json, found \[40\]"),
    ],
)
def test_shapes_that_are_not_there_are_named_before_room_is_made(folder: Path, field: str, value, message: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(DrafterError, match=f"model.safetensors: {message}"):
        load_module(folder)


@pytest.mark.parametrize(("tensor", "dtype"), [("draft_ids", torch.float32), ("kind_scales", torch.int8)])
def test_numbers_of_another_kind_are_refused(folder: Path, tensor: str, dtype: torch.dtype) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[tensor] = tensors[tensor].to(dtype)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DrafterError, match=f"model.safetensors: {tensor} cannot be "):
        load_module(folder)


@pytest.mark.parametrize("name", ["", "oracle", "a/b/c"])
def test_what_is_no_name_of_a_trained_drafter(name: str) -> None:
    with pytest.raises(DrafterError, match=f"a trained drafter is a folder or a hub id .*, got '{name}'"):
        load_module(name)
