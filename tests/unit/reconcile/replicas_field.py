"""`spec.replicas` of one object and who owns it, as a real API server keeps both.

Each rule is checked on both by `api_contract.py`. Two are easily believed to be otherwise: a Scale of 0 leaves the field
out, so nobody owns a number that a scale has set to 0; and while nobody owns the field, a scale records nobody either.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from servingpool.adapters.cluster.errors import Conflict
from servingpool.adapters.cluster.objects import FIELD_MANAGER

Owner = tuple[str, str, str | None]
"""Field manager, operation, subresource."""
SCALERS = (FIELD_MANAGER, "kube-controller-manager", "kubectl")
"""Programs that write through the scale subresource; others write the object."""


class ReplicasField:
    """The number, and its owners with the time at which each took it, in Unix seconds."""

    def __init__(self, replicas: int | None, by: str, at: float, *, applied: bool = False) -> None:
        """Create the object: by POST, or by server-side apply. Without a number it gets 1."""
        self.replicas, self.generation = 1 if replicas is None else replicas, 1
        self.owners: dict[Owner, float] = {}
        if replicas is not None or not applied:
            self.owners[by, "Apply" if applied else "Update", None] = at

    def write(self, replicas: int, by: str, at: float) -> None:
        """By the program, in the way in which it writes."""
        if by.startswith(SCALERS):
            self.scale(replicas, by, at)
        else:
            self.update(replicas, by, at)

    def scale(self, replicas: int, by: str, at: float) -> None:
        """A write of the scale subresource."""
        if replicas == self.replicas:
            return
        self.owners = {(by, "Update", "scale"): at} if self.owners and replicas else {}
        self._set(replicas)

    def update(self, replicas: int, by: str, at: float) -> None:
        """A write of the object."""
        if replicas == self.replicas:
            return
        self.owners = {(by, "Update", None): at}
        self._set(replicas)

    def apply(self, replicas: int | None, by: str, at: float, *, force: bool = False) -> None:
        """A server-side apply of a manifest with this number, or without one. Conflict as a real API server."""
        mine = (by, "Apply", None)
        others = self.owners.keys() - {mine}
        if replicas is None:
            if self.owners.pop(mine, None) is not None and not others:
                self._set(1)
            return
        if replicas != self.replicas:
            if others and not force:
                manager, _, subresource = min(others)
                where = f' with subresource "{subresource}"' if subresource else ""
                raise Conflict(f'Apply failed with 1 conflict: conflict with "{manager}"{where}: .spec.replicas')
            self.owners = {}
        self.owners.setdefault(mine, at)
        self._set(replicas)

    def managed_fields(self) -> list[dict[str, Any]]:
        """As the object's metadata has them."""
        return [
            {
                "manager": manager,
                "operation": operation,
                "time": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "fieldsV1": {"f:spec": {"f:replicas": {}}},
                **({} if subresource is None else {"subresource": subresource}),
            }
            for (manager, operation, subresource), at in self.owners.items()
        ]

    def scale_spec(self) -> dict[str, int]:
        """`spec` of the scale subresource."""
        return {"replicas": self.replicas} if self.replicas else {}

    def _set(self, replicas: int) -> None:
        self.generation += replicas != self.replicas
        self.replicas = replicas
