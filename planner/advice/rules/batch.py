"""Rules about the batch: how large it has grown, how many steps are left, how it is cut."""

import math

from planner.advice.rules.base import ONE_PER_SEQUENCE, Situation
from planner.advice.rules.sentences import said
from planner.catalog.batches import usual_batch
from planner.core.units import format_pace, format_samples
from planner.search.local_sgd import FEWEST_AVERAGES, local_sgd

GROWN = 4
"""Times the usual batch from which a run needs new hyperparameters: with rate and epochs left alone, 4 to
16 times the batch cost 2 to 5 % of the score (Boytsov, K-batch synchronisation)."""
WORTH_THE_GPUS = 1.2
"""How much faster GPUs beyond one for each sequence must make a step."""
FEWEST_STEPS = 200
"""Optimizer steps of a run below which a smaller batch is advised."""


def global_batch_has_grown_too_far(situation: Situation) -> str | None:
    """The global batch is several times what such training takes.

    Why: beyond a critical size more samples per step hardly improve the step, so the run needs more
    samples in all; at the same epochs and learning rate quality falls.

    Instead: fewer data-parallel ranks or less accumulation; else a retuned learning rate, a longer
    warm-up and a check of quality.

    Source: McCandlish et al., An Empirical Model of Large-Batch Training, arXiv:1812.06162; for
    pre-training the batches of Brown et al., arXiv:2005.14165, table 2.1, and Dubey et al.,
    arXiv:2407.21783, section 3.4.1; for fine-tuning those of data/recipes/learning_rates.toml.
    """
    job, recipe = situation.job, situation.job.recipe
    if recipe.job == "grpo":  # its answers are its own, many to a prompt
        return None
    usual = usual_batch(
        job.model,
        sequence_length=recipe.sequence_length,
        job=recipe.job,
        has_adapters=recipe.lora is not None,
        training_tokens=recipe.training_tokens,
    )
    batch = format_samples(recipe.global_batch_size, job.sample)
    factor = recipe.global_batch_size / usual.largest
    if factor <= GROWN:
        return None
    if usual.is_pretraining:
        grown = said(
            "BAT001.pretraining",
            tokens=job.tokens_per_step,
            factor=factor,
            usual=usual.largest * recipe.sequence_length,
            parameters=job.model.parameters,
        )
    else:
        grown = said(
            "BAT001.fine_tuning",
            batch=batch,
            factor=factor,
            usual=usual.largest,
            training=usual.training,
        )
    return grown + said("BAT001.instead")


def too_few_optimizer_steps(situation: Situation) -> str | None:
    """The run ends before its optimizer has taken two hundred steps.

    Why: a warm-up takes a share of them, so the model hardly moves, however many samples each step
    averages.

    Instead: a smaller global batch, which makes more steps of the same tokens; or more epochs.

    Source: Boytsov, K-batch synchronisation: BERT-large on 4 GPUs with 16 accumulation steps fell from
    an F1 of 88.6 to 84.4 with 40,000 samples and from 77.8 to 15.9 with 4,000. The batch is not
    stated: 8 per GPU and two epochs, the script's usual, would be 157 steps and 16.
    """
    job = situation.job
    steps = job.recipe.training_tokens / job.text_tokens_per_step
    if not 0 < steps < FEWEST_STEPS:
        return None
    return said(
        "BAT002.few",
        tokens=job.recipe.training_tokens,
        steps=math.ceil(steps),
        each=job.text_tokens_per_step,
        fewest=FEWEST_STEPS,
    )


def local_sgd_averages_rarely(situation: Situation) -> str | None:
    """Local SGD averages so rarely that few averages are left in the run.

    Why: between averages every replica trains on its own share; with a handful of averages the run
    is several short runs whose mean nobody tuned.

    Instead: a smaller synchronize_every, or plain DDP.

    Source: Stich, local SGD, arXiv:1805.09767; Boytsov, K-batch synchronisation: F1 88.8 with an
    average every step and 87.3 every 16; with a tenth of the samples 77.4 and 74.2.
    """
    s, job = situation.candidate.strategy, situation.job
    if not s.is_local:
        return None
    steps = job.recipe.training_tokens / job.text_tokens_per_step
    averages = steps / s.synchronize_every
    found = [said("BAT003.drift", every=s.synchronize_every)]
    if steps:
        found.append(said("BAT003.averages", averages=averages))
        found.append(said("BAT003.few") if averages < FEWEST_AVERAGES else "")
    enough = local_sgd(job, s).interval
    if enough < s.synchronize_every:
        found.append(said("BAT003.enough", enough=enough))
    return "".join(found)


def gpus_share_sequences(situation: Situation) -> str | None:
    """The batch has fewer sequences than there are GPUs, and as many GPUs as sequences do nearly as well.

    Why: only dividing the model, or a sequence, gives the others work; they exchange in every layer.

    Instead: one GPU for each sequence, or a larger global batch.

    Source: the search on both.
    """
    fewer, batch = (
        situation.on_fewer_gpus.get(ONE_PER_SEQUENCE),
        situation.job.recipe.global_batch_size,
    )
    if fewer is None:
        return None
    here, there = situation.candidate.step_time.step_seconds, fewer.step_time.step_seconds
    if there > WORTH_THE_GPUS * here:
        return None
    return said(
        "BAT004.share",
        batch=batch,
        gpus=situation.job.cluster.world_size,
        seconds=there,
        family=fewer.strategy.family,
        pace=format_pace(there, here),
    )
