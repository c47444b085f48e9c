"""Time what a user waits for: `make bench`. Medians of several runs; never part of the tests.

In CPU seconds, of processes too: all of it is one thread's work, and others of the machine keep it waiting.
"""

import contextlib
import io
import re
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from planner.advice.plan import make_plan
from planner.cli import cli, prepare_process
from planner.domain.job import Job
from planner.domain.strategy import Table, num_rows, rows
from planner.memory.ledger import Memory, estimate_memory
from planner.request.schema import parse_request, resolve
from planner.search.candidate import estimate
from planner.search.search import SearchResult, search
from planner.search.space import strategies
from planner.step_time.ledger import StepTime, estimate_step_time

RUNS = 7
ARGUMENTS = ["suggest", "gpt2", "--gpus", "4"]
PLAN = [sys.executable, "-c", "from planner.cli import main; main()", *ARGUMENTS]
HELP = [sys.executable, "-c", "from planner.cli import main; main()", "--help"]
BARE = [sys.executable, "-c", "pass"]
LIBRARIES = [sys.executable, "-c", "import numpy, pydantic, click"]
IMPORTS = [sys.executable, "-c", "import planner.cli, planner.answers, planner.report.plan"]
SIZES = (8, 64, 512, 4096, 16384)
"""GPUs that the search is timed on."""
MOST_PROCESS_SECONDS = 0.3
MOST_HELP_SECONDS = 0.1
MOST_PLAN_MILLISECONDS = 40
MOST_LLAMA_SECONDS = 0.25
"""A plan on 16,384 GPUs."""
MOST_DEEPSEEK_SECONDS, MOST_DEEPSEEK_MIB = 2.5, 300
"""A plan on 2,048 GPUs."""
MOST_SEARCH_SECONDS = 0.4
"""For `SEARCHED` layouts."""
SEARCHED = 20_000
MOST_MIB = 200
TORCH = [sys.executable, "-c", "import torch, transformers.models.gpt2.modeling_gpt2"]


def median_seconds(work: Callable[[], object], runs: int = RUNS) -> float:
    """Return the median CPU time of several runs, after one that warms the caches."""
    work()
    durations = []
    for _ in range(runs):
        started = _cpu_seconds()
        work()
        durations.append(_cpu_seconds() - started)
    return statistics.median(durations)


def _cpu_seconds() -> float:
    """Return what this process and those that it started have taken of the CPUs."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def process(command: list[str]) -> Callable[[], object]:
    """Return a function that runs a whole process, its output thrown away."""
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def widened(table: Table, length: int) -> Table:
    """Return the table repeated to that many rows."""
    return rows(table, np.arange(length) % num_rows(table))


def estimate_both(job: Job, table: Table) -> tuple[Memory, StepTime]:
    """Return the memory and the step time of every layout of a table."""
    return estimate_memory(job, table), estimate_step_time(job, table)


def llama_job(gpus: int) -> Job:
    """Return Llama-3.1-405B on as many H100s."""
    cluster = {"gpu": "h100-sxm-80gb", "gpus_per_node": 8, "nodes": gpus // 8}
    network = {"inter_node": "infiniband-ndr"} if gpus > 8 else {}
    recipe = {"framework": "megatron", "sequence_length": 8192, "global_batch_size": 2048}
    model = "meta-llama/Meta-Llama-3.1-405B"
    request = {"model": model, "cluster": cluster | network, "recipe": recipe}
    return resolve(parse_request(request), allow_paths=False).job


def deepseek_job(gpus: int) -> Job:
    """Return DeepSeek-V3 on as many H100s."""
    cluster = {"gpu": "h100-sxm-80gb", "gpus_per_node": 8, "nodes": gpus // 8}
    recipe = {"framework": "megatron", "sequence_length": 4096, "global_batch_size": 2048}
    request = {
        "model": "deepseek-ai/DeepSeek-V3",
        "cluster": {**cluster, "inter_node": "infiniband-ndr"},
        "recipe": recipe,
    }
    return resolve(parse_request(request), allow_paths=False).job


def plan_in_process() -> None:
    """Make the plan as its command does, in a process that has made it before."""
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(ARGUMENTS, standalone_mode=False)


def add_in_a_loop() -> None:
    """Do three million additions: what this machine's Python is worth in this minute."""
    found = 0
    for number in range(3_000_000):
        found += number


def peak_mib(gpus: int, kind: str = "--search") -> float:
    """Return the most memory that a fresh process held that searched on as many GPUs, in MiB."""
    child = [sys.executable, __file__, kind, str(gpus)]
    return float(subprocess.run(child, capture_output=True, check=True, text=True).stdout)


def search_alone(gpus: int) -> None:
    """Search, and print this process's peak in MiB."""
    search(llama_job(gpus))
    print(_peak_kib() / 2**10)


def plan_alone(gpus: int) -> None:
    """Plan DeepSeek-V3, and print this process's peak in MiB."""
    make_plan(deepseek_job(gpus))
    print(_peak_kib() / 2**10)


def _peak_kib() -> float:
    """Return this process's own peak; getrusage would count its parent's before exec on Linux."""
    status = Path("/proc/self/status")
    if status.exists():
        return float(re.search(r"VmHWM:\s+([0-9]+) kB", status.read_text())[1])  # type: ignore[index]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # bytes on macOS


def print_search(job: Job, seconds: float, found: SearchResult) -> None:
    """Print what one search took, and what as many layouts as the limit is for would take."""
    print(
        f"{job.model.name.partition('/')[2]:20} on {job.cluster.world_size:6,} H100:"
        f" {found.size:7,} layouts, {np.sum(found.fits):7,} fit {seconds:6.3f} s;"
        f" {SEARCHED * seconds / found.size:6.3f} s for {SEARCHED:,} (at most {MOST_SEARCH_SECONDS})"
    )


def search_figures() -> None:
    """Print what the search takes, by number of GPUs."""
    sizes = {}
    for gpus in SIZES:
        job = llama_job(gpus)
        seconds = median_seconds(partial(search, job), runs=3)
        found = search(job)
        sizes[gpus] = found.size
        print_search(job, seconds, found)
    job = deepseek_job(512)
    print_search(job, median_seconds(partial(search, job), runs=3), search(job))
    largest = max(SIZES, key=lambda gpus: sizes[gpus])
    print(
        f"peak of a process that searches {largest:,} GPUs {peak_mib(largest):6.0f} MiB"
        f" (at most {MOST_MIB})"
    )


def plan_figures() -> None:
    """Print what the largest plans take, whole: every search of theirs and what is said of it."""
    llama, deepseek = llama_job(16384), deepseek_job(2048)
    seconds = median_seconds(partial(make_plan, llama), runs=3)
    print(
        f"plan of Llama-3.1-405B on 16,384 GPUs          {seconds:6.3f} s   (at most {MOST_LLAMA_SECONDS})"
    )
    seconds = median_seconds(partial(make_plan, deepseek), runs=1)
    mib = peak_mib(2048, "--plan")
    print(
        f"plan of DeepSeek-V3 on 2,048 GPUs              {seconds:6.3f} s   (at most {MOST_DEEPSEEK_SECONDS}),"
        f" {mib:.0f} MiB (at most {MOST_DEEPSEEK_MIB})"
    )


def bare_figures() -> None:
    """Print what Python alone takes on this machine, in the same minutes."""
    print(
        f"three million additions in Python              {median_seconds(add_in_a_loop, 3):6.3f} s"
    )
    print(f"python -c pass                                 {median_seconds(process(BARE)):6.3f} s")
    libraries = median_seconds(process(LIBRARIES))
    print(f"python, importing numpy, pydantic and click    {libraries:6.3f} s")
    help_seconds = median_seconds(process(HELP))
    print(
        f"planner --help                                 {help_seconds:6.3f} s   (at most {MOST_HELP_SECONDS})"
    )


def main() -> None:
    """Print the figures, of a process that is prepared as the command's is."""
    prepare_process()
    bare_figures()
    plan, torch = median_seconds(process(PLAN)), median_seconds(process(TORCH), runs=3)
    imports, warm = median_seconds(process(IMPORTS)), median_seconds(plan_in_process)
    most = f"(at most {MOST_PROCESS_SECONDS})"
    print(f"planner suggest gpt2 --gpus 4                  {plan:6.3f} s   {most}")
    print(f"of which Python and imports                    {imports:6.3f} s")
    most = f"(at most {MOST_PLAN_MILLISECONDS})"
    print(f"the same plan in process, warm                 {1e3 * warm:6.1f} ms  {most}")
    print(f"import torch, transformers gpt2                {torch:6.3f} s")
    print(f"ratio                                          {torch / plan:6.1f}     (at least 8)")
    request = parse_request({"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 8}})
    job = resolve(request, allow_paths=False).job
    table = strategies(job)
    one = median_seconds(lambda: estimate(job, table.at(0)))
    wide = widened(table, 100_000)
    many = median_seconds(lambda: estimate_both(job, wide), runs=3)
    print(f"one layout in process                          {1e3 * one:6.3f} ms")
    print(f"100,000 layouts in process                     {many:6.3f} s")
    plan_figures()
    search_figures()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--search"]:
        search_alone(int(sys.argv[2]))
    elif sys.argv[1:2] == ["--plan"]:
        plan_alone(int(sys.argv[2]))
    else:
        main()
