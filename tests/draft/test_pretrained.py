"""Trained drafters are found by name, and what is none is refused in one line."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file, save_file

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
