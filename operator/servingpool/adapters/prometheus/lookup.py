"""The look-up: which buckets there are, and which pods have series that cannot be read as they stand.

It counts over all series, so it is asked now and then, and its answer is used for each reading until the next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from servingpool.adapters.prometheus.promql import ADDRESS, SCRAPING, Queries, Scope, any_of, apart, quote
from servingpool.adapters.prometheus.rows import MOST_BUCKETS, NUMBER, Unread, bound_of
from servingpool.adapters.prometheus.samples import BucketCount, Layout

DOUBLED = "doubled"
"""Label value of the rows on pods whose series Prometheus has from several addresses."""
NATIVE = "native"
"""Label value of the rows on pods whose histograms are stored as native histograms only."""
UNREADABLE = "unreadable"
"""Label value of the rows on buckets whose bound is no number."""
TWINS = "twins"
"""Label value of the rows that are `up` of several targets at one address."""
OWN = "own"
"""Label value of the rows on namespaces where a label is an engine's own, and the name of the label that says which."""
TARGETS = "targets"
"""The part of the row that is there where there is `up` at all."""
MOST_UNREADABLE = 3
"""Series with an unreadable bucket that are named, of each namespace."""
MOST_LEARNED = 12
"""Labels by which targets are told apart, beside their address."""
MOST_APART = 8
"""Sets of labels by which namespaces are read that have one of the others' labels themselves. Each costs a query.

Namespaces of further sets are read together, without any label that one of them has: copies that no label is left to
tell apart are named as ambiguous, and none is counted by a label of its engine's own.
"""
MOST_TWINS = 2
"""Addresses of each namespace of which all `up` are asked for, to learn which labels tell their targets apart."""


class Found(NamedTuple):
    """What a look-up found. Nothing of one namespace changes how another is read."""

    layout: Layout
    learned: Mapping[str, int]
    """Labels by which targets are told apart beside their address, each with the namespaces that need it. They are used
    (`Layout.targets`) once it is known whose own they are."""
    apart: Mapping[tuple[str, ...], Sequence[str]]
    """Namespaces where others' labels are an engine's own, whose series are added up, by the labels that are left."""


def look_up(queries: Queries, scope: Scope, targets: Sequence[str], window: str = "") -> str:
    """How many series there are of each bucket: (`__name__`, `le`, namespace) -> count. And rows of the other parts.

    `targets`: the labels by which targets are told apart so far. With a window, such as `1h:5m`: rows of what was there
    at any of its steps too, and only buckets and targets.
    """
    series = queries.select([f"{name}_bucket" for name in queries.histograms], scope)
    parts = [_counts(queries, series)]
    if window:
        past = " or ".join(f"last_over_time({one}[{window}])" for one in series)
        parts.append(apart(_counts(queries, [past]), "past"))
    else:
        parts += [apart(_native(queries, scope), NATIVE), apart(_unreadable(queries, scope), UNREADABLE)]
        # Of a federation `instance` is the federated server's.
        parts += [] if queries.labels.exported else [apart(_doubled(queries, scope), DOUBLED)]
    return " or ".join([*parts, _targets(queries, scope, targets, window)])


def read(queries: Queries, rows: Iterable[Mapping[str, Any]], known: Mapping[str, int]) -> Found:
    """What the rows of a `look_up` say. Rows that cannot be read are in `Layout.unread`.

    `known`: what the look-ups just before it have learned.
    """
    unread = Unread(queries.owned[:2])
    apart_rows: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for part, row in unread.readable(rows, _parsed):
        apart_rows[part].append(row)
    counts = list(unread.readable(apart_rows["past"], lambda row: _bucket(queries, row)))
    pods = {
        part: frozenset(unread.readable(apart_rows[part], lambda row: queries.pod_of(row["metric"])))
        for part in (DOUBLED, NATIVE)
    }
    for row in apart_rows[UNREADABLE]:
        unread.add(row)
    targets = (*ADDRESS, *known)
    learned = _learned(queries, apart_rows[TWINS], targets) | Counter(known)
    # Those that scraping is known for first, then what most namespaces need: a tenant's many must not push them out.
    ranked = sorted(learned, key=lambda name: (name not in SCRAPING, -learned[name], name))[:MOST_LEARNED]
    own = {*unread.readable(apart_rows[OWN], lambda row: (_namespace(queries, row["metric"]), row["metric"][OWN]))}
    apart: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for namespace in sorted({namespace for namespace, _ in own}):
        apart[tuple(one for one in targets if (namespace, one) not in own)].append(namespace)
    sets = sorted(apart, key=lambda by: -len(apart[by]))
    shared = tuple(one for one in targets if all(one in by for by in sets[MOST_APART:]))
    most: dict[tuple[str, ...], list[str]] = {}
    for at, by in enumerate(sets):
        most.setdefault(by if at < MOST_APART else shared, []).extend(apart[by])
    if not apart_rows[TARGETS]:
        targets, most = tuple(dict.fromkeys((*targets, *SCRAPING))), {}
    layout = Layout.read(counts, pods[DOUBLED], native=pods[NATIVE], targets=targets, unread=unread)
    return Found(layout, {name: learned[name] for name in ranked}, most)


def _parsed(row: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """A row and its part; that of buckets is "past" whether they are there now or were."""
    labels = row["metric"]
    if not all(isinstance(text, str) for text in labels.values()):
        raise TypeError("a label that is no text")
    return labels.get("part", "past"), row


def _bucket(queries: Queries, row: Mapping[str, Any]) -> BucketCount:
    labels = row["metric"]
    name, text = labels["__name__"], labels["le"]
    bound_of(text)
    return BucketCount(name.removesuffix("_bucket"), text, float(row["value"][1]), _namespace(queries, labels))


def _namespace(queries: Queries, labels: Mapping[str, str]) -> str:
    namespace, own = queries.owned[0]
    return labels.get(own) or labels[namespace]


def _learned(queries: Queries, twins: Iterable[Mapping[str, Any]], targets: Sequence[str]) -> Counter[str]:
    """Further labels in which `up` at one address differ, each with the namespaces in which they do."""
    same: defaultdict[tuple[str, ...], list[Mapping[str, str]]] = defaultdict(list)
    for row in twins:
        labels = row["metric"]
        same[tuple(labels.get(one, "") for one in (*queries.owner, *targets))].append(labels)
    found = {
        (owner[0], name)
        for owner, alike in same.items()
        for name in set().union(*alike) - {"part", "__name__", *targets}
        if len({labels.get(name, "") for labels in alike}) > 1
    }
    return Counter(name for _, name in found)


def _targets(queries: Queries, scope: Scope, targets: Sequence[str], window: str) -> str:
    """`up` of some pods that several targets with equal values of these labels scrape; and whether there is any."""
    up = _up(queries, scope)
    if window:
        up = [f"last_over_time({one}[{window}])" for one in up]
    every, by, space = f"({' or '.join(up)})", ", ".join((*queries.owner, *targets)), _space(queries)
    alike = f"{every} and on ({by}) topk by ({space}) ({MOST_TWINS}, count by ({by}) ({every}) > 1)"
    parts = [apart(alike, TWINS), apart(f"count({every})", TARGETS)]
    return " or ".join([*parts, *(_own(queries, scope, one, every) for one in targets[2:])])


def _own(queries: Queries, scope: Scope, label: str, up: str) -> str:
    """Namespaces of series with a label that their target does not have: there it is the engine's."""
    names = [*queries.profile.gauges, *(f"{name}_count" for name in queries.histograms)]
    by = ", ".join((*queries.owner, *ADDRESS, label))
    series = queries.select(names, scope, f'{label}!=""')
    found = f"count by ({_space(queries)}) (({' or '.join(series)}) unless on ({by}) {up})"
    return apart(f'label_replace({found}, "{OWN}", "{label}", "", "")', OWN)


def _up(queries: Queries, scope: Scope) -> list[str]:
    """Query whether scraping works for all targets that may be of the scope."""
    (namespaces, (pod, _), _) = queries.owned
    if not scope.namespaces:
        return [f'up{{{pod}!=""}}']
    return [f"up{{{label}=~{any_of(scope.namespaces)}}}" for label in namespaces if label]


def _native(queries: Queries, scope: Scope) -> str:
    """Pods with histograms that have no series of their own for sum, count and buckets."""
    native, classic = (
        queries.select([f"{name}{suffix}" for name in queries.histograms], scope) for suffix in ("", "_count")
    )
    by = ", ".join(queries.owner)
    return f"count by ({by}) ({' or '.join(native)}) unless on ({by}) ({' or '.join(classic)})"


def _unreadable(queries: Queries, scope: Scope) -> str:
    """Buckets whose bound is no number, or that have none."""
    by = ", ".join(("__name__", "le", *queries.owner))
    series = queries.select([f"{name}_bucket" for name in queries.histograms], scope, f"le!~{quote(NUMBER)}")
    return f"topk by ({_space(queries)}) ({MOST_UNREADABLE}, count by ({by}) ({' or '.join(series)}))"


def _counts(queries: Queries, series: Sequence[str]) -> str:
    """Query on the buckets of most pods in each namespace: a page may have a hundred thousand."""
    space = _space(queries)
    return f"topk by (__name__, {space}) ({MOST_BUCKETS}, count by (__name__, le, {space}) ({' or '.join(series)}))"


def _space(queries: Queries) -> str:
    """The labels of the namespace."""
    return ", ".join(label for label in queries.owned[0] if label)


def _doubled(queries: Queries, scope: Scope) -> str:
    """Pods with the same series at several addresses."""
    by = queries.by(*queries.own())
    addresses = f"max by ({by}, instance) ({' or '.join(queries.clock(scope))})"
    return f"count by ({queries.by()}) (count by ({by}) ({addresses}) > 1)"
