"""What an expert would say, as a table of coded rules; no arithmetic about memory or time."""

from collections.abc import Iterable

from planner.advice.rules import (
    base,
    batch,
    communication,
    memory,
    multi_node,
    recipe,
    shape,
    single_node,
    verdict,
)
from planner.advice.rules.base import Finding, Preference, Rule, Severity, Situation
from planner.domain.dimensions import DIMENSIONS

_TECHNIQUES = frozenset(dimension.name for dimension in DIMENSIONS)
_STAGES = frozenset({0, 1, 2, 3})
_ANY = Preference(zero_stages=_STAGES, techniques=_TECHNIQUES, overruled_by=_TECHNIQUES)
PLAIN = Preference(
    zero_stages=frozenset({0}),
    techniques=frozenset(),
    overruled_by=frozenset(each.name for each in DIMENSIONS if each.is_of_data),
)
_NO_TENSORS = Preference(
    zero_stages=_STAGES,
    techniques=_TECHNIQUES - {"tensor", "context"},
    overruled_by=_TECHNIQUES - {"tensor", "context"},
)
_THREE_D = Preference(
    zero_stages=frozenset({0, 1}), techniques=_TECHNIQUES, overruled_by=_TECHNIQUES
)

BRANCHES: tuple[tuple[Rule, Preference], ...] = (
    (Rule("ONE001", Severity.ADVICE, single_node.one_gpu_only), PLAIN),
    (Rule("ONE002", Severity.ADVICE, single_node.model_fits_on_one_gpu), PLAIN),
    (Rule("MUL001", Severity.ADVICE, multi_node.model_fits_on_one_gpu_of_many_nodes), PLAIN),
    (Rule("ONE006", Severity.ADVICE, single_node.largest_layer_exceeds_one_gpu), _ANY),
    (Rule("ONE003", Severity.ADVICE, single_node.model_exceeds_one_gpu_on_fast_links), _ANY),
    (Rule("ONE004", Severity.ADVICE, single_node.model_exceeds_one_gpu_on_slow_links), _NO_TENSORS),
    (Rule("MUL002", Severity.ADVICE, multi_node.nodes_are_joined_by_a_fast_network), _ANY),
    (Rule("MUL003", Severity.ADVICE, multi_node.nodes_are_joined_by_a_slow_network), _THREE_D),
)
"""The decision tree: the first branch that applies says what it admits."""

MORE_NODES = Rule("COM003", Severity.WARNING, communication.more_nodes_are_not_worth_it)
HALF = Rule("COM009", Severity.WARNING, communication.half_the_gpus_are_as_fast)
ODD_GPU = Rule("COM010", Severity.WARNING, communication.one_gpu_holds_the_others_back)
ONE_GPU = Rule("COM004", Severity.ADVICE, communication.one_gpu_is_enough)
ONE_PER_SEQUENCE = Rule("BAT004", Severity.WARNING, batch.gpus_share_sequences)
MIXED_GPUS = Rule("COM008", Severity.WARNING, communication.smaller_gpus_hold_the_others_back)

OFFLOADED = Rule("MEM003", Severity.WARNING, memory.states_wait_in_host_memory)
FASTER = Rule("EFF002", Severity.ADVICE, verdict.a_faster_layout_is_held_back)
EXPOSED = Rule("COM001", Severity.WARNING, communication.communication_is_exposed)
COMPILED = Rule("REC004", Severity.ADVICE, recipe.compiled_is_faster)
TOGETHER = Rule("SHP006", Severity.WARNING, shape.experts_stay_together)

CHECKS: tuple[Rule, ...] = (
    Rule("MEM001", Severity.BLOCKER, memory.out_of_memory),
    Rule("MEM004", Severity.BLOCKER, memory.host_out_of_memory),
    Rule("MEM005", Severity.WARNING, memory.loading_exceeds_the_host),
    Rule("MEM002", Severity.WARNING, memory.tight_memory),
    OFFLOADED,
    TOGETHER,
    Rule("ONE007", Severity.ADVICE, single_node.single_gpu_techniques_come_first),
    Rule("ONE008", Severity.ADVICE, single_node.one_process_is_slower),
    Rule("EFF001", Severity.ADVICE, verdict.effort_is_earned),
    FASTER,
    Rule("REC001", Severity.WARNING, recipe.card_lacks_the_precision),
    Rule("REC002", Severity.ADVICE, recipe.tf32_is_left_out),
    Rule("REC003", Severity.WARNING, recipe.card_lacks_flash_attention),
    COMPILED,
    EXPOSED,
    Rule("COM002", Severity.WARNING, communication.tensors_cross_a_slow_link),
    MORE_NODES,
    ONE_GPU,
    HALF,
    MIXED_GPUS,
    ODD_GPU,
    Rule("COM005", Severity.ADVICE, communication.shards_buy_nothing),
    Rule("COM006", Severity.ADVICE, communication.copies_go_through_the_host),
    Rule("PIP001", Severity.WARNING, shape.bubble_is_large),
    Rule("PIP002", Severity.WARNING, shape.chunks_are_many),
    Rule("BAT001", Severity.WARNING, batch.global_batch_has_grown_too_far),
    Rule("BAT002", Severity.WARNING, batch.too_few_optimizer_steps),
    Rule("BAT003", Severity.WARNING, batch.local_sgd_averages_rarely),
    ONE_PER_SEQUENCE,
    Rule("SHP001", Severity.WARNING, shape.sequence_exceeds_positions),
    Rule("SHP002", Severity.ADVICE, shape.vocabulary_is_padded),
    Rule("SHP003", Severity.ADVICE, shape.key_value_heads_are_replicated),
    Rule("SHP004", Severity.ADVICE, shape.long_sequences_are_divided),
    Rule("SHP005", Severity.ADVICE, shape.experts_are_spread),
)
"""What is asked of every layout that is shown."""

_SPARED: dict[str, tuple[Rule, ...]] = {
    base.ONE_GPU: (MIXED_GPUS, ONE_GPU),
    base.ONE_PER_SEQUENCE: (ONE_GPU, ONE_PER_SEQUENCE),
    base.ONE_NODE: (MORE_NODES, ONE_GPU),
    base.HALF: (HALF, ONE_GPU),
    base.HALF_OF_EACH: (HALF, ONE_GPU),
    base.LARGER_GPUS: (MIXED_GPUS, ODD_GPU, ONE_GPU),
}
"""What is said of all the GPUs where some of them do, by which those are."""

DISAGREEMENT = Rule("ONE005", Severity.ADVICE, verdict.search_disagrees_with_tree)
"""Asked of the tree's choice, against the search's."""

RULES: tuple[Rule, ...] = (*(rule for rule, _ in BRANCHES), DISAGREEMENT, *CHECKS)


def branch(situation: Situation) -> tuple[Finding, Preference]:
    """Return the branch of the decision tree that the job takes, and what it admits."""
    for rule, preference in BRANCHES:
        finding = rule.find(situation)
        if finding:
            return finding, preference
    raise AssertionError("the branches of the tree cover every job")


def judge(situation: Situation) -> tuple[Finding, ...]:
    """Return what the checks find in the situation's layout."""
    return _findings(CHECKS, situation)


def blockers(situation: Situation) -> tuple[Finding, ...]:
    """Return why the situation's layout cannot run."""
    return _findings([rule for rule in CHECKS if rule.severity == Severity.BLOCKER], situation)


def spared(situation: Situation, size: str) -> tuple[Finding, ...]:
    """Return what is said of all the GPUs where fewer do: why these, and whether one of them would too."""
    return _findings(_SPARED[size], situation)


def _findings(rules: Iterable[Rule], situation: Situation) -> tuple[Finding, ...]:
    findings = (rule.find(situation) for rule in rules)
    return tuple(finding for finding in findings if finding)
