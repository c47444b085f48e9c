"""A plan's answer -> plan.json: what a reader and the planner's own commands need of it, and what was written beside it."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WIDTH = 120
"""Characters up to which an object or a list stands on one line."""
_DIGITS = 7
"""Of a number with a fraction: as many as are shown; the last of seventeen are the machine's."""
_DIGEST = 16
"""Letters: enough to see an edit by."""
_KEPT = ("schema_version", "job", "chosen", "rollout", "launch", "findings", "assumptions")
"""Of an answer: what a plan is read back by. `--json` has its arithmetic, and what else it weighed."""
_NOT_KEPT = frozenset({"how", "parts", "source", "host_memory", "alternatives", "impossible"})
"""Of a layout, and of how completions are generated."""
_OF_LINKS = ("name", "bytes_per_second", "latency_seconds")
WRITTEN = "files"
OWN = "plan.json"


def plan_json(answer: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Return the text of plan.json: the chosen layout's ledgers, and what was asked.

    Args:
        answer: the contract's JSON of the plan, which has the rest.
        files: those that are written beside it, whose digests it keeps.
    """
    plan = {name: answer[name] for name in _KEPT if answer.get(name)} | {
        "job": {**answer["job"], "cluster": _with_short_links(answer["job"]["cluster"])},
        "launch": {name: answer["launch"][name] for name in ("targets", "unwritten")},
        "assumptions": [{"text": each["text"]} for each in answer["assumptions"]],
    }
    for name in ("chosen", "rollout"):
        if name in plan:
            plan[name] = _short(plan[name])
    return _with_digests(plan, files)


def with_measured(
    plan: Mapping[str, Any], measured: Mapping[str, Any], files: Mapping[str, str]
) -> str:
    """Return the text of a plan.json with what a run of it measured.

    Args:
        plan: what it held.
        measured: of its run.
        files: those that are written beside it.
    """
    return _with_digests({**plan, "measured": measured}, files)


def _with_digests(plan: Mapping[str, Any], files: Mapping[str, str]) -> str:
    digests = {name: digest(text) for name, text in sorted(files.items())}
    whole = _rounded({**plan, WRITTEN: digests})
    whole[WRITTEN][OWN] = own_digest(whole)
    return _text(whole) + "\n"


def digest(text: str | bytes) -> str:
    """Return what tells a file from an edited one."""
    raw = text.encode() if isinstance(text, str) else text
    same_everywhere = raw.replace(b"\r\n", b"\n")  # as a checkout on Windows has them
    return hashlib.sha256(same_everywhere).hexdigest()[:_DIGEST]


def own_digest(plan: Mapping[str, Any]) -> str:
    """Return the digest of a plan.json but for its own, however it is laid out."""
    others = _without(plan[WRITTEN], OWN)
    return digest(json.dumps({**plan, WRITTEN: others}, sort_keys=True))


def _without(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key != name}


def _with_short_links(cluster: Mapping[str, Any]) -> dict[str, Any]:
    links = {name: cluster[name] for name in ("intra_node", "inter_node") if cluster.get(name)}
    return {
        **cluster,
        **{name: {key: link[key] for key in _OF_LINKS} for name, link in links.items()},
    }


def _short(value: Any) -> Any:
    """Return a layout without terms that are zero; of a term what it is, and how much."""
    if isinstance(value, list):
        return [_short(each) for each in value if not _is_zero(each)]
    if not isinstance(value, Mapping):
        return value
    return {name: _short(each) for name, each in value.items() if name not in _NOT_KEPT}


def _is_zero(term: Any) -> bool:
    return (
        isinstance(term, Mapping)
        and "how" in term
        and not (term.get("bytes") or term.get("seconds"))
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


def _text(value: Any, indent: str = "") -> str:
    """Return JSON in which what fits stands on one line, and short fields beside each other."""
    line = json.dumps(value)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    start, end = "{}" if isinstance(value, dict) else "[]"
    lines = _filled(list(_parts(value, f"{indent} ")), _WIDTH - len(indent) - 1)
    return start + f",\n{indent} ".join(lines) + end


def _parts(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, list):
        yield from (_text(each, indent) for each in value)
    else:
        yield from (f"{json.dumps(name)}: {_text(each, indent)}" for name, each in value.items())


def _filled(parts: Sequence[str], width: int) -> list[str]:
    """Return lines of as many parts as fit; one of several lines stands alone."""
    lines = [parts[0]]
    for part in parts[1:]:
        fits = len(lines[-1]) + len(part) + 2 <= width and "\n" not in lines[-1] + part
        lines[-1:] = [f"{lines[-1]}, {part}"] if fits else [lines[-1], part]
    return lines
