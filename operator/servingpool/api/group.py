"""Names under which the API server knows the resource."""

from __future__ import annotations

GROUP = "servingpool.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ServingPool"
SINGULAR = "servingpool"
PLURAL = "servingpools"
SHORT_NAME = "sp"
CRD_NAME = f"{PLURAL}.{GROUP}"
