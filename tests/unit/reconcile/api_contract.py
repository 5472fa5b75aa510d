"""What the fake cluster says of a real API server, as tests that run on both.

`tests/unit/reconcile/test_api_contract.py` runs them on `ReplicasField`, `tests/integration/test_api_contract.py` on a
kube-apiserver. Each names the owners of `spec.replicas` after a few writes.
"""

from __future__ import annotations

from typing import Any, Protocol

import pytest

HELM, OURS, OTHER = "helm", "servingpool-operator", "kubectl-edit"
BY_SCALE = (OURS, "Update", "scale")
CONFLICT = f'conflict with "{OURS}" with subresource "scale"'
Owner = tuple[str, str, str | None]


class Object(Protocol):
    """One Deployment."""

    def create(self, replicas: int | None, by: str) -> None:
        """By POST."""

    def apply(self, replicas: int | None, by: str, *, force: bool = False) -> None:
        """By server-side apply; creates it where it is not there. Exception whose text has the API server's answer."""

    def update(self, replicas: int, by: str) -> None:
        """By a patch of the object."""

    def scale(self, replicas: int, by: str) -> None:
        """By a patch of the scale subresource."""

    def found(self) -> tuple[int, set[Owner]]:
        """`spec.replicas`, and who owns it."""

    def scale_spec(self) -> dict[str, Any]:
        """`spec` of the scale subresource."""


class ApiContract:
    """Subclasses give the fixture `thing`."""

    def test_a_scale_owns_the_number_that_somebody_owned(self, thing: Object) -> None:
        thing.create(2, HELM)
        assert thing.found() == (2, {(HELM, "Update", None)})
        thing.scale(3, OURS)
        assert thing.found() == (3, {BY_SCALE})
        thing.scale(3, "kubectl")
        assert thing.found() == (3, {BY_SCALE}), "the same number is no change"

    def test_nobody_owns_a_zero_that_a_scale_has_set_nor_what_scales_set_after_it(self, thing: Object) -> None:
        thing.create(2, HELM)
        thing.scale(3, OURS)
        thing.scale(0, OURS)
        assert thing.found() == (0, set())
        assert thing.scale_spec() == {}
        thing.scale(2, OURS)
        assert thing.found() == (2, set())
        assert thing.scale_spec() == {"replicas": 2}
        thing.update(4, OTHER)
        assert thing.found() == (4, {(OTHER, "Update", None)})
        thing.scale(5, OURS)
        assert thing.found() == (5, {BY_SCALE})

    def test_a_zero_that_an_update_has_set_is_owned(self, thing: Object) -> None:
        thing.create(1, HELM)
        thing.update(0, OTHER)
        assert thing.found() == (0, {(OTHER, "Update", None)})
        thing.scale(4, OURS)
        assert thing.found() == (4, {BY_SCALE})

    def test_without_a_number_it_has_one_replica_whose_creator_owns_it(self, thing: Object) -> None:
        thing.create(None, HELM)
        assert thing.found() == (1, {(HELM, "Update", None)})

    def test_a_manifest_applied_without_a_number_leaves_it_to_nobody_also_after_scales(self, thing: Object) -> None:
        thing.apply(None, HELM)
        assert thing.found() == (1, set())
        thing.scale(3, OURS)
        assert thing.found() == (3, set())
        thing.apply(1, HELM)
        assert thing.found() == (1, {(HELM, "Apply", None)}), "it is reset, and there is no conflict"

    def test_an_apply_of_another_number_than_a_scale_has_set_is_a_conflict_and_resets_nothing(
        self, thing: Object
    ) -> None:
        thing.apply(1, HELM)
        thing.scale(2, OURS)
        with pytest.raises(Exception, match=CONFLICT):
            thing.apply(1, HELM)
        assert thing.found() == (2, {BY_SCALE})

    def test_the_number_is_taken_back_by_force_and_let_go_of_by_leaving_it_out(self, thing: Object) -> None:
        thing.apply(1, HELM)
        thing.scale(6, OURS)
        thing.apply(6, HELM)
        assert thing.found() == (6, {BY_SCALE, (HELM, "Apply", None)}), "the same number is owned together"
        with pytest.raises(Exception, match=CONFLICT):
            thing.apply(5, HELM)
        thing.apply(5, HELM, force=True)
        assert thing.found() == (5, {(HELM, "Apply", None)})
        thing.scale(6, OURS)
        thing.apply(None, HELM)
        assert thing.found() == (6, {BY_SCALE}), "what an operator has set stays"

    def test_the_last_owner_who_leaves_it_out_resets_it_to_one(self, thing: Object) -> None:
        thing.apply(4, HELM)
        thing.apply(None, HELM)
        assert thing.found() == (1, set())

    def test_two_who_apply_the_same_number_both_own_it(self, thing: Object) -> None:
        thing.apply(2, HELM)
        thing.apply(2, "flux")
        thing.scale(2, OURS)
        thing.update(2, OTHER)
        assert thing.found() == (2, {(HELM, "Apply", None), ("flux", "Apply", None)})
