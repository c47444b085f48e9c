"""Files that nobody should have written: a clean error, soon, or no more than what is in them."""

from pathlib import Path

import pytest

from planner.configs.found import Setup
from planner.configs.recognise import LARGEST_FILE, read_text, recognise
from planner.configs.rules import faults
from planner.core.errors import InvalidInputError

BOMB = "a: &a {k: 1}\n" + "\n".join(
    f"{name}: &{name} {{<<: *{before}, <<: *{before}, <<: *{before}, <<: *{before}, <<: *{before}}}"
    for before, name in zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu", strict=True)
)
ALIASES = f"a: &a [{'1,' * 4000}]\n" + "\n".join(f"k{number}: *a" for number in range(4000))


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("a.json", "{", "cannot be read"),
        ("a.json", '{"zero_optimization": {"stage": 2,}}', "line 1"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", '{"zero_optimization": ' + '{"a": ' * 200 + "1" + "}" * 201, "too deeply"),
        ("a.json", '{"x": 1}', "configures nothing"),
        ("a.json", "[]", "configures nothing"),
        ("a.json", '{"train_batch_size": ' + "9" * 5000 + "}", "cannot be read"),
        ("a.yaml", "distributed_type: [", "cannot be read"),
        ("a.yaml", "distributed_type: !!python/object/apply:os.system [id]", "could not determine"),
        ("a.yaml", "distributed_type: !exec id", "could not determine"),
        ("a.yaml", "x: [" * 5_000, "nests brackets too deeply"),
        ("a.yaml", "x: [\n" * 5_000, "nested too deeply"),
        ("a.yaml", "a: 1\n---\nb: 2", "but found another document"),
        ("a.yaml", "", "configures nothing"),
        ("a.yaml", BOMB, "too many settings"),
        ("a.yaml", "apiVersion:\n" * 80_000, "a.yaml"),
        ("a.yaml", "kind: Job\n" * 80_000, "a.yaml"),
        ("a.toml", "[parallelism", "cannot be read"),
        ("a.toml", "x = 1", "configures nothing"),
        ("a.toml", "\na" + ".a" * 20_000 + "=1", "line 2: a key has more than 100 dots"),
        ("a.toml", "x = {a" + ' . "a"' * 101 + "=1}", "more than 100 dots"),
        ("a.toml", "x = " + "[" * 101 + "]" * 101, "line 1 nests brackets too deeply"),
        ("a.yaml", "[" * 20_000, "nests brackets too deeply"),
        ("a.yaml", "x: [" + "1," * 100_000 + "]", "more than 15,000"),
        ("a.yaml", ALIASES, "too many settings"),
        ("a.yaml", "distributed_type: 1" + ":1" * 5_000 + ".5", "not what its tag says"),
        ("a.yaml", "distributed_type: !!bool maybe", "not what its tag says"),
        ("a.yaml", "distributed_type: 0x" + "f" * 5_000, "distributed_type has thousands of"),
        ("a.py", "TrainingArguments(", "line 1"),
        ("a.py", "x = " + "(" * 5000 + ")" * 5000, "cannot be read"),
        ("a.py", "x = " + "-" * 100_000 + "1", "cannot be read"),
        ("a.py", "x = f'" + "{a}" * 60_000 + "'", "more than 10,000 braces"),
        ("a.py", "print(1)", "configures nothing"),
        ("a.sh", "", "configures nothing"),
        ("a.sh", "echo 'never closed", "configures nothing"),
        ("a.sh", "A=(x x x x)\n" + "torchrun " + '"${A[@]}" ' * 20_000, "more words"),
    ],
)
def test_what_cannot_be_read_is_one_error(file: str, text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^a\.") as error:
        recognise(text, file)
    assert said in error.value.message


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.json", '{"zero_optimization": 3, "fp16": [], "train_batch_size": {}, "bf16": null}'),
        ("a.json", '{"zero_optimization": {"stage": [2], "offload_param": "cpu"}}'),
        (
            "a.json",
            '{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": {}}}}',
        ),
        ("a.json", '{"train_batch_size": -1, "train_micro_batch_size_per_gpu": 0}'),
        ("a.json", '{"train_batch_size": 1e300, "zero_optimization": {"stage": 1e9}}'),
        ("a.json", '{"train_batch_size": "\\ud800", "": {"": 1}}'),
        ("a.yaml", "distributed_type: 2026-01-01\nnum_processes: .inf\nnum_machines: .nan"),
        ("a.yaml", "? [a, b]\n: 1\ndistributed_type: {a: b}\nfsdp_config: 7\nmixed_precision: ~"),
        ("a.toml", "[parallelism]\ntensor_parallel_degree = -4\npipeline_parallel_degree = 0"),
        ("a.py", "TrainingArguments(*a, **b, fsdp=[1, {}, None], deepspeed={1: 2, **x})"),
        ("a.py", "TrainingArguments(bf16=lambda: 1, tf32=open('/etc/passwd').read())"),
        ("a.sh", "torchrun --nproc_per_node 999999999999 --nnodes 0 train.py --a= --=b -- -"),
        ("a.sh", "torchrun --nproc-per-node $(curl evil) train.py `rm -rf /` ${A:-${B}}"),
        ("a.sh", "torchrun x.py pretrain_gpt.py --num-layers 1e15 --num-attention-heads -3"),
        (
            "a.sh",
            (
                "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 999999999 "
                "--num-attention-heads 999999999 --tensor-model-parallel-size 7 "
                "--pipeline-model-parallel-size 7 --micro-batch-size 0 --global-batch-size -5"
            ),
        ),
    ],
)
def test_values_of_any_kind_are_judged_without_a_fault_of_ours(file: str, text: str) -> None:
    found = recognise(text, file)
    for _, fault in faults(Setup(found=found, texts={file: text})):
        assert fault.message


def test_thousands_of_unknown_keys_are_not_compared_with_all_known_ones() -> None:
    keys = ", ".join(f'"stage3_unknown_{number}": 1' for number in range(4000))
    text = f'{{"zero_optimization": {{"stage": 1, {keys}}}}}'
    found = faults(Setup(found=recognise(text, "a.json"), texts={"a.json": text}))
    assert 0 < len(found) < 100


def test_a_script_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"open({str(mark)!r}, 'w')\nTrainingArguments(output_dir=open({str(mark)!r}, 'w'))"
    assert recognise(text, "a.py")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\x00\x01\x02", "not a text file"),
        (b"\xff\xfe\x00a", "not a text file"),
        (b"x" * (LARGEST_FILE + 1), "larger than"),
        (b"# " * 5_000_000, "larger than"),
    ],
)
def test_what_is_no_text_or_too_large_is_refused(tmp_path: Path, raw: bytes, said: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(raw)
    with pytest.raises(InvalidInputError, match=said):
        read_text(file, "a.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "#SBATCH --nodes=" + "9" * 5000 + "\nsrun torchrun --nnodes 2 --nproc-per-node 8 t.py",
        "#SBATCH\n#SBATCH -N\n#SBATCH --gres=gpu:\nsrun -N torchrun t.py",
        "#SBATCH --nodes=-1 --gres=gpu:0\nsrun --ntasks-per-node=x torchrun --nnodes=0 t.py",
        "#SBATCH -N 1\n" * 18_000 + "torchrun --nproc-per-node 8 t.py",
        "export CUDA_VISIBLE_DEVICES=\n" * 8_000 + "torchrun --nproc-per-node 8 t.py",
    ],
    ids=["a long number", "no values", "impossible values", "many lines", "many exports"],
)
def test_a_header_that_nobody_should_have_written_is_no_fault_of_its_job(text: str) -> None:
    setup = Setup(found=recognise(text, "job.slurm"), texts={"job.slurm": text})
    assert "CFG054" not in {rule.code for rule, _ in faults(setup)}
