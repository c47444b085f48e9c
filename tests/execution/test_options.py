"""Reduced precision, recomputation, text and mistakes, each in a real run."""

import json
from pathlib import Path

import pytest
from launched import BERT, DEEP_LLAMA, TINY, deep, launch, start, write
from reference import expected, mean_distance
from run_specs import with_layout
from texts import WORDS, write_tokenizer

pytestmark = pytest.mark.usefixtures("preloaded")


@pytest.mark.parametrize(
    "cases",
    [{0: "bf16-mixed", 3: "bf16-mixed"}, {1: "bf16", 2: "fp16-mixed"}],
    ids=["bf16", "others"],
)
def test_reduced_precision_with_recomputation_stays_close(
    cases: dict[int, str], tmp_path: Path
) -> None:
    reference = expected("gpt2")
    moved = mean_distance(reference.initial, reference.weights)
    runs = [
        launch(
            tmp_path / str(stage),
            with_layout(TINY, zero_stage=stage, precision=precision, recompute="full"),
            "--no-dropout",
        )
        for stage, precision in cases.items()
    ]
    for run in runs:
        assert run.finish().losses == pytest.approx(reference.losses, abs=0.02)
        weights = {name: weight.float() for name, weight in run.weights.items()}
        assert mean_distance(weights, reference.weights) < 0.5 * moved


def test_text_gives_the_same_losses_on_any_number_of_processes(tmp_path: Path) -> None:
    text = [" ".join(f"w{line * word % WORDS}" for word in range(20)) for line in range(40)]
    lines, rows = tmp_path / "text.txt", tmp_path / "rows" / "text.jsonl"
    lines.write_text("\n".join(text))
    rows.parent.mkdir()
    rows.write_text("".join(json.dumps({"text": line}) + "\n" for line in text))
    bert = with_layout(TINY, model_config=BERT, task="masked-lm")
    options = ("--no-dropout", "--tokenizer", str(write_tokenizer(tmp_path / "tokenizer")))

    def train(name: str, *command: str) -> list[float]:
        folder = write(tmp_path / name, bert, "torchrun")
        return start(folder, *command, *options, HF_HOME=f"{folder}/home").finish().losses

    losses = train("two", "bash", "torchrun/launch.sh", "--dataset", str(rows.parent))
    for data in (lines, rows):
        alone = train(f"one{data.suffix}", "python", "torchrun/train.py", "--data", str(data))
        assert alone == pytest.approx(losses, abs=1e-5, rel=0)
    assert losses != pytest.approx(expected("bert").losses, abs=1e-3)


def test_a_batch_that_the_processes_do_not_divide_ends_the_job(tmp_path: Path) -> None:
    three = with_layout(TINY, gpus_per_node=3, global_batch_size=24)
    folder = write(tmp_path, three, "torchrun")
    run = start(folder, "bash", "torchrun/launch.sh", NPROC_PER_NODE="2")
    message = "2 processes cannot share 24 sequences a step, 8 at a time: the plan is for 3"
    output = run.fail()
    assert output.count(message) == 1
    assert "Traceback" not in output


def test_a_node_without_its_number_is_told_to_set_it(tmp_path: Path) -> None:
    folder = write(tmp_path, with_layout(TINY, nodes=2, gpus_per_node=1), "torchrun")
    run = start(folder, "bash", "torchrun/launch.sh", MASTER_ADDR="127.0.0.1")
    assert "NODE_RANK: set it to the number of this node, 0 to 1" in run.fail()


@pytest.mark.parametrize("layout", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_an_error_on_one_process_ends_the_job(layout: str, tmp_path: Path) -> None:
    folder = write(tmp_path, deep(DEEP_LLAMA, **{layout: 2}), "torchrun")
    script = folder / "torchrun" / "train.py"
    start_of_step = "    total = torch.zeros((), device=training.device)\n"
    fault = '    assert dist.get_rank() == 0 or training.step == 0, "lost a GPU"\n'
    text = script.read_text()
    assert text.count(start_of_step) == 1
    script.write_text(text.replace(start_of_step, fault + start_of_step))
    output = start(folder, "bash", "torchrun/launch.sh", "--no-dropout").fail()
    assert "lost a GPU" in output


def test_a_profile_is_written_for_every_process(tmp_path: Path) -> None:
    launch(tmp_path, TINY, "--profile", str(tmp_path / "trace")).finish()
    traces = {path.name.partition(".")[0] for path in (tmp_path / "trace").glob("*.json")}
    assert traces == {"rank-0", "rank-1"}
