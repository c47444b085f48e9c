"""Command lines -> what starts the processes, and what the script that they run is told."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise, zip_longest
from pathlib import PurePosixPath

from planner.catalog.configs import Launcher, Program, launchers, programs, trainer_fields
from planner.configs.commands import SHELLS, Command, read_commands
from planner.configs.found import ACCELERATE, LAUNCH, MEGATRON, TORCHTITAN, TRAINER, UNKNOWN, Found
from planner.configs.shell import Word
from planner.configs.tools import in_our_words, trainers_tool
from planner.configs.tree import Tree

PYTHONS = ("python", "python3")
_MOST = 40
"""Launches of a script that are read, and what each tells its script."""
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
STARTERS = frozenset({"srun", "mpirun", "mpiexec"})
"""Start a command several times."""
_NO_FLAGS = Launcher(version="", values=("-m", "-c"), switches=("-u",))
_OF_MEGATRON = frozenset(
    {"num_layers", "tensor_model_parallel_size", "micro_batch_size", "max_position_embeddings"}
)
_TRAINS_MEGATRON = frozenset({"train_iters", "train_samples", "lr", "global_batch_size"})
_FEWEST = 2
"""Of Megatron's flags in its command."""
_OF_TRAINER = frozenset({"output_dir", "per_device_train_batch_size"})
"""Flags by which a script's arguments are known for TrainingArguments, with its defaults."""
_TITAN = ("--parallelism.", "--training.")
_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(-[\w-]+)(?:[= \t]+([^\s#]+))?", re.MULTILINE)
_NAMES = {
    "-N": "nodes",
    "--nodes": "nodes",
    "-n": "tasks",
    "--ntasks": "tasks",
    "--ntasks-per-node": "tasks_per_node",
    "--tasks-per-node": "tasks_per_node",
    "--gpus-per-node": "gpus_per_node",
    "--gres": "gpus_per_node",
    "--gpus": "gpus",
    "-G": "gpus",
}
_GPUS = re.compile(r"(?:gpu:)?(?:[\w.-]+:)?(\d{1,6})")
"""A number of GPUs, as --gres=gpu:a100:8 or --gpus-per-node=a100:8 has it."""
_MOST_LINES = 200
"""Lines of a header that are read."""
_Said = tuple[str, str, int]
"""What is said, its value, and the line."""


def read_launches(text: str, file: str) -> tuple[Found, ...]:
    """Return what each command of a shell script that starts training says.

    Raises:
        ValueError: it is no script that a launch stands in.
    """
    job = tuple(_header(text))
    given = [*_of_slurm(job)]
    every = (found for each in read_commands(text, given) for found in _launch(each, file, job))
    return tuple(islice(every, _MOST))


def _of_slurm(job: Sequence[_Said]) -> Iterator[Word]:
    """Yield the variables that Slurm sets by the header of a job, whose script runs on the first node alone."""
    for variable in ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID") if job else ():
        yield Word(text=f"{variable}=0", line=job[0][2])
    for name, value, line in job:
        for variable in _VARIABLES.get(name, ()):
            yield Word(text=f"{variable}={value}", line=line)


_VARIABLES = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus_per_node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
}


def _launch(command: Command, file: str, job: Sequence[_Said]) -> Iterator[Found]:
    """Yield the launcher's settings and the script's, where a command starts a script."""
    words = command.words
    start = _start(words)
    if start is None:
        return
    launcher, rest = _launcher(words[start:])
    if not launcher:
        return
    tree = Tree(file)
    tree.add("launcher", launcher, words[start].line)
    _before(tree, words[:start], job)
    for word in command.unexported:
        name, _, value = word.text.partition("=")
        tree.add(f"unexported.{name}", value, word.line)
    if not command.is_sure:
        tree.add("branch", value=True, line=words[start].line)
    known = programs().get(launcher)
    if known is not None:
        yield from _of_program(known, launcher, rest, tree)
        return
    script, arguments = _flags(tree, rest, launchers().get(launcher, _NO_FLAGS), launcher)
    if script is None:
        return
    tree.add("script", script.text, script.line)
    for word in arguments:
        if word.text.startswith("--") and f"told.{_key(word.text)}" not in tree.settings:
            tree.add(f"told.{_key(word.text)}", word.text, word.line)
    is_whole = "hidden" not in tree.settings and command.is_sure
    launch = tree.found(LAUNCH, is_whole=is_whole, is_command=True)
    yield replace(in_our_words(launch, ACCELERATE), tool="")
    yield from _told(script, arguments, file)


def _of_program(
    known: Program, launcher: str, words: Sequence[Word], tree: Tree
) -> Iterator[Found]:
    """Yield what a program of its own is told, which starts the processes itself."""
    config = _config(words)
    if config is not None:
        tree.add("config", config.text, config.line)
    tree.add("command", words[0].text, words[0].line)
    tree.add("script", launcher, words[0].line)
    yield tree.found(LAUNCH, is_command=True)
    yield from _told_program(known, words[0], words[1:], tree.file)


def _config(words: Sequence[Word]) -> Word | None:
    return next((each for each in words if each.text.endswith((".yaml", ".yml", ".json"))), None)


def _told_program(
    known: Program, command: Word, words: Sequence[Word], file: str
) -> Iterator[Found]:
    """Yield what flags tell a program of its own, which is named by its command, its module or that one's file."""
    arguments = _arguments(words, file)
    module = _module(command.text)
    method = known.commands.get(module) or known.commands.get(module.rpartition(".")[2])
    if method and (arguments.settings or not known.tool):
        arguments.add("method", method, command.line)
    if not known.tool:
        for word in words:
            key, separator, value = word.text.partition("=")
            if separator and not key.startswith("-"):
                arguments.add(key.lstrip("+"), value if word.is_known else UNKNOWN, word.line)
        yield arguments.found(known.title, is_command=True)
    elif arguments.settings:
        arguments.add("script", command.text, command.line)
        is_whole = all(word.is_known for word in words) and _config(words) is None
        found = arguments.found(TRAINER, is_whole=is_whole, is_command=True)
        yield in_our_words(found, known.tool)


def _module(script: str) -> str:
    """Return the module that a file is: swift.cli.sft of swift/cli/sft.py."""
    return script.removesuffix(".py").replace("/", ".")


def _of_package(script: str) -> str:
    """Return the program whose package has this module, or file; "" for none's."""
    package, _, command = _module(script).rpartition(".")
    named = (
        name
        for name, each in programs().items()
        if each.package and f".{package}".endswith(f".{each.package}") and command in each.commands
    )
    return next(named, "")


def _start(words: Sequence[Word]) -> int | None:
    """Return where the launcher stands: behind the -- of a program that hands it on, else the first, or a script's shell."""
    places = [at for at, word in enumerate(words) if _program(word) in _PROGRAMS]
    handed = (at for at in places if at and words[at - 1].text == "--")
    is_spread = any(_program(word) in STARTERS for word in words)
    pairs = enumerate(pairwise(words)) if is_spread else ()
    own = (at for at, (sh, script) in pairs if sh.text in SHELLS and script.text.endswith(".sh"))
    return next(handed, places[0] if places else next(own, None))


_PROGRAMS = frozenset({*PYTHONS, "torchrun", "accelerate", "deepspeed", *programs()})


def _program(word: Word) -> str:
    name = PurePosixPath(word.text).name
    return "python" if name.startswith("python3.") else name


def _launcher(words: Sequence[Word]) -> tuple[str, Sequence[Word]]:
    """Return which launcher a command names, and the words after its name; "" for none."""
    name, rest = _program(words[0]), words[1:]
    if name == "accelerate":
        is_launch = bool(rest) and rest[0].text == "launch"
        return ("accelerate", rest[1:]) if is_launch else ("", rest)
    if name in programs():
        is_command = bool(rest) and rest[0].text in programs()[name].commands
        return (name, rest) if is_command else ("", rest)
    if name not in PYTHONS:
        return name, rest
    for at, word in enumerate(rest):
        if word.text == "-m" and at + 1 < len(rest):
            module = rest[at + 1].text
            if module in _MODULES:
                return _MODULES[module], rest[at + 2 :]
            package = _of_package(module) or module.partition(".")[0]
            if package in programs():
                return package, rest[at + 1 :]
        if not word.text.startswith("-"):
            break
    return "python", rest


def _before(tree: Tree, words: Sequence[Word], job: Sequence[_Said]) -> None:
    """Add what stands before the launcher: variables, what starts it several times, the job that does."""
    for name, value, line in {each[0]: each for each in (*job, *_of_srun(words))}.values():
        tree.add(f"slurm.{name}", UNKNOWN if value.startswith(("?", "$")) else value, line)
    for word in words:
        name, separator, value = word.text.partition("=")
        if separator and name.isidentifier():
            tree.add(f"environment.{name}", value if word.is_known else UNKNOWN, word.line)
        elif _program(word) in STARTERS:
            tree.add("starter", _program(word), word.line)


def _flags(
    tree: Tree, words: Sequence[Word], known: Launcher, launcher: str
) -> tuple[Word | None, Sequence[Word]]:
    """Add the launcher's flags; return the script, and the words after it."""
    values = {_key(flag) for flag in known.values}
    switches = {_key(flag) for flag in known.switches}
    at = 0
    while at < len(words):
        word = words[at]
        if word.text == "--":
            at += 1
            break
        if not word.is_known and not word.text.strip("$@*"):
            tree.add("hidden", UNKNOWN, word.line)
            after = _key(words[at + 1].text) if at + 1 < len(words) else "-"
            if after not in values | switches and words[-1].text[:1] != "-":
                return word, words[at + 1 :]
            at += 1
            continue
        if not word.text.startswith("-"):
            break
        flag, separator, value = word.text.partition("=")
        key, at = _key(flag), at + 1
        if separator:
            tree.add(key, value if word.is_known else UNKNOWN, word.line)
        elif key in switches and not (key == "m" and launcher == "python"):
            tree.add(key, value=True, line=word.line)
        elif at < len(words) and (key in values or not words[at].text.startswith("-")):
            if launcher == "python" and key == "m":
                tree.add("module", value=True, line=word.line)
                break
            tree.add(key, words[at].text if words[at].is_known else UNKNOWN, word.line)
            at += 1
        else:
            tree.add(key, value=True, line=word.line)
    return (words[at], words[at + 1 :]) if at < len(words) else (None, ())


def _key(flag: str) -> str:
    return flag.partition("=")[0].lstrip("-").replace("-", "_")


def _told(script: Word, words: Sequence[Word], file: str) -> Iterator[Found]:
    """Yield what a script's own arguments say, where they are those of a known one."""
    if program := _of_package(script.text):
        yield from _told_program(programs()[program], script, words, file)
        return
    tree = _arguments(words, file)
    kind = _kind(tree, words)
    if not kind:
        return
    if kind == MEGATRON and not tree.settings.keys() & _TRAINS_MEGATRON:
        tree.add("method", "inference", script.line)
    tree.add("script", script.text, script.line)
    is_all = kind == MEGATRON or bool(tree.settings.keys() & _OF_TRAINER)
    is_whole = is_all and all(word.is_known for word in words)
    found = tree.found(kind, is_whole=is_whole, is_command=True)
    yield in_our_words(found, trainers_tool(tree.settings) if kind == TRAINER else kind)


def _kind(tree: Tree, words: Sequence[Word]) -> str:
    """Return whose arguments these are; "" for nobody's that is known."""
    keys = tree.settings.keys()
    if len(keys & _OF_MEGATRON) >= _FEWEST:
        return MEGATRON
    if any(word.text.startswith(_TITAN) for word in words):
        return TORCHTITAN
    return TRAINER if keys & trainer_fields().names else ""


def _arguments(words: Sequence[Word], file: str) -> Tree:
    """Return the flags of a script, each with its values."""
    tree = Tree(file)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.text.startswith("--") or word.text == "--":
            continue
        flag, separator, value = word.text.partition("=")
        key = _key(flag)
        if separator:
            tree.add(key, value if word.is_known else UNKNOWN, word.line)
            continue
        given: list[Word] = []
        while at < len(words) and not words[at].text.startswith("--"):
            given.append(words[at])
            at += 1
        tree.add(key, _value(given), word.line)
    return tree


def _value(given: Sequence[Word]) -> object:
    if not given:
        return True
    if not all(word.is_known for word in given):
        return UNKNOWN
    return given[0].text if len(given) == 1 else [word.text for word in given]


def _header(text: str) -> Iterator[_Said]:
    for found in islice(_DIRECTIVE.finditer(text), _MOST_LINES):
        yield from _said(found[1], found[2] or "", text.count("\n", 0, found.start()) + 1)


def _of_srun(words: Sequence[Word]) -> Iterator[_Said]:
    """Yield what srun's own flags say; a value that only the run knows is "?"."""
    for word, after in zip_longest(words, words[1:]):
        flag, separator, value = word.text.partition("=")
        if separator:
            yield from _said(flag, value if word.is_known else "?", word.line)
        elif after is not None:
            yield from _said(flag, after.text if after.is_known else "?", word.line)


def _said(flag: str, value: str, line: int) -> Iterator[_Said]:
    name = _NAMES.get(flag)
    if name is None:
        return
    if name in {"gpus_per_node", "gpus"}:
        count = _GPUS.fullmatch(value)
        value = count[1] if count else ""
    if value:
        yield name, value, line
