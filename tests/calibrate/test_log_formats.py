import gzip
import re
from pathlib import Path
from typing import Any

import log_samples
import pytest
from log_samples import SAMPLES

from planner.calibrate.logs.layout import measured_run, step_seconds
from planner.calibrate.logs.reading import Reading, read_log, read_log_bytes
from planner.calibrate.logs.steps import steady
from planner.core.errors import InvalidInputError

GPT2: dict[str, Any] = {
    "model": "gpt2",
    "cluster": {"gpu": "l40s", "gpus_per_node": 2},
    "recipe": {"sequence_length": 512, "global_batch_size": 16},
    "strategy": {"micro_batch_size": 8},
}
LLAMA: dict[str, Any] = {"model": "meta-llama/Llama-2-7b-hf", "cluster": {"gpu": "h100"}}


def read(text: str) -> Reading:
    return read_log_bytes("run.log", text.encode())


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, n) for kind, made in SAMPLES.items() for n in range(len(made))]
)
def test_each_kind_is_known_by_what_it_prints(kind: str, number: int) -> None:
    reading = read(SAMPLES[kind][number]())
    assert reading.kind == kind
    assert not reading.damaged
    assert reading.steady is not None or reading.collectives


@pytest.mark.parametrize(
    "kind", ["Megatron-LM", "NeMo", "nanotron", "MaxText", "the planner's script"]
)
def test_the_warm_up_is_left_out_and_counted(kind: str) -> None:
    reading = read(SAMPLES[kind][0]())
    assert reading.steady is not None
    assert (reading.steady.left_out, reading.steady.steps) == (1, log_samples.STEPS - 1)
    assert step_seconds(reading, GPT2) == pytest.approx(0.501, rel=3e-3)


def test_a_first_step_alone_is_no_steady_step() -> None:
    start, first, *later = log_samples.script().splitlines()
    reading = read_log_bytes("run.log", f"{start}\n{first}".encode())
    assert reading.steady is None
    assert "its one step is the first" in reading.notes[0]
    assert read_log_bytes("run.log", f"{start}\n{later[-1]}".encode()).steady is not None


@pytest.mark.parametrize(
    ("values", "left_out"),
    [
        ((9, 9, 1, 1, 1, 1), 2),
        ((1, 1, 1), 1),
        ((5, 1), 1),
        ((3,), 0),
        ((9, 9, 9, 9, 1, 1, 1, 1), 4),
    ],
)
def test_the_warm_up_ends_where_steps_are_as_fast_as_later(
    values: tuple[float, ...], left_out: int
) -> None:
    found = steady(values)
    assert (found.left_out, found.steps) == (left_out, len(values) - left_out)


def test_megatron_says_its_layout_and_the_fullest_ranks_memory() -> None:
    reading = read(log_samples.megatron())
    run, notes = measured_run(reading, LLAMA)
    assert run.request["strategy"] == {
        "context_parallel_size": 1,
        "micro_batch_size": 1,
        "pipeline_parallel_size": 2,
        "recompute": "none",
        "sequence_parallel": True,
        "tensor_parallel_size": 2,
        "virtual_pipeline_size": 1,
        "zero_stage": 1,
    }
    assert run.request["recipe"] == {
        "framework": "megatron",
        "global_batch_size": 128,
        "sequence_length": 2048,
    }
    assert run.request["cluster"] == {"gpu": "h100", "gpus_per_node": 8}
    assert run.peak_bytes == 1504.5 * 2**20
    assert reading.log is not None
    assert reading.log.reserved_bytes == 2052 * 2**20
    assert run.reserved_bytes is None  # the context is not in it
    assert notes == ("8 ranks are taken as one node's",)


@pytest.mark.parametrize(
    ("printed", "modules"),
    [("['moe_act', 'layernorm']", ["moe_act", "layernorm"]), ("None", [])],
)
def test_megatron_says_which_modules_recompute(printed: str, modules: list[str]) -> None:
    line = "  recompute_granularity ........................... "
    text = log_samples.megatron().replace(
        f"{line}None",
        f"{line}selective\n  recompute_modules ............................... {printed}",
    )
    run, _ = measured_run(read(text), LLAMA)
    assert run.request["strategy"]["recompute"] == "selective"
    assert run.request["strategy"]["recompute_modules"] == modules


@pytest.mark.parametrize("printed", ["['mhc']", "['moe_act', 'mhc']", "moe_act", "[]x"])
def test_a_module_that_is_not_modelled_is_named_not_left_out(printed: str) -> None:
    line = f"  recompute_modules ............................... {printed}"
    reading = read(f"{line}\n{log_samples.megatron()}")
    assert [each.strip() for each in reading.damaged] == [line.strip()]


def test_torchtitan_says_its_gpus_too() -> None:
    reading = read(log_samples.torchtitan())
    run, _ = measured_run(reading, {"model": "meta-llama/Llama-2-7b-hf"})
    assert run.request["cluster"] == {"gpu": "NVIDIA H100 80GB HBM3", "gpus_per_node": 8}
    assert run.request["strategy"]["data_parallel_shard_size"] == 4
    assert run.step_seconds == pytest.approx(0.501, rel=1e-3)
    assert reading.log is not None
    assert reading.log.reserved_bytes == pytest.approx(40.12 * 2**30)
    assert run.peak_bytes is None


def test_nanotron_says_its_batch() -> None:
    gpus = {"gpu": "h100", "gpus_per_node": 8}
    run, _ = measured_run(read(log_samples.nanotron()), {**LLAMA, "cluster": gpus})
    assert run.request["strategy"]["gradient_accumulation_steps"] == 4
    assert run.request["strategy"]["data_parallel_size"] == 2
    assert run.peak_bytes == 1500.25 * 2**20


def test_deepspeed_says_its_stage_and_batch() -> None:
    run, _ = measured_run(read(log_samples.deepspeed()), GPT2 | {"strategy": {}})
    assert run.request["strategy"] == {
        "gradient_accumulation_steps": 2,
        "micro_batch_size": 4,
        "zero_stage": 3,
    }
    assert run.step_seconds == pytest.approx(0.501, rel=3e-3)
    assert run.peak_bytes == pytest.approx(7.12 * 2**30)


def test_a_line_of_nemo_2_says_its_batch_and_memory() -> None:
    eight = {**LLAMA, "cluster": {"gpu": "b200", "gpus_per_node": 8}}
    sizes = {"recipe": {"sequence_length": 8192}, "strategy": {"micro_batch_size": 1}}
    reading = read(log_samples.nemo_2())
    run, _ = measured_run(reading, eight | sizes)
    assert run.request["recipe"]["global_batch_size"] == 128
    assert reading.log is not None
    assert (run.peak_bytes, reading.log.reserved_bytes) == (115792977920, 127785762816)
    assert run.step_seconds == pytest.approx(0.501, rel=3e-3)


def test_mlperf_is_timed_by_its_blocks_or_by_what_it_tracks() -> None:
    by_blocks, tracked = read(log_samples.mlperf()), read(log_samples.mlperf_tracked())
    batch = {"recipe": {"global_batch_size": 8}}
    assert step_seconds(by_blocks, batch) == pytest.approx(8 * 200 / 384)
    assert step_seconds(tracked, batch) == pytest.approx(8 / 1.92)


def test_a_trainers_mean_is_over_all_its_steps() -> None:
    for sample in (log_samples.trainer, log_samples.trainer_state):
        reading = read(sample())
        assert step_seconds(reading, {}) == 0.5
        assert reading.log is not None
        assert reading.log.is_mean


def test_a_trainer_that_has_not_ended_is_timed_by_its_bar() -> None:
    loss = "{'loss': 1.5, 'grad_norm': 2.3, 'learning_rate': 1.9e-05, 'epoch': 0.1}"
    bars = ["  0%|   | 0/900 [00:00<?, ?it/s]", "  1%|   | 10/900 [00:40<59:20,  4.00s/it]"]
    bars += [" 50%|   | 4/8 [00:30<00:30,  7.50s/it]"]  # of an evaluation
    going = "\r".join([*bars, "100%|   | 700/900 [1:10:19<08:50,  5.89s/it]", loss])
    reading = read(going)
    assert step_seconds(reading, {}) == pytest.approx((4219 - 40) / 690)
    assert reading.log is not None
    assert "its progress bar times steps 10 to 700" in reading.log.notes[0]
    early = read("\r".join([*bars, "  1%|   | 13/900 [00:52<59:20,  4.00s/it]", loss]))
    assert early.log is not None
    assert not early.log.values
    assert "does not go on for 20 s" in early.log.notes[0]


def test_the_samples_of_an_old_trainer_are_steps() -> None:
    # huggingface/transformers#9371: 200 steps of 8 samples, 14.5 samples/s
    line = "{'train_runtime': 110.5948, 'train_samples_per_second': 1.808, 'epoch': 0.69}"
    reading = read(line)
    assert step_seconds(reading, {}) == pytest.approx(110.5948 / 200)
    assert reading.log is not None
    assert not reading.log.per_step
    (note,) = reading.log.notes
    assert "counts optimizer steps, not samples" in note
    newer = read(line.replace("'epoch'", "'train_steps_per_second': 1.808, 'epoch'"))
    assert newer.log is not None
    assert not newer.log.notes


def test_a_trace_says_what_its_gpu_did() -> None:
    reading = read(log_samples.trace())
    assert reading.busy is not None
    assert reading.busy.compute_seconds == pytest.approx(0.06)
    assert reading.busy.communication_seconds == pytest.approx(0.03)
    assert reading.busy.exposed_communication_seconds == pytest.approx(0.015)
    assert reading.busy.idle_seconds == pytest.approx(0.025)
    assert reading.busy.seconds_by_stream == {"7": pytest.approx(0.06), "20": pytest.approx(0.03)}
    assert step_seconds(reading, {}) == pytest.approx(0.1)
    assert reading.gpu == "NVIDIA L40S"


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("all_reduce", "all_reduce"),
        ("alltoall", "all_to_all"),
        ("reduce_scatter", "reduce_scatter"),
    ],
)
def test_a_table_of_nccl_tests_is_a_curve(name: str, operation: str) -> None:
    reading = read(log_samples.nccl_tests(name))
    (curve,) = reading.collectives
    assert (curve.operation, curve.ranks, curve.nodes) == (operation, 8, 2)
    assert [point.bytes for point in curve.points] == [2**power for power in range(20, 25)]
    assert curve.points[0].seconds == pytest.approx((30 + 2**20 / 1e5) * 1e-6, rel=1e-3)
    assert (reading.gpu, reading.nccl) == ("NVIDIA A100-SXM4-80GB", "2.27.3+cuda12.9")


def test_older_nccl_tests_are_told_by_their_bandwidths_where_those_say_it() -> None:
    (curve,) = read(log_samples.nccl_tests(has_name=False)).collectives
    assert curve.operation == "all_reduce"
    unknown = read(log_samples.nccl_tests("all_gather", has_name=False))
    assert not unknown.collectives
    assert "does not say of which operation" in unknown.notes[0]


def test_rows_with_wrong_results_are_left_out() -> None:
    text = log_samples.nccl_tests()
    row = next(line for line in text.splitlines() if line.strip().startswith("1048576"))
    reading = read(text.replace(row, re.sub(r"\b0\b", "7", row, count=1)))
    assert len(reading.collectives[0].points) == 4
    assert len(reading.damaged) == 1


def test_several_tests_in_one_file_are_several_curves() -> None:
    both = log_samples.nccl_tests() + "\n" + log_samples.nccl_tests("reduce_scatter", hosts=1)
    assert [(each.operation, each.ranks) for each in read(both).collectives] == [
        ("all_reduce", 8),
        ("reduce_scatter", 4),
    ]


def test_the_slowest_rank_counts_where_several_print() -> None:
    one = log_samples.torchtitan()
    other = one.replace("[rank0]", "[rank1]").replace("tps: 16,3", "tps: 15,3")
    mixed = [
        line for pair in zip(one.splitlines(), other.splitlines(), strict=True) for line in pair
    ]
    reading = read("\n".join(mixed))
    assert reading.steady is not None
    assert reading.steady.steps == log_samples.STEPS - 1
    assert reading.steady.value < 16_000


def test_what_is_not_understood_is_counted_and_named() -> None:
    text = log_samples.megatron().replace("(ms): 500.0", "(ms): nan", 1)
    reading = read("a warning of something\n" + text)
    assert len(reading.damaged) == 1
    assert "iteration 30/ 120 |" in reading.damaged[0]
    assert reading.first_unread == "a warning of something"
    assert reading.steady is not None
    assert reading.steady.steps == log_samples.STEPS - 2


def test_an_earlier_run_in_the_same_file_is_left_out() -> None:
    first = log_samples.megatron().replace(
        "micro_batch_size ................................ 1", ""
    )
    first = first.replace(
        "elapsed time per iteration (ms): 5", "elapsed time per iteration (ms): 95"
    )
    first = first.replace(". 128", ". 256").replace("size:   128", "size:   256")
    reading = read(first + "\n" + log_samples.megatron())
    assert reading.steady is not None
    assert reading.steady.value == pytest.approx(0.501, rel=1e-2)
    assert "earlier run" in reading.notes[0]


@pytest.mark.parametrize(
    ("layout", "missing"),
    [
        (
            None,
            "MODEL, --gpu NAME, --gpus N, --seq-len N, --global-batch-size N, --micro-batch-size N",
        ),
        (GPT2 | {"cluster": {}}, "--gpu NAME, --gpus N"),
    ],
)
def test_what_neither_says_is_asked_for_by_its_flags(
    layout: dict[str, object] | None, missing: str
) -> None:
    with pytest.raises(InvalidInputError) as error:
        measured_run(read("completed step: 3, seconds: 0.5"), layout)
    assert missing in error.value.message
    assert error.value.field == "--layout"


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({**LLAMA, "strategy": {"tensor_parallel_size": 4}}, "says tensor_parallel_size 2"),
        ({**LLAMA, "cluster": {"gpu": "h100", "gpus_per_node": 4, "nodes": 4}}, "says 8 ranks"),
    ],
)
def test_a_layout_of_another_run_is_refused(layout: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        measured_run(read(log_samples.megatron()), layout)


def test_packed_logs_are_unpacked_and_broken_ones_give_what_came_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.log.gz"
    packed = gzip.compress(log_samples.megatron().encode() * 20, mtime=0)
    path.write_bytes(packed)
    assert read_log(str(path)).steady is not None
    path.write_bytes(packed[:60])
    with pytest.raises(InvalidInputError):
        read_log(str(path))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is empty"),
        (b"\n\r\n", "is empty"),
        (bytes(range(32)) * 9, "is binary"),
        (b"\x1f\x8bgarbage", "damaged gzip"),
        (b"hello\n", "no log that is known"),
        (b'{"model": "gpt2"}', "no log that is known"),
    ],
)
def test_what_is_no_log_is_refused_with_what_it_is(raw: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(raw)
    with pytest.raises(InvalidInputError, match=said):
        read_log(str(path))
    with pytest.raises(InvalidInputError, match="cannot read"):
        read_log(str(tmp_path / "none.log"))
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_log(str(tmp_path))


def test_of_a_log_that_is_too_long_the_first_part_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = log_samples.megatron().encode()
    monkeypatch.setattr("planner.calibrate.logs.log_file.LARGEST_LOG", len(text) - 500)
    for raw in (text, gzip.compress(text, mtime=0)):
        reading = read_log_bytes("run.log", raw)
        assert reading.steady is not None
        assert "longer than is read" in reading.notes[-1]


@pytest.mark.parametrize(
    ("text", "of_16"),
    [
        (
            (
                "{{'train_runtime': 25.4, 'train_samples_per_second': {}, 'train_steps_per_second':"
                " 7.874, 'epoch': 1.0}}"
            ),
            125.98,
        ),
        (
            (
                '{{"global_step": 200, "log_history": [{{"step": 200, "epoch": 1.0, "train_runtime":'
                ' 25.4, "train_samples_per_second": {}, "train_steps_per_second": 7.874}}]}}'
            ),
            125.98,
        ),
        (
            "iteration: 2 / 9 | elapsed_time_per_iteration_ms: 127 | global_batch_size: {} | x: 1",
            16,
        ),
        (
            (
                "global_step=8.000, consumed_samples=100.0, train_step_timing in s=0.127\n"
                "global_step=9.000, consumed_samples=1{}.0, train_step_timing in s=0.127"
            ),
            16,
        ),
        (
            "completed step: 3, seconds: 0.127, Tokens/s/device: 1000000, total_weights: {}, loss: 1",
            0,
        ),
        ("completed step: 3, seconds: 0.127, total_weights: {}, loss: 1", 8190),
    ],
)
def test_steps_of_another_batch_are_refused(text: str, of_16: float) -> None:
    if of_16:
        assert measured_run(read(text.format(of_16)), GPT2)[0].step_seconds
    with pytest.raises(InvalidInputError, match=r"says .*, and the layout"):
        measured_run(read(text.format(4 * of_16)), GPT2)


def test_the_model_is_the_one_that_the_log_names() -> None:
    layout = {**LLAMA, "cluster": {"gpu": "h100", "gpus_per_node": 8}}
    table = "  num_layers ........ 32\n  hidden_size ....... 4096\n  ffn_hidden_size ... 11008\n"
    assert measured_run(read(table + log_samples.megatron()), layout)
    titan = "Model llama3 8B size: 6,738,415,616 total parameters\n" + log_samples.torchtitan()
    assert measured_run(read(titan), layout)
    larger = {**layout, "model": "meta-llama/Llama-3.1-8B"}
    with pytest.raises(InvalidInputError, match=r"says ffn_hidden_size 11008, .*Llama-3\.1-8B"):
        measured_run(read(table + log_samples.megatron()), larger)
    other = titan.replace("6,738,415,616", "8,030,261,248")
    with pytest.raises(InvalidInputError, match="says 8,030,261,248 parameters"):
        measured_run(read(other), layout)


@pytest.mark.parametrize(
    ("strategy", "gpus", "said"),
    [
        ({"family": "zero-2"}, 2, "says zero_stage 3, and the layout zero-2"),
        ({"family": "zero-3"}, 4, "says world_size 2, and the layout 4 ranks"),
        ({"family": "zero-3"}, 2, ""),
        ({"family": "zero-3", "tensor_parallel_size": 2}, 4, ""),
    ],
)
def test_what_flags_say_of_deepspeed_is_what_its_log_says(
    strategy: dict[str, Any], gpus: int, said: str
) -> None:
    head = "[2026-11-01 10:00:00,000] [INFO] [config.py:1003:print]"
    reading = read(f"{head}   world_size ................... 2\n" + log_samples.deepspeed())
    layout = {
        "model": "gpt2",
        "cluster": {"gpu": "l40s", "gpus_per_node": gpus},
        "recipe": {"sequence_length": 512},
        "strategy": strategy,
    }
    if not said:
        assert measured_run(reading, layout)[0].step_seconds
        return
    with pytest.raises(InvalidInputError, match=said):
        measured_run(reading, layout)
