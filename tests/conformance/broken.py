"""Backends that are wrong in one line each, and the test of the suite that must notice.

Each is the NumPy example with one line replaced. What they get wrong is what real systems got
wrong: see the "kind" of each.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Broken:
    """One wrong line.

    Attributes:
        name: of the backend.
        right: a part of the example's source that occurs once.
        wrong: what stands there instead.
        caught_by: "module.py::function[parameters]" of the suite; that very test must fail.
    """

    name: str
    right: str
    wrong: str
    caught_by: str


BROKEN = [
    # Which tokens are valid
    Broken(
        "mask-without-ragged-tail",
        "words = np.ascontiguousarray(table.bitmap)",
        "words = np.ascontiguousarray(table.bitmap[:, : table.vocabulary // 64])",
        "test_tables.py::test_every_token_of_a_ragged_tail_is_found[65-dense]",
    ),
    Broken(
        "bits-from-the-wrong-end",
        'bitorder="little"',
        'bitorder="big"',
        "test_tables.py::test_first_and_last_token_of_a_codebook_are_valid[65-dense]",
    ),
    Broken(
        "filter-by-last-token",
        "row = np.where(live, beams.rows, 0)",
        "row = np.where(live, (beams.search.tables[beams.step - 1].tokens[:-1] == "
        "beams.tokens[..., -1:]).argmax(-1) if beams.step else 0, 0)",
        "test_one_step.py::test_candidates_are_the_tokens_that_may_follow_the_whole_prefix",
    ),
    Broken(
        "row-runs-into-the-next",
        "valid = live[..., None] & (slot < (end - first)[..., None])",
        "valid = live[..., None] & (slot <= (end - first)[..., None])",
        "test_tables.py::test_a_hub_row_among_single_children[2-sparse]",
    ),
    Broken(
        "padding-slots-selectable",
        "valid = live[..., None] & (slot < (end - first)[..., None])",
        "valid = live[..., None] & (slot < table.widest) & (first[..., None] + slot < end.max())",
        "test_tables.py::test_a_hub_row_among_single_children[1-sparse]",
    ),
    Broken(
        "tokens-in-16-bits",
        "tokens=np.append(entry_tokens(table), np.int32(0)),",
        "tokens=np.append(entry_tokens(table), 0).astype(np.int16).astype(np.int32),",
        "test_tables.py::test_tokens_at_the_edge_of_a_dtype[32769-sparse]",
    ),
    Broken(
        "rows-in-16-bits",
        "entry = np.where(valid, first[..., None] + slot, 0)",
        "entry = np.where(valid, (first[..., None] + slot).astype(np.uint16), 0).astype(np.int64)",
        "test_tables.py::test_rows_beyond_16_bits",
    ),
    # What they score
    Broken(
        "softmax-over-everything",
        'if normalize == "all":',
        "if normalize:",
        "test_one_step.py::test_the_normalizer_decides_the_ranking[catalog-best0]",
    ),
    Broken(
        "softmax-over-valid-tokens-always",
        'if normalize == "all":',
        'if normalize == "":',
        "test_one_step.py::test_the_normalizer_decides_the_ranking[all-best2]",
    ),
    Broken(
        "no-softmax",
        "= logits - largest - np.log(total)",
        "= logits - largest",
        "test_one_step.py::test_logits_may_be_given[all-float32]",
    ),
    Broken(
        "logarithm-of-a-softmax",
        "= logits - largest - np.log(total)",
        "= np.log(np.exp(logits - largest) / total)",
        "test_awkward_numbers.py::test_an_unlikely_token_keeps_a_finite_score[catalog-float32]",
    ),
    Broken(
        "softmax-without-its-largest",
        "largest = mass.max(axis=-1, keepdims=True)",
        "largest = np.zeros_like(mass[..., :1])",
        "test_awkward_numbers.py::test_large_logits_keep_their_differences[30000.0-catalog]",
    ),
    Broken(
        "logits-through-half-precision",
        "logits = usable(all_logits(inputs))",
        "logits = usable(all_logits(inputs).astype(np.float16).astype(np.float64))",
        "test_one_step.py::test_logits_are_hidden_times_head[full-catalog-float32]",
    ),
    Broken(
        "bias-forgotten",
        "return logits if inputs.bias is None else logits + inputs.bias",
        "return logits",
        "test_one_step.py::test_bias_is_added_to_the_product[full-float32]",
    ),
    Broken(
        "score-of-the-first-beam",
        "scores = beams.scores[..., None] + log_softmax(found, mass)",
        "scores = beams.scores[:, :1, None] + log_softmax(found, mass)",
        "test_beams.py::test_scores_follow_the_parent",
    ),
    Broken(
        "bonus-inside-the-softmax",
        "scores = scores + np.take_along_axis(inputs.bonus, token, axis=2)",
        "scores = beams.scores[..., None] + log_softmax("
        "*[found + np.take_along_axis(inputs.bonus, token, axis=2)] * 2)",
        "test_one_step.py::test_a_bonus_stays_out_of_the_normalizer",
    ),
    Broken(
        "nudge-carried-on",
        "scores=np.where(kept, gather(candidates.scores), np.float32(-np.inf)),",
        "scores=np.where(kept, gather(ranking), np.float32(-np.inf)),",
        "test_one_step.py::test_a_nudge_counts_in_one_choice_alone[catalog]",
    ),
    Broken(
        "key-ignored",
        "ranking = candidates.scores if keys is None else keys",
        "ranking = candidates.scores",
        "test_candidates.py::test_a_key_ranks_and_the_score_is_carried_on",
    ),
    # Accidents
    Broken(
        "empty-slots-raised",
        "alive = (candidates.rows >= 0) & np.isfinite(candidates.scores) & np.isfinite(ranking)",
        "alive = np.isfinite(candidates.scores) & np.isfinite(ranking)",
        "test_candidates.py::test_replaced_scores_rank_and_are_carried_on",
    ),
    Broken(
        "removed-tokens-keep-their-slots",
        "entry = np.where(kept, entry, -1)",
        "entry = np.where(valid, entry, -1)",
        "test_candidates.py::test_candidates_are_those_that_targeting_keeps[catalog]",
    ),
    Broken(
        "nan-wins",
        "return np.where(np.isnan(logits) | (logits == np.inf), -np.inf, logits)",
        "return np.nan_to_num(logits, nan=50.0, posinf=-np.inf, neginf=-np.inf)",
        "test_awkward_numbers.py::test_nan_never_wins[catalog]",
    ),
    Broken(
        "nan-poisons-its-neighbours",
        "return np.where(np.isnan(logits) | (logits == np.inf), -np.inf, logits)",
        "return np.where(logits == np.inf, -np.inf, logits)",
        "test_awkward_numbers.py::test_a_dead_candidate_takes_no_other_along[nan-catalog-float32]",
    ),
    Broken(
        "dead-candidates-fill-up",
        "alive = (candidates.rows >= 0) & np.isfinite(candidates.scores) & np.isfinite(ranking)",
        "alive = candidates.rows >= 0",
        "test_awkward_numbers.py::test_dead_candidates_do_not_fill_up_the_width",
    ),
    # The order
    Broken(
        "ties-from-the-back",
        'place = np.argsort(-flat, axis=1, kind="stable")[:, :width]',
        'place = np.argsort(flat, axis=1, kind="stable")[:, ::-1][:, :width]',
        "test_order.py::test_equal_keys_go_by_parent_then_token[sparse]",
    ),
    Broken(
        "ties-by-place-in-memory",
        'place = np.argsort(-flat, axis=1, kind="stable")[:, :width]',
        "place = np.lexsort((candidates.rows.reshape(batch, -1), -flat), axis=1)[:, :width]",
        "test_order.py::test_the_order_is_that_of_places_not_of_rows",
    ),
    Broken(
        "ties-by-token-before-parent",
        'place = np.argsort(-flat, axis=1, kind="stable")[:, :width]',
        "place = np.lexsort((candidates.tokens.reshape(batch, -1), -flat), axis=1)[:, :width]",
        "test_order.py::test_lower_parent_wins_though_its_token_is_higher",
    ),
    Broken(
        "sort-that-is-not-stable",
        'place = np.argsort(-flat, axis=1, kind="stable")[:, :width]',
        'place = np.argsort(-flat, axis=1, kind="quicksort")[:, :width]',
        "test_order.py::test_many_ties_on_a_few_levels_are_in_order[7]",
    ),
    Broken(
        "minus-zero-below-zero",
        'place = np.argsort(-flat, axis=1, kind="stable")[:, :width]',
        "place = np.lexsort((np.signbit(flat), -flat), axis=1)[:, :width]",
        "test_order.py::test_zero_and_minus_zero_are_equal_keys",
    ),
    Broken(
        "keys-rounded-for-sorting",
        'place = np.argsort(-flat, axis=1, kind="stable")[:, :width]',
        'place = np.argsort(-flat.astype(np.float16), axis=1, kind="stable")[:, :width]',
        "test_order.py::test_keys_one_rounding_apart_are_in_order[1.0]",
    ),
    # Parents and places
    Broken(
        "parent-by-rounded-division",
        "parent = place // slots",
        "parent = np.rint(place / slots).astype(np.int64).clip(0, places - 1)",
        "test_beams.py::test_parents_are_the_places_candidates_came_from[31-7]",
    ),
    Broken(
        "parent-by-float32-division",
        "parent = place // slots",
        "parent = (place.astype(np.float32) / np.float32(slots)).astype(np.int64)",
        "test_beams.py::test_parents_are_exact_beyond_24_bits",
    ),
    Broken(
        "history-not-gathered-by-parent",
        "history = np.take_along_axis(beams.tokens, parent[..., None], axis=1)",
        "history = beams.tokens[:, np.minimum(np.arange(width), places - 1)]",
        "test_beams.py::test_tokens_and_rows_follow_the_parent",
    ),
    Broken(
        "history-of-another-request",
        "history = np.take_along_axis(beams.tokens, parent[..., None], axis=1)",
        "history = beams.tokens[0][parent]",
        "test_one_step.py::test_requests_do_not_share_candidates",
    ),
    Broken(
        "padding-with-a-key",
        "keys=np.where(kept, gather(ranking), np.float32(-np.inf)),",
        "keys=np.where(kept, gather(ranking), np.float32(0)),",
        "test_beams.py::test_fewer_candidates_than_width_leave_padding[64]",
    ),
    Broken(
        "padding-counted",
        "count = np.minimum(alive.sum(axis=(1, 2)), width)",
        "count = np.full(batch, min(width, places * slots))",
        "test_beams.py::test_fewer_candidates_than_width_leave_padding[4]",
    ),
    Broken(
        "unknown-prefix-starts-at-the-root",
        "known = (rows >= 0)[:, None]",
        "known, rows = (rows >= -1)[:, None], rows.clip(0)",
        "test_prefix.py::test_an_unknown_prefix_gives_an_empty_result[unknown0]",
    ),
    # Finished beams
    Broken(
        "finished-late",
        "leaf = table.leaves[np.where(kept & ~was_finished, row, -1)]",
        "leaf = np.where(table is beams.search.tables[-1], "
        "table.leaves[np.where(kept & ~was_finished, row, -1)], -1)",
        "test_beams.py::test_a_complete_semantic_id_is_finished_at_once",
    ),
    Broken(
        "finished-beams-pay-for-each-step",
        "scores[..., 0] = np.where(beams.finished, beams.scores, scores[..., 0])",
        "scores[..., 0] = np.where(beams.finished, beams.scores - 0.01, scores[..., 0])",
        "test_beams.py::test_a_finished_beam_competes_unchanged[catalog]",
    ),
    Broken(
        "finished-beams-forgotten",
        "entry[..., 0] = np.where(beams.finished, beams.rows, entry[..., 0])",
        "entry = entry.copy()",
        "test_candidates.py::test_a_finished_beam_is_its_own_only_candidate",
    ),
    Broken(
        "finished-beams-nudged",
        "has_token = candidates.tokens >= 0",
        "has_token = candidates.rows >= 0",
        "test_beams.py::test_guidance_at_a_finished_beam_counts_for_nothing[5.0]",
    ),
    Broken(
        "leaf-is-the-last-tables-entry",
        "leaves = index.leaf_starts(depth)[:-1].copy()",
        "leaves = np.arange(table.entries)",
        "test_tables.py::test_semantic_ids_of_several_lengths[sparse]",
    ),
    # Memory
    Broken(
        "stale-buffer",
        "scores=np.where(kept, gather(candidates.scores), np.float32(-np.inf)),",
        "scores=np.add(np.where(kept, gather(candidates.scores), np.float32(-np.inf)), 0, "
        "out=self.__dict__.setdefault((batch, width), np.zeros((batch, width), np.float32))),",
        "test_memory.py::test_beams_stay_what_they_are_after_later_steps[False]",
    ),
    Broken(
        "mass-of-an-earlier-search",
        "scores = beams.scores[..., None] + log_softmax(found, mass)",
        "scores = beams.scores[..., None] + log_softmax(found, "
        "self.__dict__.setdefault((found.shape, normalize), mass))",
        "test_memory.py::test_an_earlier_search_leaves_no_trace[False]",
    ),
    Broken(
        "sum-into-uncleared-memory",
        "total = np.exp(mass - largest).sum(axis=-1, keepdims=True)",
        "total = 0 * np.empty(largest.shape) + np.exp(mass - largest).sum(axis=-1, keepdims=True)",
        "test_memory.py::test_poisoned_scratch_memory_changes_nothing[False]",
    ),
    Broken(
        "row-stride-is-the-width",
        "array = np.asarray(value)",
        "array = np.lib.stride_tricks.as_strided("
        "a := np.asarray(value), strides=np.empty(a.shape, a.dtype).strides)",
        "test_memory.py::test_inputs_may_have_any_strides[logits-wider rows]",
    ),
    Broken(
        "logits-overwritten",
        "return np.asarray(inputs.logits, np.float64)",
        "return np.nan_to_num(inputs.logits, copy=False, nan=-np.inf, posinf=-np.inf, "
        "neginf=-np.inf).astype(np.float64)",
        "test_memory.py::test_what_the_model_says_is_not_written_to[logits]",
    ),
    Broken(
        "key-overwritten",
        "flat = np.where(alive, ranking, -np.inf).reshape(batch, places * slots)",
        "np.copyto(ranking, -np.inf, where=~alive | (ranking < 0)); "
        "flat = np.where(alive, ranking, -np.inf).reshape(batch, places * slots)",
        "test_memory.py::test_candidates_stay_what_they_are_after_select[True]",
    ),
    # The batch, time and threads
    Broken(
        "largest-of-the-whole-batch",
        "largest = mass.max(axis=-1, keepdims=True)",
        "largest = np.full_like(mass[..., :1], mass.max())",
        "test_batch.py::test_given_logits_decide_alone[catalog-7]",
    ),
    Broken(
        "never-the-same-twice",
        "scores = beams.scores[..., None] + log_softmax(found, mass)",
        "scores = (beams.scores[..., None] + log_softmax(found, mass)) * (1 + 2e-7 * "
        "np.random.random())",
        "test_batch.py::test_twenty_runs_give_the_same_bits[False]",
    ),
    Broken(
        "one-state-for-all-threads",
        "history = np.take_along_axis(beams.tokens, parent[..., None], axis=1)",
        "self.beams = beams; __import__('time').sleep(1e-3); "
        "history = np.take_along_axis(self.beams.tokens, parent[..., None], axis=1)",
        "test_batch.py::test_eight_threads_may_share_an_engine[False]",
    ),
    # Targeting
    Broken(
        "union-with-and",
        "matchers=index.matchers.steps[depth - 1] if index.matchers else None,",
        "matchers=index.matchers and __import__('dataclasses').replace(m := index.matchers.steps["
        "depth - 1], bits=type(m.bits)(np.bitwise_and.reduceat(index.matchers.steps[-1].bits"
        ".all_rows(), index.leaf_starts(depth)[:-1]), np.arange(table.entries))),",
        "test_targeting.py::test_a_prefix_is_kept_for_what_some_item_below_accepts",
    ),
    Broken(
        "refusal-of-one-item-for-its-subtree",
        "matchers=index.matchers.steps[depth - 1] if index.matchers else None,",
        "matchers=index.matchers and __import__('dataclasses').replace(m := index.matchers.steps["
        "depth - 1], bits=type(m.bits)(index.matchers.steps[-1].bits.all_rows()["
        "index.leaf_starts(depth)[:-1]], np.arange(table.entries))),",
        "test_targeting.py::test_a_refusal_counts_only_where_the_whole_subtree_refuses",
    ),
    Broken(
        "any-of-many-as-all-of-many",
        "one = one | ((n < count)[:, None, None] & contains(rows, row, values[:, n]))",
        "one = (one if n else ~one) & ((n >= count)[:, None, None] | "
        "contains(rows, row, values[:, n]))",
        "test_targeting.py::test_one_value_of_a_bloom_attribute_is_enough",
    ),
    Broken(
        "padded-signatures-tested",
        "one = one | ((n < count)[:, None, None] & contains(rows, row, values[:, n]))",
        "one = one | contains(rows, row, values[:, n])",
        "test_targeting.py::test_requests_give_unequal_numbers_of_values",
    ),
    Broken(
        "bloom-bits-in-the-wrong-word",
        "one = one | ((n < count)[:, None, None] & contains(rows, row, values[:, n]))",
        "one = one | ((n < count)[:, None, None] & contains(rows, row, values[:, n, ::-1]))",
        "test_targeting.py::test_signatures_lie_in_the_words_that_they_belong_to[128]",
    ),
    Broken(
        "one-word-of-bits-is-enough",
        "np.logical_and.reduce(holds, axis=-1)",
        "np.logical_or.reduce(holds, axis=-1)",
        "test_targeting.py::test_bits_of_every_word_are_tested[200]",
    ),
    Broken(
        "first-request-for-all",
        "wanted = asked[:, None, None, :]",
        "wanted = asked[:1, None, None, :]",
        "test_targeting.py::test_every_value_of_a_bit_attribute_must_be_accepted",
    ),
    Broken(
        "first-part-for-all",
        "for part in range(int(parts.max())):",
        "for part in range(1):",
        "test_targeting.py::test_an_entry_passes_when_one_of_its_parts_does[partition0]",
    ),
    Broken(
        "exclude-at-the-last-level-only",
        "elif mode == 2:",
        "elif mode == 2 and (table.leaves[:-1] >= 0).all():",
        "test_targeted_searches.py::test_excluding_all_below_a_prefix_prunes_the_prefix",
    ),
    Broken(
        "exclude-where-one-item-is-excluded",
        "found[b] = inside < end - first",
        "found[b] = inside == 0",
        "test_targeted_searches.py::test_excluded_items_are_never_returned",
    ),
    Broken(
        "allow-where-all-are-allowed",
        "found[b] = inside > 0",
        "found[b] = inside == end - first",
        "test_targeted_searches.py::test_only_allowed_items_are_returned",
    ),
    Broken(
        "eligible-counts-the-whole-row",
        'mass = found if normalize == "catalog" else np.where(kept, found, -np.inf)',
        "mass = found",
        "test_targeted_searches.py::test_each_normalizer_counts_what_it_says[eligible]",
    ),
    Broken(
        "catalog-counts-what-targeting-left",
        'mass = found if normalize == "catalog" else np.where(kept, found, -np.inf)',
        "mass = np.where(kept, found, -np.inf)",
        "test_targeted_searches.py::test_each_normalizer_counts_what_it_says[catalog]",
    ),
    # What it says of itself
    Broken(
        "tolerance-of-anything",
        'tolerance={"float32": 1e-6, "float16": 1e-6},',
        'tolerance={"float32": 1e6, "float16": 1e6},',
        "test_refusals.py::test_declared_capabilities_are_plausible",
    ),
    Broken(
        "any-option-will-do",
        "if options:",
        "if False:",
        "test_refusals.py::test_an_unknown_option_is_refused",
    ),
]
