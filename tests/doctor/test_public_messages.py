"""Messages and logs of public reports, 2024 to 2026, in the tools' own words: what each is, and what its numbers say."""

import tomllib
from itertools import product
from pathlib import Path

import log_samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.config_rules import tabled_rules
from planner.catalog.symptoms import successors, symptoms, xid_names
from planner.doctor.messages import diagnose_text
from planner.doctor.refusals import refused
from planner.explain.glossary import Code, explain
from planner.explain.glossary import codes as all_codes

REPORTS = tomllib.loads(Path(__file__).with_name("reports.toml").read_text(encoding="utf-8"))
BY_NAME = {each.name: each for each in symptoms()}


@pytest.mark.parametrize("report", REPORTS["message"], ids=lambda each: str(each["said"])[:150])
def test_a_report_is_answered(report: dict[str, str | list[str]]) -> None:
    found = diagnose_text(str(report["said"]))
    assert found.main is not None
    assert found.main.symptom is BY_NAME[str(report["is"])]
    told = " ".join((*found.worked, found.main.symptom.text))
    for words in report.get("says", []):
        assert words in told


def test_a_hundred_kinds_of_reports_are_held() -> None:
    assert len(REPORTS["message"]) >= 120
    assert len({str(each["is"]) for each in REPORTS["message"]}) >= 100


@pytest.mark.parametrize(
    ("said", "code", "first"),
    [
        (
            "ValueError: `evals_per_epoch` and `eval_steps` are mutually exclusive.",
            "CFG086",
            "leave one of them out",
        ),
        (
            "AssertionError: When using recompute_granularity: selective recompute_method must be None.",
            "CFG086",
            "no --recompute-method",
        ),
        (
            "ValueError: `torch_empty_cache_steps` must be an integer bigger than 0, got 0.",
            "CFG088",
            "torch_empty_cache_steps: a whole number, 1 or more",
        ),
        (
            "trainer.py: save_only_model cannot be on with load_best_model_at_end",
            "CFG068",
            "leave one of them out",
        ),
    ],
)
def test_what_check_has_a_rule_for_is_known_as_a_message(said: str, code: str, first: str) -> None:
    found, coded = explain(said), explain(f"FAIL  {code}  train.yaml:3: whatever it says")
    assert isinstance(found, Code)
    assert isinstance(coded, Code)
    assert found.code == coded.code == code
    assert first in found.text


@pytest.mark.parametrize(
    "said",
    [
        "ValueError: quantize_moe_experts requires load_in_4bit or load_in_8bit",
        "KeyError: 'save_only_model load_best_model_at_end'",
    ],
)
def test_names_that_are_no_fault_together_are_no_rule(said: str) -> None:
    assert refused(said) is None


def test_a_rule_that_a_message_names_is_one() -> None:
    codes = {rule.code for rule in tabled_rules()}
    assert {code for each in symptoms() for code in each.rules} <= codes
    assert any("(ERR167)" in each.text for each in all_codes() if each.code == "CFG070")


@given(whole=st.integers(2, 512), part=st.integers(2, 512))
def test_what_is_offered_in_place_of_a_size_divides(whole: int, part: int) -> None:
    said = f"ValueError: num_attention_heads ({whole}) must be a multiple of tensor_model_parallel_size ({part})."
    (line,) = diagnose_text(said).worked
    offered = line.rpartition("take ")[2].replace(" or ", ", ").split(", ")
    assert {whole % int(each) for each in offered} == {0}
    assert "1" in offered


@given(batch=st.integers(1, 10**6), micro=st.integers(1, 64), ranks=st.integers(1, 4096))
def test_a_batch_that_is_offered_is_a_multiple(batch: int, micro: int, ranks: int) -> None:
    said = (
        f"AssertionError: global batch size ({batch}) is not divisible by micro batch size ({micro})"
        f" times data parallel size ({ranks})"
    )
    (line,) = diagnose_text(said).worked
    assert f"{micro} x {ranks} = {micro * ranks}" in line
    offered = line.rpartition("take ")[2].split(" or ")
    assert {int(each) % (micro * ranks) for each in offered} == {0}
    assert max(map(int, offered)) >= batch


@pytest.mark.parametrize("number", xid_names())
def test_every_xid_of_the_catalogue_has_a_name_and_an_answer(number: int) -> None:
    said = f"[12.5] NVRM: Xid (PCI:0000:4f:00): {number}, pid=8123, name=python, Ch 00000012"
    for typed in (said, f"Xid {number}", f"XID: {number}", f"NVRM: Xid (0000:03:00): {number}, x"):
        found = diagnose_text(typed)
        assert found.main is not None
        assert found.main.symptom is not None
        assert number in found.main.symptom.xid
        assert found.worked == (f"Xid {number} is {xid_names()[number]}",)


def test_numbers_of_one_xid_only() -> None:
    taken = [number for each in symptoms() for number in each.xid]
    assert sorted(taken) == list(range(1, 173)) == sorted(xid_names())
    assert diagnose_text("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal").main is not None
    assert diagnose_text("Xid 999 is no number of the catalogue").main is None


@pytest.mark.parametrize(
    ("of", "name"), [(of, name) for of, names in successors().items() for name in names]
)
def test_a_name_that_was_removed_has_its_successor(of: str, name: str) -> None:
    said = f"TypeError: {of}.__init__() got an unexpected keyword argument '{name}'"
    found = diagnose_text(said)
    assert found.main is not None
    assert found.main.symptom is BY_NAME["argument-has-moved"]
    assert f"{of} has no {name} in this release" in found.worked[0]


def watchdog(rank: int, number: int) -> str:
    return (
        f"[rank{rank}]:[E] [Rank {rank}] Watchdog caught collective operation timeout:"
        f" WorkNCCL(SeqNum={number}, OpType=ALLREDUCE)"
    )


@pytest.mark.parametrize(
    ("ranks", "numbers", "via", "is_lost"),
    [
        ((0, 1), (1, 1), "P2P/CUMEM", True),
        ((0,), (1, 1), "P2P/CUMEM", False),  # rank 1 is missing
        ((0, 1), (1, 1580), "P2P/CUMEM", False),
        ((0, 1), (1580, 1580), "P2P/IPC", False),
        ((0, 1), (1, 1), "SHM/direct/direct", False),
    ],
)
def test_copies_are_lost_only_where_every_rank_waits_in_the_first(
    ranks: tuple[int, ...], numbers: tuple[int, ...], via: str, *, is_lost: bool
) -> None:
    log = [
        f"a:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via {via}",
        "a:1:1 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 - Init COMPLETE",
        *(watchdog(rank, number) for rank, number in zip(ranks, numbers, strict=False)),
    ]
    found = diagnose_text("\n".join(log))
    assert found.main is not None
    assert found.main.symptom is BY_NAME["copies-do-not-arrive" if is_lost else "nccl-timeout"]


def ranks_wait(*waits: tuple[int, int, str, int]) -> tuple[str, ...]:
    log = (
        f"[rank{rank}]:[E] [PG ID 0 PG GUID 0 Rank {rank}] Watchdog caught collective operation timeout:"
        f" WorkNCCL(SeqNum={number}, OpType={kind}, NumelIn={size}, NumelOut=8, Timeout(ms)=600000)"
        for rank, number, kind, size in waits
    )
    found = diagnose_text("\n".join(log))
    assert found.main is not None
    assert found.main.symptom is BY_NAME["nccl-timeout"]
    return found.worked


@given(first=st.integers(2, 10**6), size=st.integers(1, 10**9))
def test_what_ranks_that_wait_differ_in_is_told(first: int, size: int) -> None:
    one = (0, first, "ALLREDUCE", size)
    assert ranks_wait(one, (1, first, "ALLREDUCE", size)) == ()
    (behind,) = ranks_wait(one, (1, first - 1, "ALLREDUCE", size))
    assert f"rank 1 in ALLREDUCE {first - 1} of {size} elements: one has done fewer" in behind
    (other,) = ranks_wait(one, (1, first, "BROADCAST", size))
    assert f"rank 1 in BROADCAST {first}" in other
    assert "a branch" in other
    (larger,) = ranks_wait(one, (1, first, "ALLREDUCE", size + 1))
    assert "shapes" in larger
    (missing,) = ranks_wait(one, (3, first, "ALLREDUCE", size))
    assert missing.startswith("of rank 1, 2 no time-out is told")


GENERAL = [each.name for each in symptoms() if each.is_general]
PRECISE = (
    *("nvls-cannot-be-bound", "wrong-interface", "duplicate-gpu", "two-nccls"),
    *("ray-has-fewer-gpus", "autotp-size-twice", "completion-longer-than-the-whole"),
)


@pytest.mark.parametrize(("general", "precise"), list(product(GENERAL, PRECISE)))
def test_a_line_that_says_what_failed_comes_before_one_that_says_something_did(
    general: str, precise: str
) -> None:
    lines = [BY_NAME[general].said, BY_NAME[precise].said]
    for order in (lines, lines[::-1]):
        found = diagnose_text("\n".join(order))
        assert found.main is not None
        assert found.main.symptom is BY_NAME[precise]


def test_a_general_error_is_given_what_the_log_says_of_it() -> None:
    log = (
        "n:1:2 [5] misc/x.cc:1 NCCL WARN Some new failure of 7 things\n"
        "[rank5]: ncclUnhandledCudaError: Call to CUDA function failed.\n"
        "[rank5]: Last error:\n[rank5]: Some other words of NCCL\n"
    )
    found = diagnose_text(log)
    assert found.main is not None
    assert found.main.symptom is BY_NAME["nccl-cuda-error"]
    assert found.worked == (
        "the log says: Some new failure of 7 things",
        "the log says: Some other words of NCCL",
    )


@pytest.mark.parametrize(
    ("frames", "library"),
    [
        ("[n:9] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x42520)\n[n:9] [ 1] /env/lib/libnccl.so.2(+0x6a2b0)", "libnccl"),
        ('Current thread 0x7f (most recent call first):\n  File "/env/site-packages/flash_attn/interface.py", line 9 in f', "flash_attn"),
        ("#0 0x7f in memcpy () from /lib64/libc.so.6\n#1 0x7f in x () from /opt/amazon/efa/lib/libfabric.so.1", "libfabric"),
        ("python[77]: segfault at 0 ip 00007f sp 00007f error 4 in libmlx5.so.1.24.46.0[7f1+2f]", "libmlx5"),
        ("frame #3: c10d::x + 0x7 (0x7f in /env/site-packages/torch/lib/libtorch_cuda.so)", "libtorch_cuda"),
        ("step 3 of a run that uses libfoo.so.1", ""),
    ],
)  # fmt: skip
def test_a_crash_is_of_the_library_of_its_first_frame(frames: str, library: str) -> None:
    log = f"Fatal Python error: Segmentation fault\n\n{frames}\n"
    found = diagnose_text(log)
    assert found.main is not None
    assert found.main.symptom is BY_NAME["process-crashed"]
    assert found.main.frame.partition(".")[0] == library
    assert bool(found.worked) is bool(library)


HEALTHY = """\
n1:77:77 [0] NCCL INFO Bootstrap : Using ib0:10.1.0.1<0>
n1:77:77 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)
n1:77:90 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.1.0.1<0>
n1:77:90 [0] NCCL INFO Using network IB
n1:77:90 [0] NCCL INFO MNNVL 0 cliqueId 0 cliqueSize 1 cliqueRank 0
n1:77:90 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
n1:77:90 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 1.
n1:77:90 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
n1:77:90 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 0 nranks 16 cudaDev 0 - Init COMPLETE
[INFO|trainer.py:2414] ***** Running training *****
{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.01}
Saving model checkpoint to out/checkpoint-500
{'train_runtime': 100.0, 'train_samples_per_second': 16.0, 'train_steps_per_second': 1.0, 'train_loss': 1.1}
GPU 0: NVIDIA H100 80GB HBM3, driver 570.124, Fabric State : Completed, Status : Success
"""


WARNED = Path(__file__).with_name("healthy.log").read_text(encoding="utf-8")
"""What tools print of runs that go on: warnings, retries and notes."""


@pytest.mark.parametrize(
    "log",
    [
        HEALTHY,
        *(f"step 3\n{line}\nstep 4\n" for line in WARNED.splitlines()),
        *(make() for kind in log_samples.SAMPLES.values() for make in kind),
    ],
)
def test_a_log_of_a_run_that_went_well_has_no_cause(log: str) -> None:
    found = diagnose_text(log)
    assert found.cause is None


_TRIES = "[W1201 10:00:00.1 socket.cpp:752] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 113 - No route to host)."


@pytest.mark.parametrize(
    ("below", "name"),
    [
        ("Traceback (most recent call last):\nKeyError: 'x'", None),
        (BY_NAME["cuda-out-of-memory"].said, "cuda-out-of-memory"),
        (BY_NAME["rendezvous-timeout"].said, "store-is-not-reached"),
    ],
)
def test_a_warning_of_c10d_is_a_cause_only_where_it_gave_up(below: str, name: str | None) -> None:
    found = diagnose_text(f"{_TRIES}\n{below}")
    assert found.cause is not None
    assert (found.cause.symptom.name if found.cause.symptom else None) == name
