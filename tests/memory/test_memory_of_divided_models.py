"""What a model that is divided holds around its loss and between its stages, by hand."""

from dataclasses import replace

import pytest
from conftest import JobMaker
from phased import in_phases

from planner.domain.strategy import Layout, PipelineSchedule, Recompute
from planner.memory.activations import (
    activations,
    autocast_weight_copies,
    gathered_keys_values,
    recomputed_block,
    tensor_parallel_buffers,
)
from planner.memory.ledger import gradients
from planner.memory.loss import logits_and_loss
from planner.memory.pipeline import (
    arriving_gradients,
    input_gradients,
    pipeline_buffers,
    stage_outputs,
    waiting_gradients,
)
from planner.memory.sharding_buffers import communication_buffers
from planner.parallel.activations import part_kept_bytes
from planner.parallel.partition import stage

LLAMA = "meta-llama/Llama-3.2-1B"
VOCABULARY, HIDDEN, TOKENS = 128_256, 2048, 2048
RECIPE = {"sequence_length": 1024, "global_batch_size": 8, "precision": "bf16-mixed"}
DIVIDED = Layout(
    data_parallel_shard_size=2,
    tensor_parallel_size=2,
    sequence_parallel=True,
    zero_stage=3,
    micro_batch_size=2,
)
PIPED = Layout(
    pipeline_parallel_size=2,
    pipeline_schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
    gradient_accumulation_steps=8,
)


def test_a_split_loss_is_spelled_out_and_outside_what_is_gathered(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=4, recipe={**RECIPE, "framework": "torch"})
    last = stage(job, DIVIDED, 0)
    held = logits_and_loss(job, DIVIDED, last)
    # Forward ends with the model's own logits, in 16 bit; all of the loss comes after it.
    assert held.forward.value == 2 * TOKENS * VOCABULARY / 2
    assert held.loss.value == 16 * TOKENS * VOCABULARY / 2
    buffers = communication_buffers(job, DIVIDED, last)
    assert buffers.loss.value == 0
    assert min(buffers.forward.value, buffers.last_block.value) > 0


def test_megatrons_split_loss_is_its_own(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=4, recipe={**RECIPE, "framework": "megatron"})
    held = logits_and_loss(job, DIVIDED, stage(job, DIVIDED, 0))
    assert held.loss.value == 10 * TOKENS * VOCABULARY / 2


def test_a_pipeline_has_a_buffer_for_every_micro_batch(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    # The first stage receives gradients, the last one hidden states: in fp32, as autocast leaves them.
    first, last = (pipeline_buffers(job, PIPED, stage(job, PIPED, index)) for index in (0, 1))
    state = 1024 * HIDDEN * 4
    assert first.loss.value == first.step.value == last.step.value == 8 * state
    # That of the micro-batch in flight is what its first block keeps; in 16 bit the norm keeps a copy.
    assert last.loss.value == 7 * state
    halves = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch", "precision": "bf16"})
    assert pipeline_buffers(halves, PIPED, stage(halves, PIPED, 1)).loss.value == 8 * state / 2
    again = replace(PIPED, recompute=Recompute.FULL)
    assert pipeline_buffers(halves, again, stage(halves, again, 1)).loss.value == 7 * state / 2


def test_gradients_that_were_given_back_stay_where_weight_gradients_are_put_off(
    make_job: JobMaker,
) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    state = 1024 * HIDDEN * 4
    put_off = replace(PIPED, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE_H1)
    v = replace(PIPED, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE_V, virtual_pipeline_size=2)
    interleaved = replace(
        PIPED, pipeline_schedule=PipelineSchedule.INTERLEAVED, virtual_pipeline_size=2
    )

    def held(s: Layout, index: int) -> tuple[float, float]:
        term = input_gradients(job, s, stage(job, s, index))
        return float(term.loss.value) / state, float(term.step.value)

    assert held(PIPED, 0) == (0, 0)  # it gives none back
    assert held(PIPED, 1) == (1, 0)
    assert held(put_off, 1) == (8 - 2, 0)
    # Both stages of a V give those of one chunk back; at the turn the other's are the rank's own.
    assert held(v, 0) == held(v, 1) == (8 - 2, 0)
    assert held(interleaved, 1) == (0, 0)


def test_chunks_that_follow_each_other_share_what_they_hand_on(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    v = replace(PIPED, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE_V, virtual_pipeline_size=2)
    state = 1024 * HIDDEN * 4
    ends, turn = (stage_outputs(job, v, stage(job, v, index)) for index in (0, 1))
    assert ends.loss.value == turn.loss.value == 2 * state  # two are in flight, of one chunk each
    received = pipeline_buffers(job, v, stage(job, v, 1))
    assert received.loss.value == (8 * 4 - 2 * 2) * state


def test_what_goes_around_a_last_exchange_is_there_beside_a_whole_stage(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=4, recipe={**RECIPE, "framework": "torch"})
    halved = replace(PIPED, tensor_parallel_size=2, sequence_parallel=True)
    first, last = (tensor_parallel_buffers(job, halved, stage(job, halved, i)) for i in (0, 1))
    # Gathered norms in fp32, a matmul's output and its pieces in 16 bit; of half the tokens the norm's
    # output and the sum; what the stage hands on is not there yet.
    assert first.forward.value == 1024 * HIDDEN * (4 + 2 + 2 + (4 + 2) / 2 - 4 / 2)
    assert first.loss.value == last.forward.value == 0
    whole = replace(PIPED, tensor_parallel_size=2)
    held = tensor_parallel_buffers(job, whole, stage(job, whole, 0))
    assert held.forward.value == 1024 * HIDDEN * (2 + 2 + 4 - 4)


def test_micro_batches_that_wait_have_copies_of_weights_of_their_own(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    first, last = (autocast_weight_copies(job, PIPED, stage(job, PIPED, index)) for index in (0, 1))
    weights = 8 * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * 512 + 3 * HIDDEN * 8192)
    assert first.loss.value == 2 * 2 * weights  # two are in flight
    assert last.loss.value == 2 * (weights + VOCABULARY * HIDDEN)


def test_micro_batches_that_wait_keep_blocks_and_what_is_outside_them(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    gpipe = replace(PIPED, pipeline_schedule=PipelineSchedule.GPIPE, recompute=Recompute.FULL)
    held = activations(job, gpipe, stage(job, gpipe, 1))
    # A state in fp32 of each of 8 blocks; the last norm's input and output in fp32, its scale, and the head's copy.
    blocks, outside = 8 * 4 * HIDDEN, (4 + 4 + 2) * HIDDEN + 4
    assert held.forward.value == 1024 * 8 * (blocks + outside)
    assert held.last_block.value == 1024 * (7 * (blocks + outside) + blocks)
    assert held.first_block.value == 1024 * (7 * (blocks + outside) + 4 * HIDDEN)
    assert held.outer.value == 1024 * 7 * (blocks + outside)


def test_no_other_losses_wait_where_weight_gradients_are_put_off(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    put_off = replace(PIPED, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE_H1)
    last, logits = stage(job, put_off, 1), 1024 * VOCABULARY
    assert (last.in_flight, last.waiting) == (2, 2)
    held = logits_and_loss(job, put_off, last)
    # 16-bit logits, which a pipeline returns and keeps, beside 12 bytes of the loss; then a log-softmax in fp32.
    assert held.forward.value == 2 * logits
    assert held.loss.value == (12 + 2) * logits
    assert held.last_block.value == held.first_block.value == (4 + 2) * logits


def test_a_stage_holds_what_it_handed_on_until_its_own_backward(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    first, last = (stage_outputs(job, PIPED, stage(job, PIPED, index)) for index in (0, 1))
    assert first.loss.value == 2 * 1024 * HIDDEN * 4  # two are in flight
    assert first.step.value == last.loss.value == 0
    arriving = arriving_gradients(job, PIPED, stage(job, PIPED, 0))
    assert arriving.last_block.value == 1024 * (HIDDEN * 4 + 8192 * 2)


def test_put_off_weight_gradients_keep_activations_and_gradients_of_outputs(
    make_job: JobMaker,
) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    put_off = replace(PIPED, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE_H1)
    first, last = (stage(job, put_off, index) for index in (0, 1))
    assert not waiting_gradients(job, put_off, first).first_block.value  # it does both at once
    outputs = 2 * (HIDDEN + 512 + 512 + HIDDEN + 8192 + 8192 + HIDDEN)  # matmuls in 16 bit
    each = 8 * (outputs + 2 * 4 * HIDDEN) + 2 * VOCABULARY + 4 * HIDDEN + 4 * HIDDEN
    held = waiting_gradients(job, put_off, last)
    assert held.loss.value == 1024 * each
    assert held.first_block.value == 1024 * (2 * each + 5 * 4 * HIDDEN)
    kept = activations(job, put_off, last)
    assert kept.first_block.value == kept.forward.value


@pytest.mark.parametrize("between", [1, 2])
def test_ranks_that_divide_matmuls_have_their_part_of_the_gradients_that_wait(
    make_job: JobMaker, between: int
) -> None:
    """Of what goes in between, and of norms, only where the sequence is divided there."""
    job = make_job(LLAMA, gpus=4, recipe={**RECIPE, "framework": "torch"})
    s = replace(
        PIPED,
        pipeline_schedule=PipelineSchedule.ZERO_BUBBLE_H1,
        tensor_parallel_size=2,
        sequence_parallel=between == 2,
    )
    outputs = 2 * ((HIDDEN + 512 + 512 + 8192 + 8192) / 2 + 2 * HIDDEN / between)
    norms_and_states = (2 * 8 + 1 + 1) * 4 * HIDDEN / between
    each = 8 * outputs + 2 * VOCABULARY / 2 + norms_and_states
    assert waiting_gradients(job, s, stage(job, s, 1)).loss.value == 1024 * each


def test_all_of_a_block_comes_back_where_all_of_it_recomputes(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=1, recipe={**RECIPE, "framework": "torch"})
    (block,) = job.model.blocks
    full = Layout(recompute=Recompute.FULL)
    again = recomputed_block(job, full, stage(job, full, 0))
    whole = part_kept_bytes(job, Layout(), block)
    assert max(float(each) for each in in_phases(again)) == whole


def test_the_head_of_a_v_is_on_its_first_stage(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    v = replace(PIPED, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE_V, virtual_pipeline_size=2)
    first, turn = (stage(job, v, index) for index in (0, 1))
    assert (first.is_first, first.is_last) == (1, 1)
    assert (turn.is_first, turn.is_last) == (0, 0)
    assert logits_and_loss(job, v, first).loss.value > 0
    assert not logits_and_loss(job, v, turn).loss.value


def test_all_losses_and_no_gradient_wait_where_all_forwards_come_first(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=2, recipe={**RECIPE, "framework": "torch"})
    gpipe = replace(PIPED, pipeline_schedule=PipelineSchedule.GPIPE)
    last = stage(job, gpipe, 1)
    logits = 1024 * VOCABULARY
    # As forward ends logits in 16 bit, and of those before a log-softmax in fp32 too.
    assert logits_and_loss(job, gpipe, last).forward.value == logits * (2 + 7 * (4 + 2))
    each = 2 * (8 * (2 * HIDDEN * (HIDDEN + 512) + 3 * HIDDEN * 8192) + VOCABULARY * HIDDEN)
    assert autocast_weight_copies(job, gpipe, last).loss.value == 8 * each
    assert not gradients(job, gpipe, last).loss.value
    assert gradients(job, PIPED, stage(job, PIPED, 1)).loss.value


@pytest.mark.parametrize(
    ("precision", "bytes_each"), [("bf16-mixed", 12), ("fp32", 8), ("bf16", 4)]
)
def test_an_activation_in_python_has_three_gradients_at_once(
    make_job: JobMaker, precision: str, bytes_each: int
) -> None:
    """Of a GPT-2's first stage, whose script was 3 % above a plan without them, followed without a GPU."""
    recipe = {"sequence_length": 512, "precision": precision, "global_batch_size": 32}
    job = make_job("gpt2", gpus=2, recipe=recipe)
    s = Layout(pipeline_parallel_size=2, micro_batch_size=4, gradient_accumulation_steps=8)
    arriving = arriving_gradients(job, s, stage(job, s, 0))
    assert float(arriving.last_block.value) == bytes_each * 4 * 512 * 4 * 768


def test_a_stage_without_blocks_gathers_no_keys(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=6, recipe={**RECIPE, "framework": "torch"})
    dealt = replace(job, pipeline_layout=(15, 1, 0))
    s = replace(PIPED, pipeline_parallel_size=3, context_parallel_size=2)
    held = [gathered_keys_values(dealt, s, stage(dealt, s, index)) for index in range(3)]
    # Keys and values in 16 bit, repeated for every query head, of the 1,024 tokens of both ranks.
    both = 2 * 2 * 1024 * HIDDEN
    assert [term.forward.value for term in held] == [both, both, 0]
    assert [term.last_block.value for term in held] == [2 * both, 2 * both, 0]
