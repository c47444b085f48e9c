"""Rules about what starts the processes: how many, where they meet, who is started twice."""

import re
from collections.abc import Iterator
from dataclasses import replace

from planner.catalog.configs import launchers
from planner.configs.found import ACCELERATE, LAUNCH, TRAINER, Found, Setting, Setup
from planner.configs.meaning import processes, said_count, shown_gpus
from planner.configs.rules.base import WARNING, Fault, set_to
from planner.core.units import format_gpus

_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "python", "python3"})


def one_process_is_started(setup: Setup) -> Iterator[Fault]:
    """The command starts one process, though there are several GPUs."""
    in_node = setup.cluster.gpus_per_node if setup.cluster else None
    for launch in setup.of(LAUNCH):
        gpus = _count_shown(launch) or in_node
        launcher = launch.settings["launcher"]
        is_open = launcher.value == "torchrun" and launch.get("nproc_per_node") is None
        if (
            is_open
            and launch.is_whole
            and launch.get("environment.PET_NPROC_PER_NODE") is None
            and gpus != 1
        ):
            yield Fault(
                at=launcher,
                message="torchrun without --nproc-per-node starts one process on each node",
                hint=f"--nproc-per-node {gpus or 'gpu'}",
            )
        is_plain = launcher.value == "python" and launch.get("starter", "branch") is None
        if is_plain and gpus is not None and gpus > 1:
            yield Fault(
                at=launcher,
                message=f"python starts one process for {gpus} GPUs",
                hint=f"torchrun --nproc-per-node {gpus}, or accelerate launch --num_processes {gpus}",
            )


def processes_are_not_the_gpus(setup: Setup) -> Iterator[Fault]:
    """The processes that are started are not as many as the GPUs."""
    if setup.cluster is None:
        return
    gpus, per_node = setup.cluster.world_size, setup.cluster.gpus_per_node
    for launch in setup.of(LAUNCH):
        started = processes(launch)
        launcher = launch.settings["launcher"].value
        setting = launch.get("nproc_per_node", "num_processes", "num_gpus")
        if started is None or setting is None or started == gpus or shown_gpus(launch):
            continue
        right = gpus if launcher == "accelerate" else per_node
        if setting.whole != right:
            yield _not_the_gpus(setting, started, gpus, right)
            continue
        flag, nodes = "num_nodes" if launcher == "deepspeed" else "nnodes", setup.cluster.nodes
        fault = _not_the_gpus(launch.get(flag) or setting, started, gpus, nodes)
        is_said = launch.get(flag) is not None
        yield replace(fault, hint=f"--{flag} {nodes}", edit=fault.edit if is_said else None)
    for config in setup.of(ACCELERATE):
        setting = config.get("num_processes")
        is_overruled = any(
            each.get("num_processes") or shown_gpus(each) for each in setup.of(LAUNCH)
        )
        if setting is None or setting.whole is None or is_overruled:
            continue
        if setting.whole not in (gpus, -1):
            yield _not_the_gpus(setting, setting.whole, gpus, gpus)


def _count_shown(launch: Found) -> int:
    """Return how many GPUs a command shows; 0 where it does not say."""
    shown = shown_gpus(launch)
    return len([each for each in shown.text.split(",") if each.strip()]) if shown else 0


def _not_the_gpus(setting: Setting, started: int, gpus: int, right: int) -> Fault:
    words = "process is" if started == 1 else "processes are"
    return Fault(
        at=setting,
        message=f"{started} {words} started for {format_gpus(gpus)}",
        hint=f"{right}",
        edit=set_to(setting, str(right)),
    )


def processes_do_not_divide(setup: Setup) -> Iterator[Fault]:
    """num_processes is no multiple of num_machines."""
    for found in setup.of(ACCELERATE, LAUNCH):
        nodes, setting = found.whole("num_machines"), found.get("num_processes")
        if nodes and nodes > 1 and setting is not None and (setting.whole or nodes) % nodes:
            on_each = -(-(setting.whole or nodes) // nodes)
            yield Fault(
                at=setting,
                message=f"num_processes {setting.whole} is no multiple of {nodes} machines",
                hint=f"num_processes counts the GPUs of all nodes: {on_each * nodes} are {on_each} on each",
            )


def started_twice(setup: Setup) -> Iterator[Fault]:
    """One launcher starts another, or a python."""
    for launch in setup.of(LAUNCH):
        script, launcher = launch.get("script"), launch.settings["launcher"]
        is_module = launch.get("module", "m", "no_python") is not None
        name = script.text.rpartition("/")[2] if script else ""
        if (
            script is not None
            and launcher.value != "python"
            and name in _LAUNCHERS
            and not is_module
        ):
            yield Fault(
                at=script,
                message=f"{launcher.value} would run the launcher {name} as its script",
                hint="leave one of them out",
            )


def flags_after_the_script(setup: Setup) -> Iterator[Fault]:
    """A flag of the launcher stands after the script."""
    for launch in setup.of(LAUNCH):
        launcher = str(launch.settings["launcher"].value)
        known = launchers().get(launcher)
        for name in known.before_script if known is not None else ():
            setting = launch.get(f"told.{name}")
            if setting is not None and launch.get(name) is None:
                yield Fault(
                    at=setting,
                    message=f"{setting.text.partition('=')[0]} stands after the script, so {launcher} does not see it",
                    hint="put it before the script",
                )


def fewer_gpus_are_visible(setup: Setup) -> Iterator[Fault]:
    """CUDA_VISIBLE_DEVICES shows fewer GPUs than processes are started on the node."""
    for launch in setup.of(LAUNCH):
        gpus = _count_shown(launch)
        if not gpus:
            continue
        setting = launch.get("nproc_per_node", "num_processes", "num_gpus")
        nodes = said_count(launch, "num_machines")
        started = (setting.whole or 0) // nodes if setting is not None and nodes else 0
        if setting is not None and started > gpus:
            yield Fault(
                at=setting,
                message=f"{started} processes, but CUDA_VISIBLE_DEVICES shows {gpus}"
                f" {'GPU' if gpus == 1 else 'GPUs'}",
                hint=f"{gpus}, or more GPUs",
            )


def config_file_says_one_process(setup: Setup) -> Iterator[Fault]:
    """The file of accelerate starts one process, and the command does not say otherwise."""
    for config in setup.of(ACCELERATE):
        setting, kind = config.get("num_processes"), config.get("distributed_type")
        is_overruled = any(each.get("num_processes") for each in setup.of(LAUNCH))
        yield from _no_distribution(setup, setting, kind)
        is_many = kind is not None and kind.text in {"MULTI_GPU", "FSDP", "DEEPSPEED"}
        if setting is None or setting.whole != 1 or is_overruled or setup.cluster is not None:
            continue
        if is_many and kind is not None:
            yield Fault(
                at=setting,
                message=f"num_processes is 1, with distributed_type {kind.text}",
                hint="the GPUs of all nodes",
                level=WARNING,
            )


_MODES = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "tpu", "cpu")


def _no_distribution(setup: Setup, count: Setting | None, kind: Setting | None) -> Iterator[Fault]:
    """Yield that distributed_type is NO, though there is more than one process or GPU."""
    is_named = any(each.get(mode) for each in setup.of(LAUNCH) for mode in _MODES)
    gpus = setup.cluster.world_size if setup.cluster else (count.whole or 1 if count else 1)
    if kind is not None and kind.text in {"NO", "False"} and gpus > 1 and not is_named:
        yield Fault(
            at=kind,
            message=f"distributed_type is NO: one process is started for {gpus} GPUs",
            hint="MULTI_GPU",
            edit=set_to(kind, "MULTI_GPU") if setup.cluster else None,
            level=None if setup.cluster else WARNING,
        )


_OF_A_NODE = {"torchrun": "nproc_per_node", "accelerate": "num_processes", "deepspeed": "num_gpus"}
"""Launchers that start the processes of a node themselves, and what says how many."""


def job_is_not_what_is_launched(setup: Setup) -> Iterator[Fault]:
    """The header of a Slurm job, or srun, does not go with the launcher that it starts."""
    launches = setup.of(LAUNCH)
    for launch in launches:
        launcher = str(launch.settings["launcher"].value)
        if launcher in _OF_A_NODE:
            yield from _tasks(launch, launcher)
            yield from _gpus(launch, launcher, is_only=len(launches) == 1)
            yield from _nodes(launch, launcher)
        elif launcher == "python" and _trains(setup, launch):
            yield from _pythons(launch)


_TRAINING = re.compile(r"(?i)train|tune|sft|dpo|grpo")


def _trains(setup: Setup, launch: Found) -> bool:
    """Return whether a python runs a Trainer: by what the script is told, or by its name where it is told nothing."""
    script = launch.get("script")
    is_told = any(script is not None and each.get("script") == script for each in setup.of(TRAINER))
    is_alone = not any(key.startswith("told.") for key in launch.settings)
    return is_told or (is_alone and _TRAINING.search(script.text if script else "") is not None)


def _pythons(launch: Found) -> Iterator[Fault]:
    """Yield that each task is a run of its own, or that one process is started for all GPUs of a job."""
    count = _count_of_tasks(launch)
    tasks = (count or 1) * (launch.whole("slurm.nodes") or 1)
    gpus = launch.whole("slurm.gpus_per_node") or 1
    if launch.get("starter") is not None:
        told = ("MASTER_ADDR", "RANK", "WORLD_SIZE", "PET_NODE_RANK")
        is_told = launch.get(*(f"environment.{name}" for name in told))
        rank = launch.whole("environment.RANK")
        if tasks > 1 and rank is not None:
            yield Fault(
                at=launch.settings["environment.RANK"],
                message=f"RANK is {rank} in each of {tasks} tasks: the script's shell sets it before srun starts them",
                hint="srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python ...'",
            )
        elif tasks > 1 and is_told is None:
            yield Fault(
                at=launch.settings["launcher"],
                message=f"{tasks} tasks run python, and nothing tells one which rank it is: {tasks} runs of one process",
                hint="srun --ntasks-per-node=1 torchrun --nproc_per_node ...; or a script that reads SLURM_PROCID",
                level=WARNING,
            )
    elif max(tasks, gpus) > 1:
        what = f"{tasks} tasks" if tasks > 1 else format_gpus(gpus)
        yield Fault(
            at=launch.settings["launcher"],
            message=f"python runs once, on the first node, and the job has {what}",
            hint=f"srun --ntasks-per-node=1 torchrun --nproc_per_node {gpus if gpus > 1 else '...'}",
            level=WARNING,
        )


def _count_of_tasks(launch: Found) -> int | None:
    """Return how many tasks a node has; None where that is not said."""
    tasks, nodes = launch.whole("slurm.tasks"), said_count(launch, "slurm.nodes")
    of_all = None if tasks is None or not nodes else tasks // nodes
    return launch.whole("slurm.tasks_per_node") or of_all


def _tasks(launch: Found, launcher: str) -> Iterator[Fault]:
    """Yield that srun starts several launchers on each node, or none on some."""
    setting, count = launch.get("slurm.tasks_per_node", "slurm.tasks"), _count_of_tasks(launch)
    starter, nodes = launch.get("starter"), said_count(launch, "slurm.nodes") or 1
    if setting is None or starter is None or starter.text != "srun" or count is None or count == 1:
        return
    times = (
        f"{count} times on each node srun starts {launcher}, which starts all processes each time"
    )
    few = f"srun starts {setting.text} {launcher} on {nodes} nodes: the others start nothing"
    yield Fault(at=setting, message=times if count else few, hint="--ntasks-per-node=1")


def _gpus(launch: Found, launcher: str, *, is_only: bool) -> Iterator[Fault]:
    """Yield that more processes are started on a node than the job has GPUs there, or fewer."""
    of_all, of_job = launch.whole("slurm.gpus"), said_count(launch, "slurm.nodes")
    setting, gpus = launch.get(_OF_A_NODE[launcher]), launch.whole("slurm.gpus_per_node")
    gpus = gpus or (of_all // of_job if of_all and of_job else None)
    nodes = said_count(launch, "num_machines") or 0
    if setting is not None and gpus and nodes > 1 and setting.whole == gpus:
        yield Fault(
            at=setting,
            message=f"num_processes {gpus} for {nodes} nodes of {format_gpus(gpus)}: it counts all nodes",
            hint=f"{gpus * nodes}",
        )
    started = (setting.whole or 0) // nodes if nodes and setting is not None else 0
    if setting is not None and gpus and started > gpus:
        yield Fault(
            at=setting,
            message=f"{started} processes on a node, but the job has {format_gpus(gpus)} there",
            hint=f"{started} GPUs for the job, or {gpus} processes",
        )
    elif setting is not None and gpus and 0 < started < gpus and is_only and nodes == 1:
        yield Fault(
            at=setting,
            message=f"{started} processes on a node, and the job has {format_gpus(gpus)} there: {gpus - started} idle",
            hint=f"{gpus}",
            level=WARNING,
        )


def _nodes(launch: Found, launcher: str) -> Iterator[Fault]:
    """Yield that the launch is for other nodes than the job's, or that only the first of them runs it."""
    nodes = launch.whole("slurm.nodes")
    setting = launch.get("nnodes", "num_machines", "num_nodes")
    is_alone = launcher == "torchrun" or launch.get("config_file") is None
    is_operated = launch.get("environment.PET_NODE_RANK") is not None
    if (
        setting is None
        and is_alone
        and launch.is_whole
        and (nodes or 0) > 1
        and launcher != "deepspeed"
    ):
        flag = {"torchrun": "--nnodes", "accelerate": "--num_machines"}[launcher]
        yield Fault(
            at=launch.settings["launcher"],
            message=f"the job has {nodes} nodes, and {launcher} without {flag} trains on one",
            hint=f"srun --ntasks-per-node=1 {launcher} {flag} {nodes}, and where they meet",
        )
    if setting is None or not setting.whole or nodes is None or nodes < 1:
        return
    if setting.whole != nodes:
        yield Fault(
            at=setting,
            message=f"{setting.whole} {'node' if setting.whole == 1 else 'nodes'}, but the job has {nodes}",
            hint=f"{nodes}" if is_operated else f"{nodes}, or $SLURM_NNODES",
        )
    elif nodes > 1 and launcher != "deepspeed" and launch.get("starter") is None:
        yield Fault(
            at=launch.settings["launcher"],
            message=f"{launcher} runs on the first of {nodes} nodes alone, and waits for the others",
            hint=f"srun --ntasks-per-node=1 {launcher} ...",
        )
