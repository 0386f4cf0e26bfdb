import numpy as np
import pytest

from xtrace.runtime.expect import explain, explain_totals

WARPS = 4


def _entry(*loops):
    return {"sites": [{"id": i, "loop": loop} for i, loop in enumerate(loops, 1)] + [{"id": None, "loop": None}]}


def _counts(*vectors):
    ctas = len(vectors[0])
    return np.stack([np.zeros(ctas, np.int64), *(WARPS * np.asarray(v) for v in vectors)], axis=1)


TRIPS = {"full": [0, 1, 5, 7]}


def test_loop_sites_follow_the_trip_counts_in_every_cta() -> None:
    found = explain(_entry(0, 0), _counts(TRIPS["full"], TRIPS["full"]), WARPS, TRIPS)
    assert found.complete
    assert found.expected == 2 * 13 * WARPS


def test_peeled_iterations_are_named() -> None:
    found = explain(_entry(0), _counts([0, 0, 4, 6]), WARPS, TRIPS)
    assert found.rules == {1: "trips of full less 1"}


def test_right_total_in_wrong_ctas_is_not_explained() -> None:
    found = explain(_entry(0), _counts([1, 0, 5, 7]), WARPS, TRIPS)
    assert found.unexplained == (1,)
    assert found.expected is None


def test_sites_of_one_loop_must_agree() -> None:
    found = explain(_entry(0, 0), _counts([0, 1, 5, 7], [0, 0, 4, 6]), WARPS, TRIPS)
    assert found.unexplained == (1, 2)


@pytest.mark.parametrize(
    ("counts", "rule"),
    [
        ([1, 1, 1, 1], "once per warp"),
        ([0, 1, 1, 1], "once per warp that does not leave early"),
        ([0, 0, 1, 1], "once per warp with more than 1 trips of full"),
    ],
)
def test_straight_code(counts, rule: str) -> None:
    assert explain(_entry(None), _counts(counts), WARPS, TRIPS).rules == {1: rule}


def test_a_kernel_without_loops() -> None:
    assert explain(_entry(None), _counts([1, 1]), WARPS, {}).expected == 2 * WARPS
    assert not explain(_entry(None), _counts([1, 2]), WARPS, {}).complete


def test_no_record_sites_means_no_records() -> None:
    assert explain({"sites": [{"id": None, "loop": None}]}, np.zeros((3, 1), np.int64), WARPS, {}).expected == 0


def test_totals_for_work_handed_out_at_run_time() -> None:
    found = explain_totals(_entry(0, 1, 0, 2), {1: 80, 2: 0, 3: 81, 4: 7}, {"per tile": 80, "per block": 7})
    assert found.rules == {1: "per tile", 2: "never reached", 4: "per block"}
    assert found.unexplained == (3,)
