"""The ServingPool custom resource: pydantic types, and the CRD that is generated from them."""
