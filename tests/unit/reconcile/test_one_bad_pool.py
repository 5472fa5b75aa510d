"""One bad pool does not stop the others."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster.errors import ClusterError, NotFound, Unanswered
from servingpool.gpubudget import budgets
from servingpool.loop import backfill
from servingpool.reconcile.plan import pool_plan

from .fake_cluster import FakeCluster, stamp

ONE_MINUTE = 1.0


class TestOneBadPoolDoesNotStopTheOthers:
    """Whatever is wrong with it."""

    def two(self, **spec: Any) -> FakeCluster:
        world = FakeCluster(history=3600.0)
        world.serve(rate=6.0)
        world.serve("bad", rate=6.0, model="bad-model")
        world.pool("good")
        world.pool("bad", **{"target": "bad", "model": "bad-model"} | spec)
        return world

    def test_a_wrong_spec(self) -> None:
        world = self.two(slo={"timeToFirstToken": "20m"})
        done = world.step(minutes=ONE_MINUTE)
        assert (done.decided, done.failed) == (1, 0)
        assert world.condition("Ready", "bad") == ("False", "InvalidSpec")
        assert world.message("Ready", "bad") == (
            "Invalid spec, so replicas stay as they are: spec.slo.timeToFirstToken: must be 1ms to 10m, got 20m"
        )
        assert world.writes.reasons("bad") == ["InvalidSpec"]
        assert world.condition("Ready", "good") == ("True", "SucceededGetScale")

    def test_a_defect_in_deciding(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        world = self.two()
        decide_stages = pool_plan.decide_stages  # type: ignore[attr-defined]

        def failing(stages: Any, *args: Any) -> Any:
            if any(replica.name.startswith("bad") for stage in stages for replica in stage.observation.ready):
                raise ZeroDivisionError("secret")
            return decide_stages(stages, *args)

        monkeypatch.setattr(pool_plan, "decide_stages", failing)
        done = world.step(minutes=ONE_MINUTE)
        assert (done.decided, done.failed) == (1, 1)
        assert world.condition("Ready", "bad") == ("False", "InternalError")
        assert "ZeroDivisionError" in world.message("Ready", "bad")
        assert "secret" not in world.message("Ready", "bad")
        assert "Traceback" in caplog.text
        assert world.condition("Ready", "good") == ("True", "SucceededGetScale")

    def test_a_defect_in_learning_from_the_past(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = self.two()
        world.remember(minutes=30)
        learn = backfill.learn  # type: ignore[attr-defined]

        def failing(observation: Any, *args: Any) -> Any:
            if any(replica.name.startswith("bad") for replica in observation.ready):
                raise ZeroDivisionError
            return learn(observation, *args)

        monkeypatch.setattr(backfill, "learn", failing)
        assert world.step().decided == 2
        assert world.state("good").memory.profile.learned > 1000
        assert "Traceback" in caplog.text

    def test_a_defect_in_reading(self, caplog: pytest.LogCaptureFixture) -> None:
        world = self.two()
        world.prometheus.broken = KeyError("le")
        assert world.step().decided == 2
        assert world.condition("MetricsAvailable", "good") == ("False", "FailedGetMetrics")
        assert "Traceback" in caplog.text

    def test_a_status_that_the_api_server_refuses(self, caplog: pytest.LogCaptureFixture) -> None:
        world = self.two()
        world.step(minutes=ONE_MINUTE)
        world.writes.refuse["status"] = ClusterError("Cannot write the status: 500")
        world.services["vllm"].rate = 30.0
        world.step(minutes=5)
        assert world.writes.scales != [], "scaling does not depend on telling"
        assert world.failures["status"] > 0
        world.writes.refuse.clear()
        world.step()
        ordered = [after for target, _, after in world.writes.scales if target[1] == "vllm"]
        assert world.status("good")["desiredReplicas"] == ordered[-1]

    @pytest.mark.parametrize("lost", [Unanswered("the API server did not answer"), TimeoutError("the tick is over")])
    def test_a_status_that_was_written_and_whose_answer_was_lost(
        self, monkeypatch: pytest.MonkeyPatch, lost: Exception
    ) -> None:
        world = self.two()
        world.step(minutes=ONE_MINUTE)
        write = world.write_status

        async def lossy(pool: Any, changes: Any) -> None:
            await write(pool, changes)
            raise lost

        with monkeypatch.context() as slow:
            slow.setattr(world, "write_status", lossy)
            world.autoscaler("HorizontalPodAutoscaler")
            world.step()
            assert world.condition("Ready", "good") == ("False", "OwnedByHPA")
        world.autoscaler("HorizontalPodAutoscaler", gone=True)
        world.state("good").written_at = world.now  # no figure is due
        world.step()
        assert world.condition("Ready", "good") == ("True", "SucceededGetScale")
        written = len(world.writes.statuses)
        world.step()
        assert len(world.writes.statuses) == written, "what is known again is not said again"

    def test_a_pool_deleted_before_its_status_is_written(self, caplog: pytest.LogCaptureFixture) -> None:
        world = self.two()
        world.writes.refuse["status"] = NotFound("404")
        assert world.step().failed == 0
        assert caplog.records == []

    def test_events_that_are_lost(self) -> None:
        world = self.two(slo={})
        world.writes.refuse["event"] = ClusterError("500")
        world.step(minutes=ONE_MINUTE)
        assert world.condition("Ready", "bad") == ("False", "InvalidSpec")

    @pytest.mark.parametrize("defect", ["wanted_by", "within", "share"])
    def test_a_defect_in_sharing_gpus(
        self, defect: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = self.two()
        meta = {"name": "h100", "uid": "h100", "generation": 1, "creationTimestamp": stamp(0.0)}
        world.cache.see_budget({"metadata": meta, "spec": {"gpus": 40}}, gone=False)
        world.step(minutes=ONE_MINUTE)
        whole = getattr(budgets, defect)

        def failing(plan: Any, *args: Any, **more: Any) -> Any:
            if "bad" in repr(plan) or defect == "share":
                raise ZeroDivisionError
            return whole(plan, *args, **more)

        monkeypatch.setattr(budgets, defect, failing)
        done = world.step()
        assert (done.decided, done.failed) == ((2, 0) if defect == "share" else (1, 1))
        assert world.condition("Ready", "bad")[1] == ("SucceededGetScale" if defect == "share" else "InternalError")
        assert world.condition("Ready", "good") == ("True", "SucceededGetScale")
        assert "Traceback" in caplog.text

    @pytest.mark.parametrize("spec", [None, 5])
    def test_a_pool_without_a_spec_beside_a_budget(self, spec: Any) -> None:
        """A looser CRD lets it through."""
        world = self.two()
        meta = {"name": "h100", "uid": "h100", "generation": 1, "creationTimestamp": stamp(0.0)}
        world.cache.see_budget({"metadata": meta, "spec": {"gpus": 40}}, gone=False)
        world.cache.see_pool({**world.cache.pools["chat", "bad"], "spec": spec}, gone=False)
        assert world.step().decided == 1
        assert world.condition("Ready", "good") == ("True", "SucceededGetScale")
