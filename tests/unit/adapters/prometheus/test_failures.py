"""Whatever Prometheus does, the answer is Unknown with a reason that tenants may read."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from servingpool.adapters.prometheus import backend as backend_module
from servingpool.adapters.prometheus import plan, workers
from servingpool.adapters.prometheus import rows as limits
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.http_client import MetricsUnavailable, Unsent
from servingpool.adapters.prometheus.own_record import OwnRecord
from servingpool.adapters.prometheus.samples import FleetReading, NotAsked, TooLarge
from servingpool.decision.observation import Unknown

NOW = 1_790_000_000.0


async def reason(backend: PrometheusBackend, request) -> str:
    reading = await backend.read(request, NOW)
    assert isinstance(reading, Unknown)
    return reading.reason


async def answered(backend: PrometheusBackend, request) -> FleetReading:
    """A reading of a server that answers again: a busy machine may take longer than the second that one read has."""
    for _ in range(60):
        reading = await backend.read(request, NOW + 15.0)
        if not isinstance(reading, Unknown):
            return reading
    raise AssertionError(reading.reason)


async def test_an_overloaded_prometheus_is_queried_once_and_reported(prometheus, backend, request_2s_100ms, raw):
    prometheus.raw = raw(503, b'{"status":"error","errorType":"unavailable","error":"10.1.2.3 is down"}')
    assert await reason(backend, request_2s_100ms) == "Prometheus backend 'default' answered HTTP 503 (unavailable)"
    assert len(prometheus.asked) == 1  # the client's own retries would take six seconds of a fifteen-second tick


@pytest.mark.parametrize(
    "body", [b"secret-host", b'{"errorType":"secret-host"}', b'{"errorType":["a"],"error":"b"}', b"[]", b"5"]
)
async def test_an_error_body_never_reaches_the_reason(prometheus, backend, request_2s_100ms, raw, body):
    prometheus.raw = raw(500, body)
    assert await reason(backend, request_2s_100ms) == "Prometheus backend 'default' answered HTTP 500"


async def test_a_redirect_is_not_followed(prometheus, backend, request_2s_100ms, raw):
    prometheus.raw = raw(302, headers={"Location": "http://169.254.169.254/latest/meta-data"})
    assert "answered with a redirect (HTTP 302)" in await reason(backend, request_2s_100ms)
    assert len(prometheus.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><title>Sign in</title>",
        b"",
        b"null",
        b"[1]",
        b'{"status":"success"}',
        b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
        b'{"status":"success","data":{"result',
    ],
)
async def test_a_login_page_or_broken_json_is_unknown(prometheus, backend, request_2s_100ms, raw, body):
    prometheus.raw = raw(200, body)
    assert "did not answer with query results" in await reason(backend, request_2s_100ms)


async def test_a_reply_that_is_broken_in_its_middle_is_unknown(prometheus, backend, request_2s_100ms, raw):
    whole = b'{"metric":{"namespace":"chat","pod":"a","model_name":"llama"},"value":[1,"1"]}'
    rows = b",".join([whole, whole.replace(b"[1,", b"[1;"), whole])
    await backend.read(request_2s_100ms, NOW)
    prometheus.raw = raw(200, b'{"status":"success","data":{"resultType":"vector","result":[%b]}}' % rows)
    assert "in an unexpected format" in await reason(backend, request_2s_100ms)


async def test_a_body_that_drips_ends_at_the_deadline(prometheus, open_backend, request_2s_100ms, raw, monkeypatch):
    stop = threading.Event()
    monkeypatch.setattr(workers, "GRACE", 60.0)  # the client gives up by itself, so its thread is free again

    def drip(connection) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with contextlib.suppress(OSError):
            while not stop.wait(0.01):
                connection.sendall(b" ")

    prometheus.raw = raw(send=drip)
    assert "did not answer within 0.15 s" in await reason(open_backend(patience=0.15), request_2s_100ms)
    stop.set()


HANGS = {
    "says nothing": (b"", b""),
    "drips its headers": (b"HTTP/1.1 200 OK\r\nX-Endless: ", b"x"),
    "drips the length of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "drips a body that ends with the connection": (b"HTTP/1.0 200 OK\r\n\r\n", b" "),
    "stalls behind its headers": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b""),
}
"""What a server that never ends an answer sends at first, and then byte by byte."""


@pytest.fixture(params=HANGS)
def hanging(
    prometheus, raw, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[threading.Event]:
    """Prometheus answers in one of these ways, until `prometheus.raw` is changed. Set as soon as it is asked."""
    asked, stop, (first, then) = threading.Event(), threading.Event(), HANGS[request.param]

    def hang(connection) -> None:
        asked.set()
        with contextlib.suppress(OSError):
            connection.sendall(first)
            while not stop.wait(0.01):
                connection.sendall(then)

    monkeypatch.setattr(workers, "GRACE", 60.0)  # the client ends it by itself
    prometheus.raw = raw(send=hang)
    yield asked
    stop.set()


@pytest.mark.usefixtures("hanging")
async def test_a_server_that_hangs_is_left_at_the_deadline_and_read_again_as_soon_as_it_answers(
    prometheus, open_backend, request_2s_100ms
):
    """A thread that waited for the end of dripping headers was never free again, and its backend never read again."""
    backend = open_backend(patience=1.0, concurrency=1)
    assert await reason(backend, request_2s_100ms) == "Prometheus backend 'default' did not answer within 1 s"
    prometheus.raw = None
    prometheus.expose("llama-0")
    assert ("chat", "llama-0") in (await answered(backend, request_2s_100ms)).samples


@pytest.mark.usefixtures("hanging")
def test_a_command_leaves_a_server_that_hangs_at_the_deadline(prometheus):
    """Its client has no other thread that would cut the connection."""
    config = BackendConfig(url=prometheus.url).model_copy(update={"timeout": 0.5})
    with pytest.raises(MetricsUnavailable, match=r"did not answer within 0\.5 s"):
        OwnRecord(config, ("chat", "pool")).at(NOW)


async def test_a_server_that_drips_over_tls_is_cut_off_as_well(
    secure_prometheus, open_backend, request_2s_100ms, raw, certificates, monkeypatch: pytest.MonkeyPatch
):
    stop = threading.Event()

    def drip(connection) -> None:
        with contextlib.suppress(OSError):
            while not stop.wait(0.01):
                connection.sendall(b"x")

    monkeypatch.setattr(workers, "GRACE", 60.0)  # the client ends it by itself
    secure_prometheus.raw = raw(send=drip)
    tls = {"ca_file": certificates["ca"], "cert_file": certificates["cert"], "key_file": certificates["key"]}
    backend = open_backend(url=secure_prometheus.url, tls=tls, patience=1.0, concurrency=1)
    assert "did not answer within 1 s" in await reason(backend, request_2s_100ms)
    secure_prometheus.raw = None
    await answered(backend, request_2s_100ms)
    stop.set()


@pytest.mark.usefixtures("hanging")
async def test_a_server_that_hangs_leaves_no_thread_behind(open_backend, request_2s_100ms):
    before, backend = set(threading.enumerate()), open_backend(patience=0.15, concurrency=2)
    asked = {"start": NOW - 30.0, "end": NOW, "step": 15.0, "namespaces": ["chat"]}
    for age in range(3):
        await backend.read(request_2s_100ms, NOW + age)
        assert isinstance(await backend.history(request_2s_100ms, **asked), Unknown)
    own = _since(before)
    assert len(own) <= 2
    await backend.aclose()
    _end(own)


async def test_closing_ends_what_is_under_way(hanging, open_backend, request_2s_100ms):
    """Python waits for such threads before it ends."""
    before, backend = set(threading.enumerate()), open_backend(timeout="1m")
    pending = asyncio.create_task(backend.read(request_2s_100ms, NOW))
    await asyncio.to_thread(hanging.wait)
    own = _since(before)
    await backend.aclose()
    _end(own)
    pending.cancel()


def _since(before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("prometheus-")]


def _end(threads: list[threading.Thread]) -> None:
    assert threads
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()


async def test_the_bucket_layout_is_kept_if_the_samples_came_too_late(
    prometheus, backend, request_2s_100ms, monkeypatch: pytest.MonkeyPatch
):
    prometheus.expose("llama-0")

    def late(*_: object) -> None:
        raise MetricsUnavailable("default", "did not answer within 2 s")

    with monkeypatch.context() as slow:
        slow.setattr(backend_module, "read_samples", late)
        assert "did not answer" in await reason(backend, request_2s_100ms)
    asked = len(prometheus.asked)
    reading = await backend.read(request_2s_100ms, NOW + 15.0)
    assert not isinstance(reading, Unknown)
    assert len(prometheus.asked) == asked + 1, "the pages alone"


async def test_a_query_that_was_never_sent_does_not_count_as_slow(prometheus, open_backend, request_2s_100ms, raw):
    stop = threading.Event()
    prometheus.raw = raw(send=lambda _: stop.wait(60.0))
    backend = open_backend(patience=1.0, concurrency=1)
    others = (replace(request_2s_100ms, match_labels=(("tenant", name),)) for name in "abc")
    readings = await asyncio.gather(*(backend.read(other, NOW) for other in others))
    stop.set()
    assert [reading.reason for reading in readings if isinstance(reading, Unknown)] == [
        "Prometheus backend 'default' did not answer within 1 s",
        "Prometheus backend 'default' was busy with other queries for 1 s",
        "Prometheus backend 'default' was busy with other queries for 1 s",
    ]
    assert [type(reading) for reading in readings] == [TooLarge, NotAsked, NotAsked]


def test_a_read_of_which_one_slice_was_sent_counts_as_read():
    """One that is too large for the timeout would else come first at every tick, and keep all others waiting."""
    late, unsent = MetricsUnavailable("default", "did not answer within 1 s"), Unsent("default", "had other queries")
    assert backend_module._why([unsent, unsent], of=2) == NotAsked(str(unsent))
    assert backend_module._why([unsent, late], of=2) == Unknown(str(late))
    assert backend_module._why([unsent], of=2) == Unknown(f"{unsent}, after 1 of 2 parts")


async def test_unused_label_sets_are_forgotten(prometheus, backend, request_2s_100ms):
    for turn in range(5):
        old = replace(request_2s_100ms, match_labels=(("preview", str(turn)),))
        await backend.read(old, NOW + turn * backend_module.LAYOUT_LASTS)
    assert len(backend._known) == 2


async def test_an_answer_cut_short_is_unknown(prometheus, backend, request_2s_100ms, raw):
    prometheus.raw = raw(200, b'{"status":"success"', {"Content-Length": "5000", "Connection": "close"})
    assert "closed the connection early" in await reason(backend, request_2s_100ms)


BOUNDS = {
    "bytes": ("LARGEST_REPLY", 2**20, "answered with more than 1 MiB"),
    "room": ("REPLIES", limits.Room(2**20), "answered with more than there is room for beside other answers"),
    "rows": ("MOST_ROWS", 4_999, "answered with more than 4999 rows"),
    "samples": ("MOST_SAMPLES", 999, "answered with samples of more than 999 pods"),
}


@pytest.mark.parametrize("which", BOUNDS)
async def test_an_answer_over_a_bound_is_unknown_and_the_next_one_is_read(
    prometheus, backend, request_2s_100ms, monkeypatch: pytest.MonkeyPatch, which
):
    """As a Prometheus may answer about some tenant's page: what is held for it is given back."""
    name, bound, said = BOUNDS[which]
    monkeypatch.setattr(limits, name, bound)
    if name == "MOST_SAMPLES":
        monkeypatch.setattr(workers, name, bound)
        monkeypatch.setattr(plan, name, bound)
    prometheus.expose("llama-0")
    small = await backend.read(request_2s_100ms, NOW)
    rows = list(prometheus.rows)
    for number in range(1_000):
        prometheus.expose(f"llama-{number}", model_name="x" * 300)
    reading = await backend.read(request_2s_100ms, NOW)
    assert isinstance(reading, TooLarge)
    assert reading.reason == f"Prometheus backend 'default' {said}"
    prometheus.rows = rows
    for _ in range(10):
        assert (await backend.read(request_2s_100ms, NOW)).samples == small.samples


@pytest.mark.parametrize("rows", [b"%b", b'{"metric":{}},{"metric":{},"x":[%b]},{"metric":{}}'])
async def test_an_answer_of_many_small_values_is_not_parsed(
    prometheus, backend, request_2s_100ms, raw, monkeypatch: pytest.MonkeyPatch, rows
):
    """8 MiB of empty lists become 230 MiB of objects."""
    monkeypatch.setattr(limits, "MOST_VALUES", 2**17)
    await backend.read(request_2s_100ms, NOW)
    result = rows % b",".join([b"[]"] * 2**20)
    prometheus.raw = raw(200, b'{"status":"success","data":{"resultType":"vector","result":[%b]}}' % result)
    tracemalloc.start()
    said = "Prometheus backend 'default' answered with more than 131072 values in one piece"
    assert await backend.read(request_2s_100ms, NOW) == TooLarge(said)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 * 2**20


@pytest.mark.parametrize("ending", ["", "{"])
async def test_an_answer_that_is_refused_is_let_go_of_at_once(
    prometheus, backend, request_2s_100ms, raw, monkeypatch: pytest.MonkeyPatch, ending
):
    """Too long, or no JSON. A hostile server's were there until the collector came by: 1.2 GiB, beyond the limit."""
    monkeypatch.setattr(limits, "LARGEST_REPLY", 2**22 - (0 if ending else 2**20))
    prometheus.raw = raw(200, b" " * (2**22 - 2**16) + ending.encode())
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(8):
            await reason(backend, request_2s_100ms)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < 2**22


async def test_a_packed_answer_is_bounded_by_what_it_unpacks_to(
    prometheus, backend, request_2s_100ms, raw, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "LARGEST_REPLY", 2**20)
    packed = gzip.compress(b" " * 100 * 2**20)
    prometheus.raw = raw(200, packed, {"Content-Encoding": "gzip"})
    tracemalloc.start()
    assert "answered with more than 1 MiB" in await reason(backend, request_2s_100ms)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 80 * 2**20


def secret(folder, how: str) -> dict[str, object]:
    """Settings with a secret, sent in one of these ways."""
    (folder / "secret").write_text("s3cret")
    return {
        "nothing": {},
        "bearer": {"bearer_token_file": folder / "secret"},
        "basic": {"basic_auth": {"username": "me", "password_file": folder / "secret"}},
        "header": {"headers": {"X-Key": "s3cret"}},
    }[how]


@pytest.mark.parametrize("how", ["bearer", "basic", "header"])
async def test_credentials_that_an_error_repeats_do_not_reach_the_log(
    prometheus, open_backend, request_2s_100ms, raw, tmp_path, caplog, how
):
    backend = open_backend(**secret(tmp_path, how))
    prometheus.raw = raw(401, b"denied: s3cret, bWU6czNjcmV0, s\\u0033cret")
    assert "HTTP 401" in await reason(backend, request_2s_100ms)
    prometheus.raw = raw(200, b"<html>s3cret")
    assert "did not answer with query results" in await reason(backend, request_2s_100ms)
    (tmp_path / "secret").write_text("s3cret\r\nX-Other: 1")  # no header, which the client's exception repeats
    await reason(backend, request_2s_100ms)
    assert "Prometheus backend 'default'" in caplog.text
    assert "s3cret" not in caplog.text
    assert "bWU6czNjcmV0" not in caplog.text


async def test_what_an_error_says_reaches_the_log_without_controls(prometheus, backend, request_2s_100ms, raw, caplog):
    prometheus.raw = raw(500, b"\x1b[2Jdisk is full\n")
    await reason(backend, request_2s_100ms)
    assert "disk is full" in caplog.text
    assert "\x1b" not in caplog.text


async def test_an_https_url_that_speaks_http(prometheus, open_backend, request_2s_100ms):
    backend = open_backend(url=prometheus.url.replace("http:", "https:"))
    assert "TLS" in await reason(backend, request_2s_100ms)


async def test_a_server_whose_authority_is_unknown_gets_no_token(
    secure_prometheus, open_backend, request_2s_100ms, tmp_path
):
    (tmp_path / "token").write_text("secret")
    backend = open_backend(url=secure_prometheus.url, bearer_token_file=tmp_path / "token")
    assert "TLS handshake: its certificate is not trusted" in await reason(backend, request_2s_100ms)
    assert secure_prometheus.asked == []


async def test_a_token_that_cannot_be_read_is_reported_without_its_path(
    prometheus, open_backend, request_2s_100ms, tmp_path
):
    backend = open_backend(bearer_token_file=tmp_path / "missing")
    assert await reason(backend, request_2s_100ms) == (
        "Prometheus backend 'default' has a bearerTokenFile that is not readable"
    )
    assert prometheus.asked == []


PARTIAL = {
    "a Thanos with a store down": {"warnings": ["store 10.4.5.6:10901: context deadline exceeded"]},
    "a VictoriaMetrics cluster with a store down": {"isPartial": True},
}


@pytest.mark.parametrize("beside", PARTIAL.values(), ids=PARTIAL)
async def test_a_partial_answer_is_no_reading_and_the_store_not_named(
    prometheus, backend, request_2s_100ms, beside, caplog
):
    prometheus.expose("llama-0")
    assert ("chat", "llama-0") in (await backend.read(request_2s_100ms, NOW)).samples
    prometheus.beside = beside
    said = "Prometheus backend 'default' gave a partial answer; check the stores that it reads from"
    assert await backend.read(request_2s_100ms, NOW + 15) == Unknown(said)
    assert said in caplog.text
    prometheus.beside = {"isPartial": False, "warnings": []}
    assert ("chat", "llama-0") in (await backend.read(request_2s_100ms, NOW + 30)).samples


@pytest.mark.parametrize("beside", PARTIAL.values(), ids=PARTIAL)
async def test_a_partial_look_up_of_the_buckets_stops_no_pool(prometheus, backend, request_2s_100ms, beside):
    """It asks all stores, also those that have no pod of ours."""
    prometheus.expose("llama-0")
    prometheus.beside = beside
    await backend.read(request_2s_100ms, NOW)
    prometheus.beside = {}
    assert ("chat", "llama-0") in (await backend.read(request_2s_100ms, NOW + 15)).samples
    assert len(prometheus.asked) == 3, "the buckets of the partial answer are kept"


async def test_a_warning_on_the_query_itself_costs_nothing(prometheus, backend, request_2s_100ms):
    """One pod's series can bring it about: the samples of all others are whole."""
    mixed = "encountered a mix of histograms and floats for aggregation (1:5)"
    of_the_query = [f"PromQL warning: {mixed}", "3 more warning annotations omitted"]
    prometheus.beside = {"warnings": of_the_query, "infos": ["PromQL info: not a counter"]}
    prometheus.expose("llama-0")
    assert ("chat", "llama-0") in (await backend.read(request_2s_100ms, NOW)).samples


@pytest.mark.parametrize("how", ["nothing", "bearer", "basic", "header"])
async def test_what_a_server_refuses_of_a_query_is_said_in_its_own_words_without_secrets(
    prometheus, open_backend, request_2s_100ms, raw, tmp_path, how
):
    """A check asks what a reading asks, so a server that refuses the one refuses the other."""
    backend = open_backend(**secret(tmp_path, how))
    error = 'no regular expression is taken for a metric\'s name, got {namespace=~"other"} of s3cret, bWU6czNjcmV0.'
    prometheus.raw = raw(400, json.dumps({"status": "error", "errorType": "bad_data", "error": error}).encode())
    said = await reason(backend, request_2s_100ms)
    assert said.startswith("Prometheus backend 'default' answered HTTP 400 (bad_data): no regular expression is taken")
    assert "other" not in said
    assert how == "nothing" or ("s3cret" not in said and (how != "basic" or "bWU6" not in said))
    assert await backend.check() == Unknown(said)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "the query returns 0 series, not 1; where its series ends add `or 0 * max(EXPORTER_up == 1)`"),
        (["1", "2"], "the query returns 2 series, not 1; sum() makes one of several"),
        (["NaN"], "the query returns nan, not a number from 0 on"),
        (["-1"], "the query returns -1, not a number from 0 on"),
        (["+Inf"], "the query returns inf, not a number from 0 on"),
    ],
)
async def test_a_backlog_that_is_no_number_is_unknown_and_says_why(prometheus, backend, values, said):
    prometheus.rows = [{"metric": {"queue": value}, "value": [NOW, value]} for value in values]
    assert await backend.number("queue") == Unknown(said)
    prometheus.rows = [{"metric": {}, "value": [NOW, "12"]}]
    assert await backend.number("queue") == 12.0


SHAPE = 'the query returns no bucket le="+Inf"; it must be as `sum by (le) (NAME_bucket{...})`'
SEVERAL = "the query returns several series for a bucket, or more than 1,000 buckets; sum by (le) makes one"
GROWS = "the query returns buckets whose counts are no numbers from 0 on that grow with le"


@pytest.mark.parametrize(
    ("buckets", "said"),
    [
        ([], SHAPE),
        ([(None, "7")], SHAPE),
        ([*((str(n), "1") for n in range(1_000)), ("+Inf", "1")], SEVERAL),
        ([("0", "1"), ("3600000", "2")], SHAPE),
        ([("0", "1"), ("3600000", "2"), ("+Inf", "2"), ("+Inf", "5")], SEVERAL),
        ([("0", "1"), ("3600000", "NaN"), ("+Inf", "2")], GROWS),
        ([("0", "-1"), ("3600000", "1"), ("+Inf", "2")], GROWS),
        ([("0", "3"), ("3600000", "2"), ("+Inf", "3")], GROWS),
        ([("0", "0"), ("3600", "1"), ("+Inf", "2")], "the buckets end at 3.6 s, not at 5m to 8784h; check unit"),
        ([("0", "0"), ("3600000", "0"), ("+Inf", "0")], "its buckets are empty: all is due after the last one, or "),
    ],
)
async def test_time_left_that_cannot_be_used_is_unknown_and_says_why(prometheus, backend, buckets, said):
    prometheus.rows = [{"metric": {"le": le} if le else {}, "value": [NOW, count]} for le, count in buckets]
    assert (await backend.time_left("left", 1000.0)).reason.startswith(said)


async def test_a_request_is_due_as_soon_as_its_bucket_allows_and_what_is_late_is_late(prometheus, backend):
    counts = {"-Inf": "1", "1000.0": "2", "3.6e+06": "2", "+Inf": "9"}
    prometheus.rows = [{"metric": {"le": le}, "value": [NOW, count]} for le, count in counts.items()]
    assert await backend.time_left("left", 1000.0) == ((0.0, 1.0), (1.0, 2.0), (1.0, 2.0), (3600.0, 9.0))
    prometheus.beside = {"warnings": ["a store did not answer"]}
    assert isinstance(await backend.time_left("left", 1000.0), Unknown)
