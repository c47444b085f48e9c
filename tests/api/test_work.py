import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_process
from served import Service, children_of, command_of, served, wait_until

from api.jobs import check, suggestion
from api.lanes import is_small
from api.process import Outcome, Turn
from api.settings import Settings
from api.work import Work
from planner.core.errors import TookTooLongError

GPT2 = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
CLUSTER = {"gpu": "h100", "gpus_per_node": 8, "nodes": 256, "inter_node": "infiniband-ndr"}
LONG = {
    "model": "deepseek-ai/DeepSeek-V3",
    "cluster": CLUSTER,
    "recipe": {"framework": "megatron", "global_batch_size": 30240},
    "max_gpus": 16384,
}
"""A plan that takes longer than any deadline here."""
PAIR = "        GPU0    GPU1\nGPU0     X      NV12\nGPU1    NV12     X"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One process that plans, and time enough on a busy machine."""
    with served(
        processes=1, deadline_seconds=300, body_seconds=2, head_seconds=2, answer_seconds=2
    ) as started:
        wait_until(lambda: started.post(GPT2)[0] == 200)
        yield started
    assert "Traceback" not in started.said


@pytest.fixture(scope="module")
def hurried() -> Iterator[Service]:
    """One process that plans, one request that may wait, four seconds for an answer."""
    with served(processes=1, queue=1, deadline_seconds=4) as started:
        wait_until(lambda: started.post(GPT2)[0] == 200)
        yield started
    assert "Traceback" not in started.said


def test_probes_answer_while_a_plan_is_made(hurried: Service) -> None:
    with ThreadPoolExecutor() as pool:
        planned = pool.submit(hurried.post, LONG)
        probes = 0
        while not planned.done():
            assert hurried.get("/healthz")[0] == 200
            probes += 1
    status, headers, body = planned.result()
    assert (status, headers["content-type"]) == (504, "application/problem+json")
    assert json.loads(body)["status"] == 504
    assert probes > 2


class PriorityOnArrival(str):
    """What a process finds in its place: its own priority, before it does what it was asked."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("str(__import__('os').getpriority(0, 0))",)


def test_a_process_starts_behind_the_server(tmp_path: Path) -> None:
    async def start() -> None:
        warm = partial(file.write_text, PriorityOnArrival())
        one = Work(Settings(processes=1))
        async with one.started(warm):
            await anyio.sleep(0.1)
            await one.outcome(time.time)

    file = tmp_path / "priority"
    anyio.run(start)
    assert file.read_text() == str(int(Turn.SMALL))


def test_a_process_that_plans_imports_nothing_of_the_server() -> None:
    async def ask() -> set[str]:
        work = Work(Settings(processes=1))
        planned = await work.outcome(suggestion, b'{"model": "gpt2"}')
        assert planned.error is None
        return set((await work.outcome(eval, "sorted(__import__('sys').modules)")).result)

    imported = anyio.run(ask)
    assert "planner.advice.plan" in imported
    assert not imported & {"api.work", "fastapi", "limits", "redis", "structlog"}


def test_a_process_gives_back_what_a_search_has_freed() -> None:
    held = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    last_is_kept = (
        "__import__('sys').__dict__.setdefault('kept', [b'1' * 65_000 for _ in range(4_000)][-1])"
    )

    async def ask() -> tuple[int, ...]:
        work = Work(Settings(processes=1))
        return tuple(
            [
                (await work.outcome(eval, said)).result
                for said in (held, last_is_kept, f"{held} + 0")
            ]
        )

    before, _, after = anyio.run(ask)
    assert after - before < 50 * 2**20


def test_a_process_that_took_too_long_is_ended() -> None:
    async def ask() -> tuple[int, Outcome, Outcome]:
        hurried = Work(Settings(processes=1, deadline_seconds=5))
        process = (await hurried.outcome(os.getpid)).result
        late = await hurried.outcome(partial(time.sleep, 60))
        return process, late, await hurried.outcome(time.time)

    process, late, after = anyio.run(ask)
    assert str(late.error) == "no answer within 5 s"
    assert after.result
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_what_is_always_the_same_is_made_once_beside_the_server() -> None:
    async def ask() -> tuple[list[int], int]:
        work = Work(Settings(processes=2, deadline_seconds=0.01))
        async with work.started(time.time, ahead=os.getpid):
            made: list[int] = []
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(_append, made, work)
            return made, await work.once(os.getpid)

    async def _append(made: list[int], work: Work) -> None:
        made.append(await work.once(os.getpid))

    made, later = anyio.run(ask)
    assert {*made} == {later} != {os.getpid()}


def test_a_request_whose_turn_never_came_leaves_nothing_that_waits() -> None:
    async def ask() -> tuple[Outcome, int]:
        busy = Work(Settings(processes=1, queue=1, deadline_seconds=0.2))
        async with busy.started(partial(time.sleep, 2)):
            await anyio.sleep(0.1)
            outcome = await busy.outcome(time.time)
            await anyio.sleep(0.1)
            return outcome, busy.waiting

    outcome, waiting = anyio.run(ask)
    assert isinstance(outcome.error, TookTooLongError)
    assert waiting == 0


def test_who_sent_texts_is_not_told_to_ask_for_fewer_gpus() -> None:
    async def hint(job: Callable[..., object]) -> str:
        hurried = Work(Settings(processes=1, deadline_seconds=1e-6))
        return getattr((await hurried.outcome(job)).error, "hint", "")

    assert anyio.run(hint, check).startswith("send less text")
    assert anyio.run(hint, suggestion).startswith("ask for fewer GPUs")


def test_a_process_that_ended_before_it_could_be_ended_loses_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_sync, tries = to_process.run_sync, list[None]()

    async def run_twice(*arguments: Any, **options: Any) -> Any:
        tries.append(None)
        if len(tries) == 1:
            raise ProcessLookupError  # of anyio, that ends a process whose pipe is closed
        return await run_sync(*arguments, **options)

    async def ask() -> Outcome:
        return await Work(Settings(processes=1, deadline_seconds=300)).outcome(os.getppid)

    monkeypatch.setattr(to_process, "run_sync", run_twice)
    assert anyio.run(ask).result == os.getpid()
    assert len(tries) == 2


def test_a_process_makes_way_for_the_server_and_for_who_waits_for_a_moment() -> None:
    async def ask() -> list[int]:
        patient = Work(Settings(processes=2, deadline_seconds=300))
        own = partial(eval, "__import__('os').getpriority(0, 0)")
        of_who_asks = partial(json.loads, object_hook=own)
        usual = await patient.outcome(of_who_asks, b"{}")
        later = await patient.outcome(of_who_asks, b'{"later": 1}', may_wait=True)
        small = await patient.outcome(of_who_asks, json.dumps(GPT2).encode())
        return [usual.result, later.result, small.result]

    assert anyio.run(ask) == [Turn.USUAL, Turn.LATER, Turn.SMALL]


def test_ctrl_c_that_reaches_a_process_that_warms_up_does_not_end_the_server() -> None:
    async def warm_and_ask() -> Outcome:
        stopped = Work(Settings(processes=1))
        async with stopped.started(partial(signal.raise_signal, signal.SIGINT)):
            await anyio.sleep(1)
            return await stopped.outcome(os.getppid)

    assert anyio.run(warm_and_ask).result == os.getpid()


def test_work_stops_when_the_client_leaves_and_its_process_goes_on(service: Service) -> None:
    assert service.post({**GPT2, "id": "before"})[0] == 200
    (worker,) = service.workers()
    service.open_and_leave({**LONG, "id": "left"})
    assert service.post({**GPT2, "id": "after it left"})[0] == 200
    assert worker in service.workers()


UNTIL_LEFT = "any(iter(__import__('planner.core.deadline').core.deadline.is_over, True))"
PID = "__import__('os').getpid() + 0 * {}"


def test_work_that_stops_when_it_is_left_keeps_its_process_and_other_work_loses_it() -> None:
    async def ask() -> list[int]:
        work = Work(Settings(processes=1, deadline_seconds=300))
        pids = [(await work.outcome(eval, PID.format(0))).result]
        for number, job in enumerate((partial(eval, UNTIL_LEFT), partial(time.sleep, 60)), 1):
            with anyio.fail_after(60), anyio.move_on_after(0.5):
                await work.outcome(job)
            pids.append((await work.outcome(eval, PID.format(number))).result)
        return pids

    first, second, third = anyio.run(ask)
    assert first == second
    assert second != third


REFUSE = "(_ for _ in ()).throw(__import__('planner.core.errors').core.errors.{}(str(__import__('time').time_ns())))"


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [("NothingFitsError", True), ("InvalidInputError", True), ("HubUnreachableError", False)],
)
def test_a_refusal_that_the_question_decides_is_kept(error: str, *, is_kept: bool) -> None:
    async def ask() -> list[str]:
        work = Work(Settings(processes=0, deadline_seconds=300))
        job = REFUSE.format(error)
        return [str((await work.outcome(eval, job)).error) for _ in range(2)]

    first, second = anyio.run(ask)
    assert (first == second) == is_kept


def test_a_batch_leaves_a_process_to_who_waits_for_one_answer() -> None:
    async def ask() -> tuple[float, int]:
        work = Work(Settings(processes=2, deadline_seconds=300))
        async with anyio.create_task_group() as group:
            for seconds in (1.0, 1.1):  # both processes are started
                group.start_soon(work.outcome, partial(time.sleep, seconds))
        async with anyio.create_task_group() as group:
            for number in range(4):
                line = partial(time.sleep, 60 + number)
                group.start_soon(partial(work.outcome, line, may_wait=True))
            await anyio.sleep(0.2)
            began = time.monotonic()
            await work.outcome(time.time)
            taken, waiting = time.monotonic() - began, work.waiting
            group.cancel_scope.cancel()
        return taken, waiting

    taken, waiting = anyio.run(ask)
    assert taken < 50
    assert waiting == 0


@pytest.mark.parametrize(
    ("asked", "small"),
    [
        (b'{"model": "gpt2", "cluster": {"gpus_per_node": 4}}', True),
        (b'{"model": "GPT2"}', True),
        ((("model", "gpt2"), ("gpus_per_node", "8"), ("nodes", "2")), True),
        ((("model", "gpt2"), ("gpus_per_node", "8"), ("nodes", "3")), False),
        (b'{"model": "gpt2", "cluster": {"instance": "p4d.24xlarge", "nodes": 2}}', True),
        (b'{"model": "gpt2", "cluster": {"gpus_per_node": 4}, "max_gpus": 64}', False),
        (b'{"model": "gpt2", "cluster": {"gpus_per_node": 1e99}}', False),
        (b'{"model": "gpt2", "cluster": {"nodes": -1}}', False),
        (b'{"model": "gpt2", "cluster": 4}', False),
        (b'{"model": "deepseek-ai/DeepSeek-V3", "cluster": {"gpus_per_node": 4}}', False),
        (b'{"model": "someone/of-the-hub"}', False),
        (b'{"model": {"model_type": "gpt2"}}', False),
        (b'{"model": "gpt2"}' + b" " * 5000, False),
        (b"[" * 4000, False),
        (b"no json", False),
        (b"[]", False),
        ("gpt2", False),
    ],
)
def test_what_is_small_is_known_before_it_is_searched(asked: object, small: object) -> None:
    assert is_small(asked) is small
    assert is_small() is False


@pytest.mark.parametrize(
    ("asked", "small"),
    [
        (
            b'{"model": "deepseek-ai/DeepSeek-V3", "cluster": {"gpus_per_node": 8, "nodes": 256}}',
            True,
        ),
        ((("model", "gpt2"), ("gpus_per_node", "8"), ("nodes", "512")), True),
        ((("model", "gpt2"), ("job", "grpo")), False),
        (b'{"model": "someone/of-the-hub"}', False),
        (b'{"model": "gpt2", "cluster": {"nodes": 0.5}}', False),
    ],
)
def test_the_estimate_of_one_layout_is_small_where_its_model_ships(
    asked: object, small: object
) -> None:
    assert is_small(asked, is_search=False) is small


def test_a_process_that_idles_for_long_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> tuple[set[int], set[int]]:
        work = Work(Settings(processes=2, deadline_seconds=300))
        async with anyio.create_task_group() as group:
            for seconds in (1.0, 1.1):  # both are started
                group.start_soon(work.outcome, partial(time.sleep, seconds))
        before = {*children_of(os.getpid())}
        monkeypatch.setattr(to_process, "current_time", lambda: anyio.current_time() + 3600)
        await work.outcome(time.time)
        return before, {*children_of(os.getpid())}

    before, after = anyio.run(ask)
    assert before
    assert before == after


def test_a_process_that_stopped_when_it_was_left_is_not_begun_anew(tmp_path: Path) -> None:
    file = tmp_path / "a letter for each that begins"
    file.touch()

    async def ask() -> list[int]:
        work = Work(Settings(processes=1, deadline_seconds=300))
        begun = []
        async with work.started(partial(eval, f"open({str(file)!r}, 'a').write('.')")):
            await anyio.sleep(0.1)
            await work.outcome(eval, PID.format(-1))  # after it has begun
            for number, job in enumerate((partial(eval, UNTIL_LEFT), partial(time.sleep, 60))):
                with anyio.fail_after(60), anyio.move_on_after(0.5):
                    await work.outcome(job)
                await work.outcome(eval, PID.format(number))
                begun.append(file.stat().st_size)
        return begun

    assert anyio.run(ask) == [1, 2]


def test_small_plans_have_a_process_that_no_others_take() -> None:
    async def ask() -> tuple[bool, int]:
        work = Work(Settings(processes=2, queue=3, deadline_seconds=300))
        async with anyio.create_task_group() as group:
            for number in range(3):  # one waits, as no more may
                group.start_soon(work.outcome, partial(time.sleep, 60 + number))
            group.start_soon(partial(work.outcome, partial(time.sleep, 63), may_wait=True))
            with anyio.fail_after(50):
                answered = await work.outcome(len, json.dumps(GPT2).encode())
            waiting = work.waiting
            group.cancel_scope.cancel()
        return answered.error is None, waiting

    assert anyio.run(ask) == (True, 2)


def test_more_than_may_wait_are_told_to_come_again(hurried: Service) -> None:
    with ThreadPoolExecutor(6) as pool:
        bodies = [{**LONG, "id": f"one of {number}"} for number in range(6)]
        answers = list(pool.map(hurried.post, bodies))
    statuses = [status for status, _, _ in answers]
    assert set(statuses) == {429, 504}
    assert statuses.count(429) >= 3
    refused = next(headers for status, headers, _ in answers if status == 429)
    assert int(refused["retry-after"]) > 0


def test_a_process_that_is_killed_loses_no_request(service: Service) -> None:
    assert service.post({**GPT2, "id": "warm"})[0] == 200
    with ThreadPoolExecutor() as pool:
        slow = {"model": "meta-llama/Meta-Llama-3.1-405B", "cluster": CLUSTER}
        planned = pool.submit(service.post, slow)
        time.sleep(0.3)
        for worker in service.workers():
            os.kill(worker, signal.SIGKILL)
        assert planned.result()[0] == 200


def test_a_request_whose_processes_are_all_killed_is_told_to_come_again(service: Service) -> None:
    assert service.post({**GPT2, "id": "warm again"})[0] == 200
    with ThreadPoolExecutor() as pool:
        planned = pool.submit(service.post, {**LONG, "id": "always killed"})
        while not planned.done():
            for worker in service.workers():
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            time.sleep(0.2)
    status, headers, body = planned.result()
    assert (status, json.loads(body)["type"]) == (503, "urn:planner:lost-process")
    assert int(headers["retry-after"]) > 0
    wait_until(lambda: service.post({**GPT2, "id": "after the killing"})[0] == 200)


def test_a_server_that_is_killed_loses_what_it_held_alone() -> None:
    asked: list[tuple[float, int]] = []

    def ask_on() -> None:
        """Say of each request when it began, and its status; 0 where nothing came back."""
        while not is_over.is_set():
            began = time.monotonic()
            with suppress(ConnectionError, http.client.HTTPException):
                asked.append((began, started.post(GPT2, "/v1/estimate")[0]))
                continue
            asked.append((began, 0))

    is_over = threading.Event()
    with (
        served(servers=2, processes=1, deadline_seconds=300) as started,
        ThreadPoolExecutor() as pool,
    ):
        wait_until(lambda: len(started.servers()) == 2 and all(map(children_of, started.servers())))
        clients = [pool.submit(ask_on) for _ in range(4)]
        time.sleep(1)
        killed, other = started.servers()
        of_killed = children_of(killed)
        os.kill(killed, signal.SIGKILL)
        at = time.monotonic()
        wait_until(lambda: killed not in started.servers() and len(started.servers()) == 2)
        wait_until(lambda: not any(map(command_of, of_killed)))
        wait_until(lambda: any(began > at and status == 200 for began, status in asked))
        is_over.set()
        for client in clients:
            client.result()
        assert other in started.servers()
    lost = [began for began, status in asked if status != 200]
    assert len(lost) <= len(clients)
    assert all(began <= at for began in lost)


def test_a_hub_that_says_nothing_and_dies_loses_no_other_request() -> None:
    hub = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(600)"
    command = [sys.executable, "-c", hub]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as silent:
        assert silent.stdout
        address = f"http://127.0.0.1:{int(silent.stdout.readline())}"
        with (
            served(address, processes=2, deadline_seconds=300) as started,
            ThreadPoolExecutor() as pool,
        ):
            asked = pool.submit(started.post, {"model": "nobody/unknown"})
            assert started.post(GPT2)[0] == 200
            silent.kill()
            assert asked.result()[0] == 502
            assert started.post({**GPT2, "id": "after it died"})[0] == 200


def test_a_body_that_comes_too_slowly_is_refused(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(b"POST /v1/suggest HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer.lower()


def test_a_body_that_is_broken_off_leaves_nothing_behind(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(b"POST /v1/suggest HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
    assert service.get("/healthz")[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        "POST /v1/suggest HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked",
        "POST /v1/suggest HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\ncontent-type: text/plain",
        "POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000",
    ],
    ids=["too large", "another type", "no route"],
)
def test_who_is_answered_before_the_end_of_a_body_can_send_no_more(
    service: Service, head: str
) -> None:
    chunks = (b"4000\r\n" + b" " * 0x4000 + b"\r\n") * 10_000
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n")
        with pytest.raises(ConnectionError):
            connection.sendall(chunks)


@pytest.mark.parametrize("asked_before", [b"", b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"])
@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\n"])
def test_who_sends_its_headers_too_slowly_is_left(
    service: Service, asked_before: bytes, begun: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(asked_before)
        answer = b""
        while asked_before and not answer.endswith(b"}"):
            answer += connection.recv(65536)
        connection.sendall(begun)
        began = time.monotonic()
        assert connection.recv(65536) == b""
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("part", [b"a" * 2**12, b"\r\na: b"])
def test_headers_without_end_are_refused(service: Service, part: bytes) -> None:
    sent, said = 0, b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nb: c")
        with suppress(ConnectionError):
            while sent < 2**24:
                connection.sendall(part * 8)
                sent += 8 * len(part)
        with suppress(ConnectionError):
            said = connection.recv(65536)
    assert sent < 2**24
    assert said[:12] in {b"HTTP/1.1 431", b""}  # or the connection was reset before it was read
    long = {"x-request-id": "known", "b": "c" * 50_000}
    assert service.get("/healthz", long)[0] == 200


def test_who_reads_no_answer_is_left(service: Service) -> None:
    def is_held(port: int) -> bool:
        """Whether the service has a socket open to a port: what the kernel alone goes on with is no inode's."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ends = [f"0100007F:{each:04X}" for each in (service.port, port)]
        return any(row[1:3] == ends and row[9] != "0" for row in rows)

    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", service.port))
        port = connection.getsockname()[1]
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 60)
        wait_until(lambda: is_held(port))
        wait_until(lambda: not is_held(port), seconds=60)


def test_a_body_of_unknown_fields_lists_twenty_and_holds_nobody_up(service: Service) -> None:
    body = {"model": "gpt2", **{f"field_{number}": 1 for number in range(40_000)}}
    with ThreadPoolExecutor() as pool:
        refused = pool.submit(service.post, body)
        while not refused.done():
            assert service.get("/healthz")[0] == 200
    status, _, said = refused.result()
    assert status == 422
    assert len(json.loads(said)["errors"]) == 20


def test_the_same_answer_has_the_same_tag_and_is_not_sent_twice(service: Service) -> None:
    tags = [
        service.post({**GPT2, "objective": "time"}, path)[1]["etag"] for path in ["/v1/suggest"] * 2
    ]
    spaced = json.dumps({**GPT2, "objective": "time"}, indent=2).encode()
    assert {*tags, service.post(spaced)[1]["etag"]} == {tags[0]}
    status, headers, _ = service.get("/v1/models/gpt2")
    assert status == 200
    again = service.get("/v1/models/gpt2", {"if-none-match": headers["etag"]})
    assert (again[0], again[2]) == (304, b"")


def test_an_answer_that_the_client_has_is_not_sent_again(service: Service) -> None:
    status, headers, _ = service.get("/plan?model=gpt2")
    assert (status, headers["cache-control"]) == (200, "no-cache")
    for named in (headers["etag"], headers["etag"].removeprefix("W/"), f'"x", {headers["etag"]}'):
        again = service.get("/plan?model=gpt2", {"if-none-match": named})
        assert (again[0], again[2], again[1]["etag"]) == (304, b"", headers["etag"])
    assert service.get("/plan?model=gpt2", {"if-none-match": '"other"'})[0] == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/v1/gpus", "/v1/terms/ddp", "/accuracy"])
def test_what_is_known_is_not_sent_again(service: Service, path: str) -> None:
    status, headers, body = service.get(path)
    assert (status, bool(body)) == (200, True)
    again = service.get(path, {"if-none-match": headers["etag"]})
    assert (again[0], again[2], again[1]["etag"]) == (304, b"", headers["etag"])


def test_a_post_is_answered_whatever_its_client_has(service: Service) -> None:
    body, kind = json.dumps(GPT2).encode(), {"content-type": "application/json"}
    status, headers, answer = service.ask("POST", "/v1/suggest", body, kind)
    again = service.ask("POST", "/v1/suggest", body, kind | {"if-none-match": headers["etag"]})
    assert (status, again[0]) == (200, 200)
    assert again[2] == answer


def test_what_a_token_opened_is_kept_by_nobody(service: Service) -> None:
    for secret in ({"x-hf-token": "hf_x"}, {"authorization": "Bearer x"}, {"x-api-key": "x"}):
        assert service.get("/v1/models/gpt2", secret)[1]["cache-control"] == "no-store"
    assert service.get("/v1/models/nobody")[1]["cache-control"] == "no-store"


def test_an_answer_is_compressed_for_who_can_read_it(service: Service) -> None:
    _, headers, body = service.get("/v1/gpus", {"accept-encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    assert len(body) < len(service.get("/v1/gpus")[2]) / 4


def test_termination_is_obeyed_while_a_plan_is_made() -> None:
    with ThreadPoolExecutor() as pool, served(processes=1, deadline_seconds=60) as service:
        asked = pool.submit(service.ask, "POST", "/v1/suggest", json.dumps(LONG).encode(), {})
        wait_until(service.workers)
        time.sleep(0.5)
        os.kill(service.pid, signal.SIGTERM)
        status, headers, body = asked.result()
        assert (status, headers["content-type"]) == (503, "application/problem+json")
        assert int(headers["retry-after"]) > 0
        assert json.loads(body)["status"] == 503
        # It is over when it is nobody's any more, long before the plan would be made.
        wait_until(lambda: not Path(f"/proc/{service.pid}/cmdline").read_bytes())


def test_a_host_that_is_not_trusted_is_refused() -> None:
    with served(processes=0, trusted_hosts='["127.0.0.1"]') as service:
        assert service.get("/healthz")[0] == 200
        assert service.get("/healthz", {"host": "elsewhere.example"})[0] == 400


def test_a_form_body_is_told_the_right_content_type(service: Service) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    status, _, body = service.ask("POST", "/v1/suggest", b"model=gpt2", headers)
    assert status == 415
    assert "application/json" in json.loads(body)["detail"]
