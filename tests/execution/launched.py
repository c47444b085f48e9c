"""Tiny plans, started through their own launch.sh on two CPU processes."""

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from preloading import OFFLINE_ON_CPUS, pythons
from run_specs import divided, with_launchers, with_layout
from safetensors.torch import load_file
from torch import Tensor

from planner.generate import RunSpec

GPT2 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 96,
    "n_positions": 16,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 16,
}
DEEP_GPT2 = GPT2 | {"n_layer": 4}
DEEP_LLAMA = LLAMA | {
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    # AdamW turns the rounding of gradients near zero into steps; large weights have few of those.
    "initializer_range": 0.2,
}
BERT = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
}
T5 = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "decoder_start_token_id": 0,
    "vocab_size": 96,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 2,
}
WHISPER = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "vocab_size": 96,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_mel_bins": 8,
    "max_source_positions": 50,
    "max_target_positions": 64,
    "decoder_start_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 2,
}
BART = {
    "model_type": "bart",
    "architectures": ["BartForConditionalGeneration"],
    "vocab_size": 96,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 16,
}
VIT = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
CLASSES = 3
CLASSIFIER = BERT | {
    "architectures": ["BertForSequenceClassification"],
    "id2label": {str(number): f"class {number}" for number in range(CLASSES)},
}

TINY = RunSpec(
    cuda_visible_devices="",
    model="example/tiny",
    revision="main",
    model_config=GPT2,
    is_pretrained=False,
    task="causal-lm",
    nodes=1,
    gpus_per_node=2,
    data_parallel_replicate_size=2,
    data_parallel_shard_size=1,
    zero_stage=0,
    micro_batch_size=8,
    gradient_accumulation_steps=1,
    global_batch_size=16,
    sequence_length=16,
    precision="fp32",
    attention="sdpa",
    optimizer="adamw",
    expected_peak_bytes=2**30,
    expected_reserved_bytes=2**31,
    expected_step_seconds=0.5,
    expected_tokens_per_second_per_gpu=1000.0,
    flops_per_token=1e5,
    peak_flops_per_second=1e12,
    plan_summary="Two processes, because a test has no more.",
    versions={"torch": "2.13.0+cpu"},
)
ACCUMULATED = with_layout(TINY, micro_batch_size=2, gradient_accumulation_steps=4)
STEPS = 3
WEIGHT_DECAY, BETA2 = 0.1, 0.95
RATES = ("--lr", "1e-3", "--warmup", "1", "--weight-decay", str(WEIGHT_DECAY))
HYPERPARAMETERS = ("--cpu", "--steps", str(STEPS), *RATES, "--beta2", str(BETA2))
SECONDS = 900  # a machine may be busy with something else
TIMED_OUT = 124


@dataclass
class Run:
    """A launched plan; `finish` waits for it."""

    folder: Path
    process: subprocess.Popen[str]
    printed: str = ""

    def finish(self) -> "Run":
        self.output()
        return self

    def output(self) -> str:
        self.printed, _ = self.process.communicate()
        assert self.process.returncode == 0, self.printed
        return self.printed

    def fail(self) -> str:
        output, _ = self.process.communicate()
        assert self.process.returncode not in {0, TIMED_OUT}, output
        return output

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]

    @property
    def losses(self) -> list[float]:
        return [record["loss"] for record in self.log if "loss" in record]

    @property
    def evaluations(self) -> list[dict[str, float]]:
        return [record for record in self.log if "eval_loss" in record]

    @property
    def weights(self) -> dict[str, Tensor]:
        files = (self.folder / "model").glob("model*.safetensors")
        return {name: weight for file in files for name, weight in load_file(file).items()}

    @property
    def adapters(self) -> dict[str, Tensor]:
        return load_file(self.folder / "model" / "adapter_model.safetensors")


def deep(model_config: dict[str, Any], **layout: Any) -> RunSpec:
    """Return a tiny plan that splits a model of four layers, with as few micro-batches as show what it does.

    A second one adds to the gradients of the first; a pipeline fills, runs and empties.
    """
    spec = divided(replace(TINY, model_config=model_config), **layout)
    stages = spec.pipeline_parallel_size
    micro_batches = 2 * stages if stages > 1 else 2
    sequences = spec.micro_batch_size * spec.gradient_accumulation_steps
    return replace(
        spec,
        micro_batch_size=sequences // micro_batches,
        gradient_accumulation_steps=micro_batches,
    )


def write(folder: Path, spec: RunSpec, *targets: str) -> Path:
    for name, text in with_launchers(spec, targets).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def launch(folder: Path, spec: RunSpec, *arguments: str, target: str = "torchrun") -> Run:
    """Write the plan's files into the folder and start its launch.sh."""
    write(folder, spec, target)
    return start(folder, "bash", f"{target}/launch.sh", *arguments)


def start(folder: Path, *command: str, **environment: str) -> Run:
    """Start a script offline on CPUs; its log and its weights go into the folder."""
    return run(folder, *command, *HYPERPARAMETERS, *_results(folder), **environment)


def run(folder: Path, *command: str, **environment: str) -> Run:
    """Start a command offline on CPUs, with this Python's tools in PATH."""
    process = subprocess.Popen(
        ["timeout", str(SECONDS), *command],  # noqa: S607
        cwd=folder,
        env={**os.environ, **OFFLINE_ON_CPUS, **pythons(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Run(folder, process)


def launch_several(
    folder: Path,
    specs: Mapping[str, RunSpec],
    *arguments: str,
    again: Sequence[str] = (),
    target: str = "torchrun",
    **environment: str,
) -> dict[str, Run]:
    """Train plans of equal world size in one launch of torchrun; wait for the results.

    Each has its own folder, whose path replaces FOLDER in the arguments, and its name NAME. With
    the arguments `again` each trains a second time, into the folder of that name inside its own.
    """
    folders = {name: write(folder / name, spec, target) for name, spec in specs.items()}
    (processes,) = {spec.world_size for spec in specs.values()}
    launcher = ("torchrun", "--standalone", f"--nproc_per_node={processes}", "--")
    driver = [str(Path(__file__).with_name("several.py")), target, *map(str, folders.values())]
    driver += ["--", *HYPERPARAMETERS, *_results("FOLDER"), *arguments]
    if again:
        for path in folders.values():
            (path / "again").mkdir()
        driver += ["--", *HYPERPARAMETERS, *_results("FOLDER/again"), *again]
    done = run(folder, *launcher, *driver, **environment).finish()
    return {name: Run(path, done.process) for name, path in folders.items()}


def _results(folder: Path | str) -> tuple[str, ...]:
    return ("--log", f"{folder}/log.jsonl", "--save-model", f"{folder}/model")


def unused_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])
