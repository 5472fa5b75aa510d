"""One row that nobody can read costs nobody else anything, wherever Prometheus' answers are parsed."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.adapters.prometheus import lookup
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import causes
from servingpool.adapters.prometheus.engines import profile_of, shipped
from servingpool.adapters.prometheus.own_record import AmbiguousRecord, OwnRecord
from servingpool.adapters.prometheus.plan import Plan, evaluated_at, gather, gather_range
from servingpool.adapters.prometheus.promql import SEVERAL, Queries
from servingpool.adapters.prometheus.rows import Unread, bound_of, shown
from servingpool.adapters.prometheus.samples import BucketCount, Layout, ReadRequest
from servingpool.adapters.prometheus.scrape_errors import explained_error

from ...fuzzing import fuzzed  # noqa: TID252, tests are no package of an installed name
from ...linear_time import in_about_linear_time  # noqa: TID252, tests are no package of an installed name

NOW = 1_790_000_000.0
TTFT = "vllm:time_to_first_token_seconds"
PODS = ("a", "b", "c")
"""Each is of a namespace of its own name."""
QUERIES = Queries(profile_of("vllm"))
LAYOUT = Layout.read(BucketCount(TTFT, le, 3.0) for le in ("1.0", "2.5", "5.0", "+Inf"))
PLAN = Plan.of(QUERIES, LAYOUT, ReadRequest(ttft_bounds=frozenset({2.0})))
STEPS = (NOW - 30, NOW - 15, NOW)


def owner(pod: str) -> dict[str, str]:
    return {"namespace": pod, "pod": pod, "model_name": "m"}


def answer() -> list[dict[str, Any]]:
    """Of three pods a few figures, a bucket, and the scrape time."""
    rows: list[dict[str, Any]] = []
    for pod in PODS:
        of = owner(pod)
        for name, value in (("vllm:num_requests_running", 3), (f"{TTFT}_sum", 9.5), (f"{TTFT}_count", 7)):
            rows.append({"metric": {"__name__": name, **of}, "value": [NOW, str(value)]})
        rows.append({"metric": {"__name__": f"{TTFT}_bucket", "le": "2.5", "part": "b", **of}, "value": [NOW, "5"]})
        rows.append({"metric": {"part": "times", **of}, "value": [NOW, str(NOW - 5)]})
    return rows


ODD = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
"""What JSON can hold."""
LABELS = ("__name__", "namespace", "pod", "model_name", "le", "part", "__group__", "pool", "job")


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[dict[str, Any]], Any]:
    """One change of a row."""
    kind, odd = draw(st.sampled_from(("row", "metric", "value", "label", "drop", "text", "time"))), draw(ODD)
    label = draw(st.sampled_from(LABELS))
    text = draw(st.sampled_from(("", "abc", "NaN", "-Inf", "1e999", "2_5", "0x1p-2", "٣", "x" * 5_000, "\x1b[31m")))

    def change(row: dict[str, Any]) -> Any:
        if kind == "row":
            return odd
        if kind == "drop":
            row["metric"].pop(label, None)
        elif kind in {"label", "text"}:
            row["metric"][label] = odd if kind == "label" else text
        elif kind == "metric":
            row["metric"] = odd
        else:
            where = next(name for name in ("value", "values") if name in row)
            points = [row[where]] if where == "value" else row[where]
            points[0][0 if kind == "time" else 1] = odd
            row[where] = odd if kind == "value" and label == "le" else row[where]
        return row

    return change


def mutated(rows: list[dict[str, Any]], place: int, change: Callable[[dict[str, Any]], Any]) -> tuple[Any, list[Any]]:
    """Whose row it was; and the rows, as JSON brings them."""
    rows = deepcopy(rows)
    whose = rows[place]["metric"].get("pod")
    rows[place] = change(rows[place])
    return whose, json.loads(json.dumps(rows))


@fuzzed(4.0)
@given(place=st.integers(0, 14), change=mutations())
def test_one_row_costs_no_other_pod_its_sample(place, change):
    whole = gather(answer(), PLAN.columns).samples(NOW, 60.0)[0]
    whose, rows = mutated(answer(), place, change)
    at = evaluated_at(rows, PLAN.columns)
    fresh, stale = gather(rows, PLAN.columns).samples(at, 60.0)
    assert at == NOW
    for pod in {*PODS} - {whose}:
        assert fresh[pod, pod] == whole[pod, pod]
        assert (pod, pod) not in stale


@fuzzed(4.0)
@given(place=st.integers(0, 14), change=mutations())
def test_one_row_costs_no_other_pod_its_past(place, change):
    rows = [{"metric": row["metric"], "values": [[at, row["value"][1]] for at in STEPS]} for row in answer()]
    whole = gather_range(rows, PLAN.columns, STEPS[0], NOW)
    whose, rows = mutated(rows, place, change)
    tables = gather_range(rows, PLAN.columns, STEPS[0], NOW)
    assert all(STEPS[0] - 1 <= at <= NOW + 1 for at in tables)
    for at in STEPS:
        found = tables[at].samples(NOW, 1e3)[0]
        for pod in {*PODS} - {whose}:
            assert found[pod, pod] == whole[at].samples(NOW, 1e3)[0][pod, pod]


@fuzzed(4.0)
@given(place=st.integers(0, 3), change=mutations())
def test_one_row_costs_no_other_bucket(place, change):
    rows: list[dict[str, Any]] = [
        {"metric": {"__name__": f"{TTFT}_bucket", "le": le, "namespace": "n"}, "value": [NOW, "3"]}
        for le in ("1.0", "2.5", "5.0", "+Inf")
    ]
    _, rows = mutated(rows, place, change)
    layout = lookup.read(QUERIES, rows, {}).layout
    bounds = {1.0, 2.5, 5.0} - ({(1.0, 2.5, 5.0)[place]} if place < 3 else set())
    found = [bound for each in layout.buckets.values() for one in each for bound in one.bounds]
    assert bounds <= {*found}
    assert all(map(math.isfinite, found))


@fuzzed(4.0)
@given(place=st.integers(0, 2), change=mutations())
def test_one_row_costs_no_other_pod_its_cause(place, change):
    rows = [{"metric": {"part": "up", "namespace": pod, "pod": pod}, "value": [NOW, "0"]} for pod in PODS]
    whose, rows = mutated(rows, place, change)
    found = causes(QUERIES, "vllm", shipped(), [(pod, pod) for pod in PODS], rows)
    assert all(found[pod, pod].reason.startswith("The scrape fails") for pod in {*PODS} - {whose})


@fuzzed(4.0)
@given(place=st.integers(0, 2), change=mutations())
def test_one_row_costs_no_other_figure_of_the_operators_own_record(place, change):
    names = ("servingpool_min_replicas", "servingpool_max_replicas", "servingpool_last_change_to_replicas")
    rows = [{"metric": {"__name__": one, "namespace": "n", "pool": "p"}, "value": [NOW, "4"]} for one in names]
    record = OwnRecord(BackendConfig(url="http://127.0.0.1:9"), ("n", "p"))
    known = record._by_time(deepcopy(rows), lambda row: [row["value"]])
    _, rows = mutated(rows, place, change)
    with contextlib.suppress(AmbiguousRecord):  # a label more tells another pool of that name apart
        found = record._by_time(rows, lambda row: [row["value"]])
        kept = {metric.value for metric in found.get(NOW, {})}
        assert {metric.value for metric in known[NOW]} - {names[place]} <= kept


@pytest.mark.parametrize("text", ["abc", "", "2_5", " 2.5", "2_.5", "nan", "0x10", "٣", "1" * 65, None, 2.5, ["1"]])
def test_an_upper_bound_that_is_no_number_is_none(text):
    with pytest.raises(ValueError, match="no number"):
        bound_of(text)


@pytest.mark.parametrize(
    ("text", "bound"), [("2.5", 2.5), ("1e-05", 1e-5), (".5", 0.5), ("+Inf", math.inf), ("5", 5.0)]
)
def test_an_upper_bound_is_read_as_any_exporter_writes_it(text, bound):
    assert bound_of(text) == bound


def bad_rows(count: int) -> list[Any]:
    """As a page may have them: each of another pod, and with a bucket of its own that is no number."""
    return [
        {"metric": {"__name__": f"{TTFT}_bucket", "le": f"x{number}", **owner(f"p{number}")}, "value": [NOW, "1"]}
        for number in range(count)
    ]


def good_buckets(count: int) -> list[Any]:
    return [
        {"metric": {"__name__": f"{TTFT}_bucket", "le": f"1.{number}", "namespace": "n"}, "value": [NOW, "1"]}
        for number in range(count)
    ]


WALKS: Mapping[str, tuple[Callable[[int], Any], Callable[[Any], object]]] = {
    "samples": (bad_rows, lambda rows: gather(rows, PLAN.columns)),
    "bad buckets": (bad_rows, lambda rows: lookup.read(QUERIES, rows, {})),
    "buckets": (good_buckets, lambda rows: lookup.read(QUERIES, rows, {}).layout.choose(TTFT, {1.5})),
    "causes": (bad_rows, lambda rows: causes(QUERIES, "vllm", shipped(), [("a", "a")], rows)),
    "errors": (lambda count: "expected " * count, explained_error),
    "texts": (lambda count: "\x1b" * count, shown),
}


@pytest.mark.parametrize("name", WALKS)
def test_four_times_the_rows_take_about_four_times_as_long(name):
    make, walk = WALKS[name]
    in_about_linear_time(lambda count: walk(make(count)), {2_000: 0.01})


def test_a_namespace_with_many_unreadable_pods_leaves_those_of_others_named():
    whole = Unread()
    for number in range(5_000):
        whole.add({"metric": {"namespace": "evil", "pod": f"p{number}"}})
    other = Unread()
    other.add({"metric": {"__name__": "x", "namespace": "chat", "pod": "own"}})
    whole.include(other)
    assert (whole.count, len(whole.pods)) == (5_001, 11)
    assert whole.pods["chat", "own"] == "x has a value that is no number"


def test_a_text_from_outside_is_short_and_has_no_controls():
    assert shown("\x1b[2J\u202eevil\n" + "x" * 99) == "?[2J?evil?" + "x" * 30 + "..."


BAD: Mapping[str, tuple[Any, str]] = {
    "no namespace": (
        {"metric": {"__name__": "vllm:num_requests_running", "pod": "odd"}, "value": [NOW, "1"]},
        "vllm:num_requests_running has no label namespace",
    ),
    "no number": (
        {"metric": {"__name__": f"{TTFT}_sum", **owner("odd")}, "value": [NOW, "many"]},
        f"{TTFT}_sum has a value that is no number",
    ),
    "no value": (
        {"metric": {"__name__": f"{TTFT}_sum", **owner("odd")}, "histogram": [NOW, {}]},
        f"{TTFT}_sum has a value that is no number",
    ),
    "no le": (
        {"metric": {"__name__": f"{TTFT}_bucket", **owner("odd")}, "value": [NOW, "1"]},
        f"{TTFT}_bucket has no label le",
    ),
    "no row": (7, "Prometheus answered with a row that is no series"),
    "no metric": ({"value": [NOW, "1"]}, "Prometheus answered with a row that is no series"),
}


@pytest.mark.parametrize("name", BAD)
async def test_such_a_row_is_counted_named_and_logged_once(prometheus, backend, request_2s_100ms, caplog, name):
    row, why = BAD[name]
    prometheus.expose("llama-0")
    alone = await backend.read(request_2s_100ms, NOW)
    prometheus.rows.append(row)
    with caplog.at_level(logging.WARNING):
        for age in range(3):
            reading = await backend.read(request_2s_100ms, NOW + age)
            assert reading.samples == alone.samples
            assert reading.unread.count == 1
            assert list(reading.unread.pods.values()) == [why]
    assert [record.getMessage().partition("left out: ")[2] for record in caplog.records] == [why]


async def test_a_buckets_bound_that_is_no_number_costs_no_other_pool_its_buckets(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    for le in ("abc", "", "2_5"):
        prometheus.layout[TTFT][le] = 1
    reading = await backend.read(request_2s_100ms, NOW)
    assert reading.samples["chat", "llama-0"]["llama"].time_to_first_token.bounds == (1.0, 2.5)
    assert reading.unread.count == 3


async def test_where_no_row_can_be_read_that_is_the_reason(prometheus, backend, request_2s_100ms):
    prometheus.rows += [7, {"metric": {}, "value": [NOW, "x"]}]
    missing = (await backend.read(request_2s_100ms, NOW)).select("chat", ["llama-0"], "llama").missing
    assert missing["llama-0"].reason == "No sample, and 2 rows of the answer could not be read"


async def test_a_sample_whose_gauges_may_be_copies_is_unknown(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    prometheus.expose("llama-1")
    prometheus.rows.append(
        {
            "metric": {
                "__name__": SEVERAL,
                "part": SEVERAL,
                **owner("llama-0"),
                "namespace": "chat",
                "model_name": "llama",
            },
            "value": [NOW, "1"],
        }
    )
    selection = (await backend.read(request_2s_100ms, NOW)).select("chat", ["llama-0", "llama-1"], "llama")
    assert [sample.replica for sample in selection.samples] == ["llama-1"]
    assert selection.explain().startswith("Gauges have several series")


def test_a_tenants_many_labels_push_out_none_that_more_namespaces_need_later() -> None:
    """By which targets are told apart: as many as there are places for, learned before the others have any."""

    def twins(namespace: str, label: str) -> list[Any]:
        target = {"part": "twins", "namespace": namespace, "pod": "p", "job": "j", "instance": "i"}
        return [{"metric": {**target, label: value}, "value": [0, "1"]} for value in "ab"]

    known = {f"label{number}": 1 for number in range(lookup.MOST_LEARNED)}
    rows = [*twins("a", "copy"), *twins("b", "copy"), *twins("c", "service")]
    assert list(lookup.read(QUERIES, rows, known).learned)[:2] == ["service", "copy"]


def test_no_namespace_is_read_by_a_label_of_its_engines_own_however_many_there_are() -> None:
    own = {f"of-{label}": label for label in "abcdefghijkl"}
    rows = [
        {"metric": {"part": "own", "namespace": name, "own": label}, "value": [0, "1"]} for name, label in own.items()
    ]
    rows.append({"metric": {"part": "targets"}, "value": [0, "1"]})
    apart = lookup.read(QUERIES, rows, dict.fromkeys(own.values(), 1)).apart
    assert len(apart) == lookup.MOST_APART + 1
    assert {name: own[name] in by for by, names in apart.items() for name in names} == dict.fromkeys(own, False)
