"""Every strategy of every target trains like one process on the same global batch."""

from pathlib import Path

import pytest
from launched import ACCUMULATED, BERT, LLAMA, TINY, launch, start, unused_port, write
from reference import assert_parity, expected, train
from run_specs import with_layout

pytestmark = pytest.mark.usefixtures("preloaded")


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_torchrun_trains_like_one_process(zero_stage: int, tmp_path: Path) -> None:
    once, often = (with_layout(spec, zero_stage=zero_stage) for spec in (TINY, ACCUMULATED))
    runs = [
        launch(tmp_path / "once", once, "--no-dropout"),
        launch(tmp_path / "often", often, "--no-dropout"),
    ]
    for run in runs:
        assert_parity(run.finish(), expected("gpt2"))


def test_masked_models_train_like_one_process(tmp_path: Path) -> None:
    bert = with_layout(ACCUMULATED, model_config=BERT, task="masked-lm")
    runs = [
        launch(tmp_path / "0", bert, "--no-dropout"),
        launch(tmp_path / "3", with_layout(bert, zero_stage=3), "--no-dropout"),
    ]
    for run in runs:
        assert_parity(run.finish(), expected("bert"))


def test_a_head_that_sees_masked_tokens_alone_trains_like_one_that_sees_all(tmp_path: Path) -> None:
    whole = BERT | {
        "model_type": "modernbert",
        "architectures": ["ModernBertForMaskedLM"],
        "pad_token_id": 0,
    }
    config = whole | {"sparse_prediction": True}
    spec = with_layout(ACCUMULATED, model_config=config, task="masked-lm")
    evaluated = ("--no-dropout", "--eval-every", "3")
    run = launch(tmp_path, spec, *evaluated).finish()
    assert run.losses == pytest.approx(train(whole).losses, abs=1e-5)


def test_one_gpu_needs_no_process_group_of_several(tmp_path: Path) -> None:
    spec = with_layout(TINY, gpus_per_node=1, gradient_accumulation_steps=2)
    run = launch(tmp_path, spec, "--no-dropout").finish()
    assert_parity(run, expected("gpt2"), world_size=1)


def test_llama_trains_like_one_process(tmp_path: Path) -> None:
    llama = with_layout(ACCUMULATED, model_config=LLAMA, zero_stage=3)
    alone = write(tmp_path / "alone", llama, "torchrun")
    runs = {
        2: launch(tmp_path / "no-sync", llama, "--no-dropout", "--no-sync"),
        1: start(alone, "python", "torchrun/train.py", "--no-dropout"),
    }
    for world_size, run in runs.items():
        assert_parity(run.finish(), expected("llama"), world_size)


def test_two_nodes_train_like_one_process(tmp_path: Path) -> None:
    spec = with_layout(TINY, nodes=2, gpus_per_node=1)
    command = ("bash", "torchrun/launch.sh", "--no-dropout")
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused_port()}
    nodes = [
        start(write(tmp_path / rank, spec, "torchrun"), *command, NODE_RANK=rank, **meeting)
        for rank in ("0", "1")
    ]
    first, second = (node.finish() for node in nodes)
    assert_parity(first, expected("gpt2"))
    assert not (second.folder / "log.jsonl").exists()
