"""Each sentence of a README holds for its own plan, and speaks of no other."""

import re
from dataclasses import replace
from typing import Any

import pytest
from run_specs import divided, with_launchers, with_layout
from test_generate import LLAMA_8B, MANY_NODES, SPEC

from planner.generate import RunSpec

LLAMA = {**LLAMA_8B, "num_hidden_layers": 4}
PIPELINE: dict[str, Any] = {"pipeline_parallel_size": 2}
CHUNKS: dict[str, Any] = {"virtual_pipeline_size": 2, "pipeline_schedule": "interleaved-1f1b"}


def words(spec: RunSpec, target: str = "torchrun", name: str = "README.md") -> str:
    """Return a README in one line."""
    return " ".join(with_launchers(spec, [target])[name].split())


def llama(**layout: Any) -> RunSpec:
    return divided(replace(SPEC, model_config=LLAMA, is_pretrained=False), **layout)


def test_its_first_lines_are_the_plans() -> None:
    text = words(SPEC)
    assert "starting from pretrained weights of <the model>, on 8 x <name of the GPU>" in text
    # 1.3e-4 over 30 steps of warm-up at 256 sequences a step; 8 GPUs; ln(50257) words
    # and 768 * 0.02^2 / 2.
    line = re.search(r"step 1/1000: loss L, lr (\S+), norm N, (\S+) tokens/s \(plan (\S+)\)", text)
    assert line is not None
    assert line[2] == line[3] == f"{SPEC.expected_tokens_per_second_per_gpu * 8:,.0f}"
    setting = re.search(r"`--lr (\S+)` is for 256 sequences", text)
    assert setting is not None
    assert float(line[1]) == pytest.approx(float(setting[1]) / 30, rel=0.01)
    assert "A first loss near 10.98 " in text
    assert "The first loss is near 10.98" in words(replace(SPEC, is_pretrained=False))
    assert "logarithm" not in words(replace(SPEC, task="sequence-classification"))
    for kind in ("gemma2", "bloom"):
        other = {**SPEC.model_config, "model_type": kind}
        assert "logarithm" not in words(replace(SPEC, model_config=other))
    assert "0.750 s" in text or "750 ms" in text
    assert "1,000 of them about 12.5 min" in text


@pytest.mark.parametrize(("step_seconds", "steps"), [(0.5, 5), (100.0, 3), (2000.0, 2)])
def test_a_first_try_is_short(step_seconds: float, steps: int) -> None:
    text = words(replace(SPEC, expected_step_seconds=step_seconds))
    assert f"bash launch.sh --steps {steps} --no-save-model" in text


def test_random_weights_have_settings_of_their_own() -> None:
    """GPT-3's for its smallest model: 6e-4 at half a million tokens, half of that here."""
    said = "With `--init random`: `--lr 0.00043 --beta2 0.95 --weight-decay"
    assert said in words(SPEC)
    for other in (replace(SPEC, is_pretrained=False), replace(SPEC, task="seq2seq-lm")):
        assert "With `--init random`:" not in words(other)


def test_half_an_hour_is_not_two_steps_of_an_hour() -> None:
    said = r"30 minutes .* too few for two steps of 1.00 h"
    assert re.search(said, words(replace(SPEC, expected_step_seconds=3600.0)))
    assert "too few" not in words(SPEC)


@pytest.mark.parametrize(
    ("spec", "target", "says", "keeps_quiet_of"),
    [
        (
            llama(tensor_parallel_size=2),
            "torchrun",
            "on another number of GPUs, and on another layout.",
            "tensor parallelism.",
        ),
        (
            divided(replace(SPEC, model_config={**SPEC.model_config, "n_layer": 4}), **PIPELINE),
            "torchrun",
            "on another layout without tensor parallelism.",
            "with tensor parallelism.",
        ),
    ],
)
def test_a_checkpoint_resumes_where_that_is_so(
    spec: RunSpec, target: str, says: str, keeps_quiet_of: str
) -> None:
    text = words(spec, target)
    assert says in text
    assert keeps_quiet_of not in text


def test_only_gpus_on_pcie_may_be_kept_from_each_other() -> None:
    assert "NCCL_P2P_DISABLE" not in words(SPEC)
    assert "`NCCL_P2P_DISABLE=1` goes through host memory" in words(
        replace(SPEC, is_over_pcie=True)
    )


def test_verify_runs_what_one_machine_can_run() -> None:
    assert "runs 20 steps" in words(SPEC)
    assert "runs 20 steps" not in words(MANY_NODES)
    assert "runs 20 steps" not in words(llama(), "megatron")


def test_a_batch_is_named_in_one_place() -> None:
    assert "overrides" not in words(SPEC)
    trainer = words(SPEC, "trainer")
    assert trainer.count("x `gradient_accumulation_steps` x GPUs") == 1
    assert "**Another batch**" not in trainer


def test_nothing_is_said_of_gpus_that_a_plan_cannot_have() -> None:
    grows = "fewer GPUs accumulate more micro-batches"
    assert grows in words(SPEC)
    for fixed in (MANY_NODES, llama(**PIPELINE)):
        assert grows not in words(fixed)


def test_interleaved_stages_of_megatron_take_whole_rounds() -> None:
    """Megatron Core ends in a RuntimeError where micro-batches are no multiple of the stages."""
    plain, rounds = llama(**PIPELINE), llama(**PIPELINE, **CHUNKS)
    assert "a multiple of 2 (micro batch x data-parallel ranks)." in words(plain, "megatron")
    assert "a multiple of 4 (micro batch x data-parallel ranks x stages" in words(
        rounds, "megatron"
    )


def test_megatrons_warm_up_is_the_one_that_its_script_sets() -> None:
    """Megatron refuses --lr-warmup-iters beside --lr-warmup-fraction."""
    files = with_launchers(llama(), ["megatron"])
    assert "--lr-warmup-fraction" in files["megatron/launch.sh"]
    assert "raise `--lr-warmup-fraction`" in files["README.md"]
    assert "--lr-warmup-iters" not in files["README.md"]


@pytest.mark.parametrize("name", ["slurm.sh", "ssh.sh", "docker.sh", "ray_train.py"])
def test_another_target_is_named_where_there_is_one(name: str) -> None:
    alone = with_launchers(SPEC, ["torchrun"])[f"launchers/{name}"]
    both = with_launchers(SPEC, ["torchrun", "trainer"])[f"launchers/{name}"]
    assert "TARGET=<folder>" not in alone
    assert re.search(r"TARGET=<folder> starts another one than torchrun[^:]*: trainer\.\n", both)


def test_one_gpu_has_no_others() -> None:
    alone = replace(
        SPEC, gpus_per_node=1, data_parallel_replicate_size=1, gradient_accumulation_steps=64
    )
    text = words(alone)
    assert "allocates 5.00 GiB at the peak" in text
    assert "together" not in text
    assert "a multiple of 4 (the micro batch)." in text
    for of_several in ("any number of GPUs", "A hang", "each node", "all 1"):
        assert of_several in words(SPEC) or of_several in ("each node", "all 1")
        assert of_several not in text


def test_images_are_no_sequences() -> None:
    text = words(replace(SPEC, task="image-classification"))
    assert "is for 256 images per step" in text


def test_what_is_saved_beside_a_model_is_what_it_reads_with() -> None:
    images = words(replace(SPEC, task="image-classification"), "trainer")
    assert "model and its preprocessor are in" in images
    assert "tokenizer are in" not in images
    assert "model and its tokenizer are in" in words(SPEC, "trainer")


def test_a_chat_template_without_marks_has_its_flag() -> None:
    assert "`{% generation %}`; with any other, `--assistant_only_loss false`" in words(
        SPEC, "trainer"
    )


def test_one_node_is_not_every_node() -> None:
    alone, many = (words(spec, name="launchers/README.md") for spec in (SPEC, MANY_NODES))
    assert "every node" in many
    assert "every node" not in alone
    assert "NODE_RANK=0 MASTER_ADDR=node0 bash launchers/docker.sh" in many
    assert "--for=jsonpath='{.status.ready}'=1" in alone
    assert f"--for=jsonpath='{{.status.ready}}'={MANY_NODES.nodes}" in many


def test_a_run_of_every_program_leaves_checkpoints() -> None:
    for target, saves in (
        ("megatron", "--save checkpoints"),
        ("torchtitan", "--checkpoint.enable"),
    ):
        for spec in (SPEC, MANY_NODES):
            text = with_launchers(replace(spec, model_config=LLAMA_8B), [target])["README.md"]
            lines = re.findall(r"bash launch.sh .*1000.*$", text, re.MULTILINE)
            assert lines
            assert all(saves in line for line in lines)


def test_torchtitan_says_what_is_lost_when_it_is_told_to_end() -> None:
    slow = replace(SPEC, model_config=LLAMA_8B, expected_step_seconds=300.0)
    text = words(slow, "torchtitan")
    assert "saves nothing when it is stopped" in text
    assert "at most 10 x 300 s" in text


def test_shards_of_replicas_resume_on_whole_replicas() -> None:
    whole = with_layout(SPEC, zero_stage=3)
    sizes: dict[str, Any] = {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 4}
    assert "resumes on any number of GPUs." in words(whole)
    assert "resumes on any number of GPUs that 4 divides." in words(replace(whole, **sizes))


def test_nobody_asks_for_consent_to_a_folder_of_ones_own() -> None:
    local = replace(SPEC, model="/models/mine", model_config=LLAMA_8B)
    for target in ("torchrun", "torchtitan"):
        assert "gated model" in words(replace(local, model="mine/too"), target)
        assert "gated model" not in words(local, target)
    own = replace(local, framework="torchtitan")
    assert "cp /models/mine/*.{json,safetensors} assets" in words(own, "torchtitan")
    bare = replace(own, is_pretrained=False)
    assert "cp /models/mine/tokenizer* assets" in words(bare, "torchtitan")
