"""Rules about what crosses the wires, and whether as many GPUs are worth it."""

from dataclasses import replace

from planner.advice.rules.base import (
    HALF,
    HALF_OF_EACH,
    LARGER_GPUS,
    ONE_GPU,
    ONE_NODE,
    Situation,
)
from planner.advice.rules.sentences import said
from planner.core.units import format_duration
from planner.domain.cluster import Cluster
from planner.domain.strategy import ZERO_1, ZERO_2
from planner.search.largest_that_fits import with_gpus
from planner.search.local_sgd import local_sgd
from planner.search.search import TIE
from planner.search.training_run import training_run
from planner.step_time.ledger import estimate_step_time
from planner.step_time.terms import COMMUNICATION, StepTerm

LARGE_SHARE = 0.20
NOTABLE_GAIN = 0.05
MORE_ACCUMULATION = 4
"""Times the global batch that is offered."""
WORTH_A_NODE = 1.2
"""How much faster more nodes must make a step to be worth waiting and paying for."""
SHORT_SECONDS = 30 * 60
_LEAST_TOLD = 0.005
"""Of a step: a part that rounds to no percent is not told."""
_OF_REPLICAS = (ZERO_1, ZERO_2)
"""Stages that keep the parameters whole, and divide what the optimizer holds."""
_MANY_TIMES = 10
"""As long, from which on hundredths are not told."""


def communication_is_exposed(situation: Situation) -> str | None:
    """More than a fifth of the step is what communication costs: exposed, or slowing compute.

    Why: while gradients, parameters or activations travel, the GPUs idle; and what hides behind
    compute takes of its memory bandwidth and processors.

    Instead: more tokens per exchange: a larger micro-batch or accumulation without
    synchronisation (no_sync); local SGD, which averages every few steps; a faster network. What an estimate has
    faster is named.

    Source: Boytsov, K-batch synchronisation: 2.4 to 3.6 times on 4 GPUs with averages every 1 to 16
    steps; Hugging Face, Efficient Training on Multiple GPUs.
    """
    share = situation.share(*COMMUNICATION)
    slowed = situation.share(StepTerm.OVERLAP_SLOWDOWN)
    if share <= LARGE_SHARE:
        return None
    s, link = situation.candidate.strategy, situation.job.cluster.slowest_link
    is_plain = s.zero_stage == 0 and s.data_parallel_size == situation.job.cluster.world_size
    remedies = {
        (averaged := _averaged(situation) if is_plain else ""): bool(averaged),
        (accumulated := _accumulated(situation)): bool(accumulated),
        said("COM001.link", link=link.name): not link.is_fast,
    }
    offered = ", or ".join(name for name, helps in remedies.items() if helps)
    parts = {"COM001.exposed": share - slowed, "COM001.slowing": slowed}
    told = ", ".join(said(key, part=part) for key, part in parts.items() if part >= _LEAST_TOLD)
    helps = said("COM001.remedies", remedies=offered) if offered else ""
    return said("COM001.share", share=share, parts=told) + helps


def _averaged(situation: Situation) -> str:
    """Return at which interval local SGD comes near to a step without an average; "" if it has that."""
    job, s = situation.job, situation.candidate.strategy
    if not job.framework.capabilities.local_sgd:
        return ""
    found = local_sgd(job, s)
    if found.interval <= s.synchronize_every:
        return ""
    gain = found.step_seconds(s.synchronize_every) / found.step_seconds(found.interval)
    return said("COM001.averaged", every=found.interval, gain=gain)


def _accumulated(situation: Situation) -> str:
    job, candidate = situation.job, situation.candidate
    s = candidate.strategy
    if s.data_parallel_size == 1 or s.pipeline_parallel_size > 1:
        return ""
    batch = MORE_ACCUMULATION * job.recipe.global_batch_size
    steps = MORE_ACCUMULATION * s.gradient_accumulation_steps
    larger = replace(job, recipe=replace(job.recipe, global_batch_size=batch))
    accumulated = estimate_step_time(larger, replace(s, gradient_accumulation_steps=steps))
    before = float(candidate.step_time.tokens_per_second_per_gpu)
    gain = float(accumulated.tokens_per_second_per_gpu) / before - 1
    if gain < NOTABLE_GAIN:
        return ""
    return said("COM001.accumulated", gain=gain, batch=batch)


def tensors_cross_a_slow_link(situation: Situation) -> str | None:
    """Tensor parallelism runs over a link that is not NVLink, and takes a twentieth of the step or more.

    Why: every layer sums activations twice forward and twice backward, and the next matmul waits
    for each sum.

    Instead: a smaller tensor parallel size, a pipeline, or ZeRO with large micro-batches.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Tensor Parallelism: "TP
    requires very fast network".
    """
    size = situation.candidate.strategy.tensor_parallel_size
    link = situation.job.cluster.link(size)
    if size == 1 or link.is_fast:
        return None
    share = situation.share(StepTerm.TENSOR_EXCHANGE)
    if share < NOTABLE_GAIN:
        return None
    return said("COM002.slow", size=size, link=link.name, share=share)


def more_nodes_are_not_worth_it(situation: Situation) -> str | None:
    """All the nodes together are hardly faster than one of them.

    Why: what the network costs is as much as the added GPUs bring.

    Instead: one node; the others are free for another run.

    Source: forum reports of two nodes slower than one over Ethernet (huggingface/accelerate#1153:
    2.00 s against 0.91 s a step).
    """
    on_one_node = situation.on_fewer_gpus.get(ONE_NODE)
    if on_one_node is None:
        return None
    gain = float(on_one_node.step_time.step_seconds / situation.candidate.step_time.step_seconds)
    if gain > WORTH_A_NODE:
        return None
    nodes = said(
        "COM003.nodes",
        one=on_one_node.step_time.step_seconds,
        family=on_one_node.strategy.family,
        nodes=situation.job.cluster.nodes,
        all=situation.candidate.step_time.step_seconds,
        times=_times_as_fast(gain),
    )
    return nodes + said("COM003.no_faster" if gain <= TIE else "COM003.hardly")


def half_the_gpus_are_as_fast(situation: Situation) -> str | None:
    """Half of the GPUs take no longer for a step than all of them.

    Why: what the links cost is as much as the added GPUs bring.

    Instead: half of them; the others are free for another run.

    Source: the search on both.
    """
    fewer = situation.on_fewer_gpus
    halves = {name: fewer[name] for name in (HALF, HALF_OF_EACH) if name in fewer}
    if not halves:
        return None
    name, half = min(halves.items(), key=lambda each: float(each[1].step_time.step_seconds))
    gain = float(half.step_time.step_seconds / situation.candidate.step_time.step_seconds)
    if gain > TIE:
        return None
    cluster = situation.job.cluster
    is_apart = name == HALF_OF_EACH and cluster.nodes > 1
    return said(
        "COM009.half",
        half=cluster.world_size // 2,
        gpus=cluster.world_size,
        apart=said("COM009.apart") if is_apart else "",
        seconds=half.step_time.step_seconds,
        family=half.strategy.family,
        all=situation.candidate.step_time.step_seconds,
    )


def smaller_gpus_hold_the_others_back(situation: Situation) -> str | None:
    """A node of several models of GPUs is slower than its larger GPUs alone.

    Why: ranks hold equal shares and wait for each other, so the least memory and speed govern all;
    GPUs of different models reach each other through host memory.

    Instead: the larger GPUs; the others for another job, or for evaluation. A larger micro-batch for the
    faster card is the only way to use both: it needs a loop of one's own, a sampler that deals the shares
    and gradients weighted by them, as DDP averages over ranks whatever they hold.

    Leaves out, in what shares by speed would take, the exchange of gradients and the smaller cards' memory:

        1 / (1 / seconds of the larger alone + smaller GPUs / (all GPUs * seconds of all in equal shares))

    Source: the search on both; `planner.hardware.mixed_gpus`.
    """
    larger, cluster = situation.on_fewer_gpus.get(LARGER_GPUS), situation.job.cluster
    if larger is None or cluster.larger_gpus is None or cluster.topology is not None:
        return None
    seconds = situation.candidate.step_time.step_seconds
    gain = float(larger.step_time.step_seconds / seconds)
    if gain >= 1:
        return None
    alone = float(larger.step_time.step_seconds)
    return said(
        "COM008.wait",
        gpus=cluster.larger_gpus.world_size,
        gpu=cluster.larger_gpus.gpu.name,
        larger=alone,
        all_gpus=cluster.world_size,
        all=seconds,
        times=_times_as_fast(gain),
        shares=_in_shares_by_speed(cluster, alone, float(seconds)),
    )


def one_gpu_holds_the_others_back(situation: Situation) -> str | None:
    """A node's other GPUs are as fast without the one whose links are slower.

    Why: a ring is as fast as its slowest link. Behind one switch all GPUs have the same links, so one that has
    none is out of the fabric: `nvidia-smi -q`, Fabric State and Status, says it; the fabric manager and a reset
    of the GPU mend it.

    Instead: the others, until it is mended.

    Source: the search on both; vllm-project/vllm#16336.
    """
    others, cluster = situation.on_fewer_gpus.get(LARGER_GPUS), situation.job.cluster
    if others is None or cluster.topology is None or cluster.larger_gpus is None:
        return None
    left = set(cluster.gpu_order) - set(cluster.larger_gpus.gpu_order)
    odd = ", ".join(f"GPU{each}" for each in sorted(left))
    link, fast = cluster.intra_node, cluster.larger_gpus.intra_node
    return said(
        "COM010.odd",
        odd=odd,
        slow=link.bytes_per_second,
        fast=fast.bytes_per_second,
        without=others.step_time.step_seconds,
        all=situation.candidate.step_time.step_seconds,
    )


def _in_shares_by_speed(cluster: Cluster, larger_seconds: float, equal_seconds: float) -> float:
    """Return the seconds of a step of which every GPU computes as much as it can in the same time."""
    larger = cluster.larger_gpus.world_size if cluster.larger_gpus else cluster.world_size
    smaller_share = 1 - larger / cluster.world_size
    return 1 / (1 / larger_seconds + smaller_share / equal_seconds)


def one_gpu_is_enough(situation: Situation) -> str | None:
    """One GPU does the job nearly as fast, or the whole of it in half an hour.

    Why: the start-up of a short run is not divided among GPUs, and several processes take longer to start
    and to debug; the whole run is compared, start-up included, where its length was said.

    Instead: one GPU, and the others for other runs, such as a search for the learning rate.

    Source: Hugging Face forum: a small run fell from 43 to 28 s on 4 GPUs, most of it start-up.
    """
    on_one_gpu, job = situation.on_fewer_gpus.get(ONE_GPU), situation.job
    if on_one_gpu is None or job.cluster.world_size == 1:
        return None
    one, here = on_one_gpu.step_time, situation.candidate.step_time
    gain = float(one.step_seconds / here.step_seconds)
    gpus = job.cluster.world_size
    run, run_of_one = training_run(job, here), training_run(with_gpus(job, 1, 1), one)
    if run is None or run_of_one is None:
        if gain > WORTH_A_NODE:
            return None
        times = _times_as_fast(gain)
        return said(
            "COM004.step", one=one.step_seconds, gpus=gpus, all=here.step_seconds, times=times
        )
    whole_gain = run_of_one.seconds / run.seconds
    if whole_gain > WORTH_A_NODE and run_of_one.seconds > SHORT_SECONDS:
        return None
    return said(
        "COM004.run",
        one=format_duration(run_of_one.seconds),
        all=format_duration(run.seconds),
        gpus=gpus,
        times=_times_as_fast(whole_gain),
        start_one=format_duration(run_of_one.start_up_seconds),
        start_all=format_duration(run.start_up_seconds),
        step_times=_times_as_fast(gain),
    )


def _times_as_fast(gain: float) -> str:
    if f"{gain:.2f}" == "1.00":
        return "no faster"
    longer = 1 / gain
    times = f"{longer:,.2f}" if longer < _MANY_TIMES else f"{longer:,.0f}"
    return f"{gain:.2f} times as fast" if gain > 1 else f"{times} times as long"


def shards_buy_nothing(situation: Situation) -> str | None:
    """Parameters are sharded where a whole replica fits and is as fast.

    Why: FSDP and ZeRO-3 gather every layer's parameters for every pass; DDP sends gradients once.

    Instead: DDP; sharding where the memory it frees buys a larger micro-batch that pays for it.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, case 1.
    """
    s, simplest = situation.candidate.strategy, situation.simplest
    if simplest is None or not s.shards_gradients or not simplest.is_comfortable:
        return None
    saved = situation.candidate.step_time.step_seconds / simplest.step_time.step_seconds - 1
    if saved < -LARGE_SHARE / 2:
        return None
    room = said(
        "COM005.room",
        memory=simplest.memory.reserved_bytes,
        seconds=simplest.step_time.step_seconds,
    )
    return room + (said("COM005.little", saved=-saved) if saved < 0 else said("COM005.nothing"))


def copies_go_through_the_host(situation: Situation) -> str | None:
    """What GPUs exchange goes through host memory: the card, the sockets or a setting is why.

    Why: each exchange crosses PCIe twice. Cards without peer-to-peer copies cannot do better; those
    that have them are staged by NCCL too where more than two meet through a CPU. This is the one place where the old nn.DataParallel,
    five exchanges and a loaded first GPU, may keep up with DDP: 110.6 s against 131.4 s on two
    TITAN RTX without NVLink, 101.9 s with it.

    Instead: DDP with accumulation (no_sync); NVLink bridges; a driver or card with P2P; cards below
    one PCIe switch; NCCL_P2P_LEVEL=SYS where the CPUs pass copies on (--peer-to-peer).

    Source: Hugging Face, Efficient Training on Multiple GPUs, section DataParallel vs
    DistributedDataParallel.
    """
    cluster = situation.job.cluster
    if cluster.intra_node.medium != "host" or cluster.gpus_per_node == 1:
        return None
    because = cluster.intra_node.staged_because
    return said("COM006.twice", link=cluster.intra_node.name, because=because)
