"""adopt and release, as a person types them, in a cluster on virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from typer.main import get_command

from servingpool.adapters.cluster.autoscaling import PAUSED, PAUSED_REPLICAS
from servingpool.adapters.cluster.handover import KEPT
from servingpool.adapters.cluster.pools import Pools
from servingpool.cli import handover
from servingpool.cli.main import app

from .handover_world import (
    DEPLOYMENTS,
    GROUP_SETS,
    HPAS,
    OPERATOR,
    POOLS,
    SCALED_OBJECTS,
    Killed,
    World,
    hpa,
    pool,
    scaled_object,
)

Make = Callable[..., World]
COMMAND = get_command(app)
"""Built once: it takes as long as a hand-over."""


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """A cluster whose operator has looked at the pool once; it is what the commands see."""

    def made(*, of: dict[str, Any] | None = None, hpas: Any = (), objects: Any = (), **given: Any) -> World:
        world = World(**given)
        world.put(POOLS, of or pool())
        for raw in hpas:
            world.put(HPAS, raw)
        for raw in objects:
            world.put(SCALED_OBJECTS, raw)
        world.passes(60)
        world.writes.clear()
        world.unbounded = 0.0
        monkeypatch.setattr(Pools, "connect", lambda *_: world)
        monkeypatch.setattr(handover, "time", world)
        return world

    return made


def run(*arguments: str, answers: str = "") -> Result:
    result = CliRunner().invoke(COMMAND, arguments, input=answers)  # type: ignore[arg-type]  # typer's own copy of click
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def killed(world: World, after: int, *arguments: str) -> bool:
    """Whether the command was killed after so many requests and waits; else it has ended by itself, well."""
    world.events_left = after
    try:
        assert run(*arguments).exit_code == 0
    except Killed:
        return True
    finally:
        world.events_left = None
    return False


def keda(*_: object) -> dict[str, Any]:
    return {"objects": [scaled_object()], "wanted": 6, "other_wants": 4}


def beside_hpa(*_: object) -> dict[str, Any]:
    return {"hpas": [hpa()], "wanted": 6, "other_wants": 4}


def test_from_an_hpa_to_auto_and_back(make: Make) -> None:
    world = make(hpas=[hpa()])
    before = world.objects[f"{HPAS}/qwen"]
    adopted = run("adopt", "qwen", "--yes")
    assert adopted.exit_code == 0, adopted.stderr
    assert world.all(HPAS) == []
    assert world.pool["spec"]["mode"] == "Auto"
    assert [line.split()[0] for line in adopted.stdout.splitlines() if line.startswith("  1")] == ["1.", "1."]
    assert "HorizontalPodAutoscaler 'qwen' (2 to 12)" in adopted.stdout
    assert "Auto would keep the 4 replicas." in adopted.stdout
    assert "2m in Auto: 4 -> 4 replicas." in adopted.stdout
    assert adopted.stdout.splitlines()[-1] == "Done."

    released = run("release", "qwen", "--yes")
    assert released.exit_code == 0, released.stderr
    after = world.objects[f"{HPAS}/qwen"]
    assert world.pool["spec"]["mode"] == "Recommend"
    assert world.pool["metadata"]["annotations"] == {}
    assert after["spec"] == before["spec"]
    for name in ("labels", "annotations", "name"):
        assert after["metadata"][name] == before["metadata"][name]
    assert "managedFields" not in after["metadata"], "the API server's own"
    assert world.unbounded <= 20.0, "while the operator observes the mode"


def test_groups_of_pods_are_handed_over_as_a_deployment_is(make: Make) -> None:
    sort = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    raw = hpa()
    raw["spec"]["scaleTargetRef"] |= sort
    world = make(of=pool(**sort), hpas=[raw], target=GROUP_SETS, wanted=6)
    adopted = run("adopt", "qwen", "--yes", "--accept")
    assert adopted.exit_code == 0, adopted.output
    assert "LeaderWorkerSet qwen has 4 replicas, scaled by HorizontalPodAutoscaler 'qwen' (2 to 12)." in adopted.stdout
    assert (world.replicas, world.all(HPAS)) == (6, [])
    assert run("release", "qwen", "--yes").exit_code == 0
    assert world.all(HPAS)[0]["spec"] == raw["spec"]


def test_a_pool_of_several_targets_is_not_handed_over(make: Make) -> None:
    of = pool()
    of["spec"]["targets"].append({"name": "spot", "max": 4})
    world = make(of=of, hpas=[hpa()])
    refused = run("adopt", "qwen", "--yes")
    assert refused.exit_code == 3
    assert "The pool has several targets, and adopt hands over one." in refused.stderr
    assert world.all(HPAS), "nothing was changed"


def test_an_hpa_of_another_kind_of_that_name_is_no_autoscaler_of_the_target(make: Make) -> None:
    raw = hpa()
    raw["spec"]["scaleTargetRef"]["kind"] = "StatefulSet"
    make(hpas=[raw])
    refused = run("adopt", "qwen", "--yes")
    assert (refused.exit_code, "scales StatefulSet qwen, not Deployment qwen." in refused.stderr) == (3, True)


def of_batch(world: World, **conditions: tuple[str, str, str]) -> None:
    world.pool["spec"]["batch"] = {}
    world.conditions.update(Calibrating=("True", "Learning", "Learning."), **conditions)


def test_keda_of_a_batch_that_sleeps_is_paused_and_has_its_annotations_back_afterwards(make: Make) -> None:
    world = make(**keda())
    of_batch(world, SLOMet=("True", "DeadlinesHold", "0 wait."), MetricsAvailable=("Unknown", "NoReadyReplicas", "No."))
    world.passes(15)
    assert [raw["metadata"]["name"] for raw in world.all(HPAS)] == ["keda-hpa-qwen"]
    adopted = run("adopt", "qwen", "--yes", "--accept")
    assert adopted.exit_code == 0, adopted.stderr
    doubts = [line.split()[1] for line in adopted.stdout.splitlines() if line.split()[:1] == ["doubt"]]
    assert doubts == ["first"], "neither what it has not learned nor that no replica is ready"
    assert world.objects[f"{SCALED_OBJECTS}/qwen"]["metadata"]["annotations"] == {PAUSED: "true"}
    assert world.all(HPAS) == []
    assert (world.replicas, world.writers, world.unbounded) == (6, ["operator"], 0.0)
    assert run("release", "qwen", "--yes").exit_code == 0
    assert world.objects[f"{SCALED_OBJECTS}/qwen"]["metadata"]["annotations"] == {}
    world.passes(30)
    assert (world.replicas, world.writers) == (4, ["operator", "hpa"])


def test_a_pause_with_a_number_comes_back_with_it(make: Make) -> None:
    world = make(objects=[scaled_object(**{PAUSED_REPLICAS: "4"})], keda_runs=False)
    world.keda_runs = True
    assert run("adopt", "qwen", "--yes", "--accept").exit_code == 0
    raw = world.objects[f"{SCALED_OBJECTS}/qwen"]
    assert raw["metadata"]["annotations"] == {PAUSED: "true"}
    assert run("release", "qwen", "--yes").exit_code == 0
    assert world.objects[f"{SCALED_OBJECTS}/qwen"]["metadata"]["annotations"] == {PAUSED_REPLICAS: "4"}


@pytest.mark.parametrize("way", ["adopt", "release"])
@pytest.mark.parametrize("beside", [beside_hpa, keda])
def test_a_hand_over_that_is_killed_anywhere_goes_on_at_the_next_call(
    make: Make, beside: Callable[..., Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "POLL", 5.0)
    adopt, release = ("adopt", "qwen", "--yes", "--accept", "--no-watch"), ("release", "qwen", "--yes")
    command = adopt if way == "adopt" else release
    after, interrupted = 0, True
    while interrupted:
        after += 1
        world = make(**beside())
        if way == "release":
            assert run(*adopt).exit_code == 0
            world.passes(30)
        interrupted = killed(world, after, *command)
        world.passes(45)
        again = run(*command)
        assert again.exit_code == 0, (after, again.output)
        if way == "adopt":
            assert (world.pool["spec"]["mode"], world.all(HPAS)) == ("Auto", []), after
            world.passes(45)
            assert (world.replicas, world.writers, world.both, world.unbounded) == (6, ["operator"], 0, 0.0), after
            assert run(*release).exit_code == 0
            assert PAUSED not in json.dumps(world.all(SCALED_OBJECTS)), after
        else:
            world.passes(45)
            assert (world.replicas, world.writers, world.both) == (4, ["operator", "hpa"], 0), after
        assert (world.pool["spec"]["mode"], world.pool["metadata"]["annotations"]) == ("Recommend", {}), after
        assert len(world.all(HPAS)) == 1, after
    assert after > 15, "each request and each wait was the last one once"


@pytest.mark.parametrize(("wait", "both"), [("--wait", 0), ("--no-wait", 1)])
def test_release_waits_for_what_the_operator_has_under_way(make: Make, wait: str, both: int) -> None:
    """A look that it has begun in Auto ends in a scale seconds later."""
    world = make(**beside_hpa())
    assert run("adopt", "qwen", "--yes", "--accept").exit_code == 0
    world.wanted = 8
    while world.now % OPERATOR != 8.0:
        world.passes(1)
    assert run("release", "qwen", "--yes", wait).exit_code == 0
    world.passes(30)
    assert (world.both, world.replicas) == (both, 4)


def test_a_release_that_was_cut_off_may_turn_into_an_adoption_again(make: Make) -> None:
    world = make(**beside_hpa())
    assert run("adopt", "qwen", "--yes", "--accept").exit_code == 0
    assert killed(world, 7, "release", "qwen", "--yes")
    assert (world.pool["spec"]["mode"], world.all(HPAS)) == ("Recommend", [])
    world.passes(30)
    assert run("adopt", "qwen", "--yes", "--accept").exit_code == 0
    assert world.pool["spec"]["mode"] == "Auto"
    assert run("release", "qwen", "--yes").exit_code == 0
    assert len(world.all(HPAS)) == 1


def test_a_dry_run_changes_nothing(make: Make) -> None:
    world = make(hpas=[hpa()])
    stored = json.dumps(world.objects)
    shown = run("adopt", "qwen", "--dry-run")
    assert shown.exit_code == 0
    assert "3. Delete HorizontalPodAutoscaler 'qwen', and wait until it is gone." in shown.stdout
    assert json.dumps(world.objects) == stored
    world.wanted = 2
    world.passes(15)
    assert run("adopt", "qwen", "--dry-run").exit_code == 3, "there is something to accept"


def test_each_step_is_asked_about(make: Make) -> None:
    world = make(hpas=[hpa()])
    assert run("adopt", "qwen", answers="y\nn\n").stderr.endswith(
        "Stopped. Steps done: 1. Run the command again to go on.\n"
    )
    assert json.loads(world.pool["metadata"]["annotations"][KEPT])["metadata"]["name"] == "qwen"
    assert world.pool["spec"]["mode"] == "Recommend"
    refused = run("adopt", "qwen", answers="")
    assert (refused.exit_code, "Give --yes where nobody can answer." in refused.stderr) == (3, True)
    assert run("adopt", "qwen", answers="y\ny\ny\ny\n").exit_code == 0
    assert world.pool["spec"]["mode"] == "Auto"


def test_a_first_answer_that_differs_has_to_be_accepted(make: Make) -> None:
    world = make(hpas=[hpa()], wanted=2)
    refused = run("adopt", "qwen", "--yes")
    assert refused.exit_code == 3
    assert "Auto would change 4 replicas to 2 at once. 2 cover the forecast." in refused.stdout
    assert "Nothing was changed. The check has 1 doubt: accept with --accept." in refused.stderr
    assert "annotations" not in world.pool["metadata"]
    assert run("adopt", "qwen", answers="y\n" * 5).exit_code == 0
    assert (world.replicas, world.writers) == (2, ["operator"])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda w: w.conditions.update(DrainReady=("False", "NoPreStop", "No preStop hook.")), "drain"),
        (lambda w: w.conditions.update(MetricsAvailable=("False", "NotScraped", "Not scraped.")), "metrics"),
        (lambda w: w.conditions.update(Calibrating=("True", "Learning", "Learning.")), "calibration"),
        (lambda w: of_batch(w, SLOMet=("Unknown", "BacklogUnknown", "The query returns 0 series.")), "work"),
        (lambda w: w.pool["spec"]["targets"][0].update(max=8), "bounds"),
        (lambda w: w.all(HPAS)[0]["metadata"]["annotations"].update({"meta.helm.sh/release-name": "chat"}), "owners"),
        (lambda w: w.all(DEPLOYMENTS)[0]["metadata"].update(managedFields=[by("argocd-controller")]), "owners"),
        (lambda w: w.all(DEPLOYMENTS)[0]["metadata"].update(annotations=applied()), "owners"),
    ],
)
def test_what_could_go_wrong_is_a_doubt_that_has_to_be_accepted(
    make: Make, spoil: Callable[[World], object], said: str
) -> None:
    world = make(hpas=[hpa()])
    spoil(world)
    world.passes(15)
    refused = run("adopt", "qwen", "--yes")
    assert refused.exit_code == 3
    assert any(line.split()[:2] == ["doubt", said] for line in refused.stdout.splitlines()), refused.stdout
    assert len(world.all(HPAS)) == 1
    assert run("adopt", "qwen", "--yes", "--accept").exit_code == 0


@pytest.mark.parametrize(("low", "level"), [(0, "ok"), (2, "doubt")])
def test_a_fleet_that_went_to_zero_is_a_doubt_unless_the_pool_may_too(make: Make, low: int, level: str) -> None:
    world = make(hpas=[hpa(low=0)])
    world.pool["spec"]["targets"][0].update(min=low, max=12)
    world.passes(15)
    shown = run("adopt", "qwen", "--dry-run").stdout
    [line] = [line for line in shown.splitlines() if line.split()[1:2] == ["bounds"]]
    assert line.split()[0] == level
    assert ("Auto keeps 2. For 0, set min: 0, which needs a gateway." in line) == (low == 2)


@pytest.mark.parametrize(
    ("own", "level"), [((2, 12), "doubt"), ((1, 8), "doubt"), (None, "ok")], ids=["now", "later", "no schedule"]
)
def test_bounds_of_a_schedule_in_force_are_what_is_compared(
    make: Make, own: tuple[int, int] | None, level: str
) -> None:
    world = make(hpas=[hpa()])
    low, high = own or (2, 12)
    world.pool["spec"]["targets"][0].update(min=low, max=high)
    world.passes(15)
    scheduled = {"min": 1, "max": 4 if high == 12 else 20, "schedule": "night"}
    world.pool["status"]["bounds"] = scheduled if own else {"min": 2, "max": 12}
    shown = run("adopt", "qwen", "--dry-run").stdout
    [line] = [line for line in shown.splitlines() if line.split()[1:2] == ["bounds"]]
    assert line.split()[0] == level
    assert (f"by schedule 'night' are 1 to {scheduled['max']}." in line) == (own is not None)


def by(manager: str, **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}, **more}


def applied() -> dict[str, str]:
    return {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": {"replicas": 4}})}


OF_ANOTHER = json.dumps(
    hpa() | {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "payments"}, "maxReplicas": 9}}
)
FOREIGN = json.dumps({"kind": "ScaledObject", "metadata": {"name": "payments", "annotations": {}}})
ODD = ["{", "[" * 100_000, "[]", '{"kind": "Secret", "metadata": {"name": "x"}}', "{}", OF_ANOTHER, FOREIGN]


@pytest.mark.parametrize("kept", ODD)
def test_what_somebody_else_wrote_in_place_of_the_copy_is_refused(make: Make, kept: str) -> None:
    world = make(hpas=[hpa()], objects=[{**scaled_object(), **json.loads(FOREIGN), "spec": {}}], keda_runs=False)
    world.pool["metadata"]["annotations"] = {KEPT: kept}
    for command in ("adopt", "release"):
        refused = run(command, "qwen", "--yes")
        assert refused.exit_code == 1, refused.output
        assert f"annotation {KEPT} holds no copy of an autoscaler" in refused.stderr
    assert world.all(HPAS), "nothing was changed"


def test_an_annotation_that_is_nested_without_end_sets_no_replicas(make: Make) -> None:
    world = make(hpas=[hpa()])
    deep = '{"spec":' * 20_000
    world.all(DEPLOYMENTS)[0]["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": deep}
    fields = {"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    world.all(DEPLOYMENTS)[0]["metadata"]["managedFields"] = [fields]
    shown = run("adopt", "qwen", "--dry-run")
    assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception


def test_who_scales_or_edits_by_hand_is_no_owner_of_the_number(make: Make) -> None:
    world = make(hpas=[hpa()])
    fields = [by("kubectl-edit"), by("kubectl", subresource="scale"), by("kube-controller-manager")]
    world.all(DEPLOYMENTS)[0]["metadata"]["managedFields"] = fields
    shown = run("adopt", "qwen", "--dry-run")
    assert shown.exit_code == 0
    assert "No manifest sets the replicas" in shown.stdout


def test_release_says_how_a_manifest_takes_the_number_back(make: Make) -> None:
    world = make(hpas=[hpa()])
    assert run("adopt", "qwen", "--yes").exit_code == 0
    world.all(DEPLOYMENTS)[0]["metadata"]["managedFields"] = [by("servingpool-operator", subresource="scale")]
    shown = run("release", "qwen", "--dry-run")
    assert "servingpool-operator owns spec.replicas" in shown.stdout
    assert "--force-conflicts" in shown.stdout


@pytest.mark.parametrize(
    ("plural", "said"),
    [
        (
            DEPLOYMENTS,
            "Argo CD application 'chat' manages Deployment qwen. Make sure that its manifest sets no replicas",
        ),
        (SCALED_OBJECTS, "manages ScaledObject 'qwen'. Its manifest must not set the annotation that pauses it."),
        (POOLS, "manages the pool and may set its mode back. Write mode: Auto there too."),
    ],
)
def test_what_git_manages_is_named_without_a_doubt(make: Make, plural: str, said: str) -> None:
    world = make(objects=[scaled_object()])
    tracked = {"argocd.argoproj.io/tracking-id": "chat:apps/Deployment:chat/qwen"}
    world.all(plural)[0]["metadata"].setdefault("annotations", {}).update(tracked)
    shown = run("adopt", "qwen", "--dry-run")
    assert (shown.exit_code, said in shown.stdout) == (0, True), shown.stdout


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"of": pool("Paused"), "hpas": [hpa()]}, 3, "The pool is Paused."),
        ({"hpas": [hpa(), hpa("second")]}, 3, "all scale Deployment qwen. Delete all but one first."),
        ({"hpas": [hpa(target="llama")]}, 3, "scales Deployment llama, not Deployment qwen."),
        ({"hpas": [hpa()], "forbidden": {"delete horizontalpodautoscalers"}}, 3, "You may not delete horizontal"),
        ({"hpas": [hpa()], "operator_runs": False}, 3, "is it running?"),
        ({"objects": [scaled_object()], "refuse_all_of_keda": True}, 4, "403"),
    ],
)
def test_what_cannot_be_adopted_says_why_and_nothing_is_changed(
    make: Make, given: dict[str, Any], code: int, said: str
) -> None:
    world = make(**given)
    stored = json.dumps(world.objects)
    refused = run("adopt", "qwen", "--yes", "--accept")
    assert (refused.exit_code, said in refused.output) == (code, True), refused.output
    assert json.dumps(world.objects) == stored


def test_an_hpa_that_a_controller_makes_is_not_deleted(make: Make) -> None:
    raw = hpa()
    raw["metadata"]["ownerReferences"] = [{"kind": "InferenceService", "name": "qwen", "controller": True}]
    make(hpas=[raw])
    refused = run("adopt", "qwen", "--yes")
    assert refused.exit_code == 3
    assert "InferenceService 'qwen' makes HorizontalPodAutoscaler 'qwen'" in refused.stderr


def test_no_such_pool_or_deployment(make: Make) -> None:
    world = make()
    assert run("adopt", "nobody", "--yes").exit_code == 1
    assert run("release", "nobody", "--yes").exit_code == 1
    del world.objects[f"{DEPLOYMENTS}/qwen"]
    assert run("adopt", "qwen", "--yes").exit_code == 1


def test_a_pool_in_auto_that_nobody_else_scales_is_adopted_already(make: Make) -> None:
    world = make(of=pool("Auto"))
    shown = run("adopt", "qwen", "--yes")
    assert shown.exit_code == 0
    assert shown.stdout.endswith("It is in mode Auto, and nothing else scales its target.\n")
    refused = run("release", "qwen", "--yes")
    assert (refused.exit_code, "No copy of an autoscaler is kept." in refused.stderr) == (3, True)
    assert world.pool["spec"]["mode"] == "Auto"


def test_a_fleet_without_an_autoscaler_is_set_to_auto(make: Make) -> None:
    world = make(refuse_all_of_keda=True, keda_installed=False)
    assert run("release", "qwen", "--yes").stdout.endswith("nothing to give back.\n")
    assert run("adopt", "qwen", "--yes").exit_code == 0
    assert world.pool["spec"]["mode"] == "Auto"


def test_nothing_is_removed_while_the_operator_does_not_stand_by(make: Make) -> None:
    world = make(hpas=[hpa()])
    world.operator_runs = False
    late = run("adopt", "qwen", "--yes")
    assert late.exit_code == 6
    assert "The operator's look at the new mode" in late.stderr
    assert len(world.all(HPAS)) == 1
    again = run("adopt", "qwen", "--yes")
    assert again.exit_code == 3
    world.operator_runs = True
    world.passes(15)
    world.operator_runs = False
    assert run("adopt", "qwen", "--yes").exit_code == 6, "a status of before proves no operator"
    assert len(world.all(HPAS)) == 1
    assert run("release", "qwen", "--yes").exit_code == 6
    assert run("release", "qwen", "--yes", "--no-wait").exit_code == 0
    assert world.pool["spec"]["mode"] == "Recommend"


def test_keda_that_does_not_run_keeps_scaling_and_the_operator_stands_by(make: Make) -> None:
    world = make(**keda())
    world.keda_runs = False
    late = run("adopt", "qwen", "--yes", "--accept")
    assert late.exit_code == 6
    assert "KEDA's pause" in late.stderr
    world.passes(60)
    assert world.writers == []
    world.keda_runs = True
    assert run("adopt", "qwen", "--yes", "--accept").exit_code == 0
    assert world.writers == ["operator"]


def test_an_hpa_that_comes_back_is_named_and_the_operator_stops(make: Make) -> None:
    world = make(**beside_hpa())
    world.respawn = hpa()
    stopped = run("adopt", "qwen", "--yes", "--accept")
    assert stopped.exit_code == 3
    assert "The autoscaler is back, so the operator does not scale" in stopped.stderr
    world.passes(30)
    assert world.writers == ["operator", "hpa"], "never both at a time"


def test_an_hpa_that_changes_meanwhile_is_kept_as_it_was_deleted(make: Make) -> None:
    world = make(hpas=[hpa()])
    assert run("adopt", "qwen", answers="y\ny\nn\n").exit_code == 3
    world.all(HPAS)[0]["spec"]["maxReplicas"] = 20
    assert run("adopt", "qwen", "--yes", "--accept").exit_code == 0
    assert run("release", "qwen", "--yes").exit_code == 0
    assert world.all(HPAS)[0]["spec"]["maxReplicas"] == 20


@pytest.mark.parametrize("other", [{"name": "llama"}, {"kind": "StatefulSet"}, {"apiVersion": "example.com/v1"}])
def test_an_hpa_of_that_name_for_something_else_is_not_overwritten(make: Make, other: dict[str, str]) -> None:
    world = make(hpas=[hpa()])
    assert run("adopt", "qwen", "--yes").exit_code == 0
    raw = hpa()
    raw["spec"]["scaleTargetRef"] |= other
    world.put(HPAS, raw)
    refused = run("release", "qwen", "--yes")
    assert refused.exit_code == 3
    assert "exists and scales something else" in refused.stderr
    assert KEPT in world.pool["metadata"]["annotations"]
