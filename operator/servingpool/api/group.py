"""Names under which the API server knows the resource."""

from __future__ import annotations

GROUP = "servingpool.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ServingPool"
PLURAL = "servingpools"
SHORT_NAME = "sp"
CRD_NAME = f"{PLURAL}.{GROUP}"
BUDGET_KIND = "GPUBudget"
BUDGET_PLURAL = "gpubudgets"
BUDGET_SHORT_NAME = "gb"
BUDGET_CRD_NAME = f"{BUDGET_PLURAL}.{GROUP}"
