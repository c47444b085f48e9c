"""The answer on a terminal: what to run, does it fit, how fast, how sure, what to type next; what else there is."""

from planner.advice.confidence import confidence_in_brief
from planner.advice.plan import Plan
from planner.core.units import format_gpus, format_pace, format_samples, format_sum
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.report.launch import how_to_run, other_choices
from planner.report.layout_words import stack_text, subject, techniques, total_figures
from planner.report.rollout import rollout_choices, rollout_figures, rollout_trust, split_text
from planner.report.values import Figure, Terminal, columns_text, figures_text
from planner.search.candidate import Candidate

LABEL_WIDTH, INDENT = 9, "  "
_WORTH_A_LINE = 0.05
"""Of a step: what communication adds less than that is left to the whole plan."""


def entries_text(figures: tuple[Figure, ...], terminal: Terminal) -> str:
    """Return a paragraph for each label of the first screen."""
    return figures_text(figures, terminal, LABEL_WIDTH, INDENT)


def answer_text(plan: Plan, command: str, terminal: Terminal, *, is_brief: bool = False) -> str:
    """Return what to run in a line, then does it fit, how fast, how sure and what to type next.

    Args:
        plan: what to show.
        command: the command line that asked; "" where it wrote files already.
        terminal: what it is shown on.
        is_brief: whether the least that matters is said.
    """
    first = headline(plan.job, plan.chosen)
    if plan.rollout is not None:
        first = f"{first}; {split_text(plan.rollout.chosen)}"
    elif not plan.launch.targets:
        first += "; on paper only, no files can be written"
    least = _WORTH_A_LINE if is_brief else 0.0
    figures = (
        *(
            rollout_figures(plan.rollout)
            if plan.rollout
            else total_figures(plan.job, plan.chosen, least=least)
        ),
        *_cost(plan),
        *_spare(plan),
        rollout_trust() if plan.rollout else _sure(plan, is_brief=is_brief),
        *how_to_run(plan, command, is_brief=is_brief),
    )
    return f"{headline_text(first, terminal)}\n\n{entries_text(figures, terminal)}"


def headline_text(line: str, terminal: Terminal) -> str:
    """Return a headline as a terminal shows it."""
    return terminal.bold(terminal.paragraph(line, rest="  "))


def headline(job: Job, candidate: Candidate) -> str:
    """Return the model, the machine, the layout and its batch: "gpt2 on 4 x a100-sxm-80gb: DDP in torch, ..."."""
    s, cluster = candidate.strategy, job.cluster
    machine = f"{cluster.gpus_per_node} x {cluster.gpu.name}"
    if cluster.nodes > 1:
        machine = f"{cluster.nodes:,} nodes of {machine} ({format_gpus(cluster.world_size)})"
    what = subject(job).replace(job.model.name, job.model.name.rpartition("/")[2])
    return f"{what} on {machine}: {_layout_text(job, s)}, {batch_text(job, s)}"


def _layout_text(job: Job, s: Layout) -> str:
    """Return the techniques, the first of which is said to be in the framework; one GPU has the framework alone."""
    names, stack = techniques(s, job.framework), stack_text(job)
    if job.cluster.world_size == 1 or not names:
        return ", ".join([stack, *names])
    return ", ".join([f"{names[0]} in {stack}", *names[1:]])


def batch_text(job: Job, s: Layout) -> str:
    """Return the samples of a step, and each rank's: "64 sequences per step (8 per GPU, 2 at a time)"."""
    ranks, micro_batch = s.data_parallel_size, s.micro_batch_size
    each = micro_batch * s.gradient_accumulation_steps
    gpus = job.cluster.world_size // ranks
    where = f"{each:,} per {'GPU' if gpus == 1 else f'group of {gpus:,} GPUs'}"
    at_once = f"{micro_batch:,} at a time"
    said = [where] if ranks > 1 else []
    said += [at_once] if micro_batch < each else []
    batch = format_samples(each * ranks, job.sample)
    return f"{batch} per step ({', '.join(said)})" if said else f"{batch} per step"


def _sure(plan: Plan, *, is_brief: bool) -> Figure:
    trust = plan.confidence
    rest = confidence_in_brief(plan.job, plan.chosen) if is_brief else trust.reason
    return Figure(label="Sure", amount=f"{trust.level}:", rest=rest)


def _cost(plan: Plan) -> tuple[Figure, ...]:
    """Return what a step costs, on as many GPUs as are proposed and on all; a run of known length has its price."""
    prices = [option for option in plan.options if option.usd]
    chosen = [option for option in prices if option.gpus == plan.job.cluster.world_size]
    if not chosen or plan.job.recipe.training_tokens:
        return ()
    others = [
        f"${format_sum(each.usd)} on {each.gpus:,} GPUs" for each in prices if each not in chosen
    ]
    rest = f"a step, on demand ({chosen[0].price_date})"
    amount = f"${format_sum(chosen[0].usd)}"
    return (Figure(label="Cost", amount=amount, rest="; ".join((rest, *others[-1:]))),)


def _spare(plan: Plan) -> tuple[Figure, ...]:
    """Return the GPUs that were offered and are not worth it, and what a step would take with them."""
    if not plan.spare_gpus:
        return ()
    offered = plan.spare_gpus + plan.job.cluster.world_size
    verb = "is" if plan.spare_gpus == 1 else "are"
    why = "the batch has too few sequences for them"
    if plan.all_gpus_seconds:
        pace = format_pace(plan.all_gpus_seconds, plan.chosen.step_time.step_seconds)
        why = f"a step on all {offered} would be {pace}"
    rest = f"{verb} left free: {why}"
    return (Figure(label="Spare", amount=f"{plan.spare_gpus} of {offered} GPUs", rest=rest),)


def others_text(plan: Plan, terminal: Terminal, most: int | None = None) -> str:
    """Return what else can be had for a flag: its name, what is gained, the flag; "" where there is nothing.

    Args:
        plan: what to show.
        terminal: what it is shown on.
        most: of all that there are; None shows each.
    """
    splits = rollout_choices(plan.rollout) if plan.rollout else []
    rows = [*splits, *other_choices(plan)][:most]
    if not rows:
        return ""
    width = terminal.width - LABEL_WIDTH
    lines = columns_text(rows, width).splitlines()
    labels = [f"{INDENT}{'Or':<{LABEL_WIDTH}}", *[" " * (LABEL_WIDTH + 2)] * (len(lines) - 1)]
    text = "\n".join(
        label + line.removeprefix(INDENT) for label, line in zip(labels, lines, strict=True)
    )
    return text.replace("Or", terminal.bold("Or"), 1)
