"""What the shipped manifests promise."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.krew import PLATFORMS
from servingpool import __version__
from servingpool.api.duration import parse
from servingpool.api.role import Role, RoleRatio
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Spec

DEPLOY = Path(__file__).parents[3] / "deploy"
LOCKS = DEPLOY.parent / "tools" / "locks"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


@pytest.mark.parametrize("sample", ["minimal", "full"])
def test_a_sample_is_a_valid_pool_of_the_sample_deployment(sample: str) -> None:
    [pool] = documents(f"samples/servingpool-{sample}.yaml")
    deployment = documents("samples/vllm-deployment.yaml")[0]
    assert ServingPool.read(pool).spec.targets[0].name == deployment["metadata"]["name"]


def test_the_full_sample_has_every_field_but_those_of_roles_and_other_objectives_and_states_the_defaults() -> None:
    """A pool with roles has no schedules: the sample of prefill and decode shows the fields of roles."""
    [full] = documents("samples/servingpool-full.yaml")
    [minimal] = documents("samples/servingpool-minimal.yaml")
    spec, defaults = ServingPool.read(full).spec, ServingPool.read(minimal).spec
    assert full["spec"].keys() == spec.to_dict().keys()
    others = "role", "prefill_per_decode", "batch", "throughput"
    for part in (spec, spec.slo, spec.targets[0], spec.metrics, spec.behavior):
        assert part.model_fields_set == type(part).model_fields.keys() - set(others)
    assert spec.schedules[0].model_fields_set == type(spec.schedules[0]).model_fields.keys()
    assert spec.engine == defaults.engine
    assert spec.behavior.model_copy(update={"max_change_per_step": None}) == defaults.behavior
    assert spec.mode is Spec.model_fields["mode"].default
    assert (spec.slo, spec.metrics.backend) == (defaults.slo, defaults.metrics.backend)


def test_the_sample_of_prefill_and_decode_has_every_field_of_roles() -> None:
    [pool] = documents("samples/servingpool-prefill-decode.yaml")
    spec = ServingPool.read(pool).spec
    assert {one.role for one in spec.targets} == set(Role)
    assert spec.prefill_per_decode is not None
    assert spec.prefill_per_decode.model_fields_set == RoleRatio.model_fields.keys()


def test_the_sample_pod_waits_then_drains_before_it_is_killed() -> None:
    pod = documents("samples/vllm-deployment.yaml")[0]["spec"]["template"]["spec"]
    [engine] = pod["containers"]
    [timeout] = [int(arg.split("=")[1]) for arg in engine["args"] if arg.startswith("--shutdown-timeout")]
    wait = int(engine["lifecycle"]["preStop"]["exec"]["command"][1])
    assert wait > 0
    assert timeout > 0
    assert pod["terminationGracePeriodSeconds"] > wait + timeout


def test_applying_the_sample_again_does_not_undo_the_scaling() -> None:
    assert "replicas" not in documents("samples/vllm-deployment.yaml")[0]["spec"]


def test_probes_and_policy_name_the_ports_that_the_container_has() -> None:
    [deployment] = documents("deployment.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"health": 8080, "metrics": 9090}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    [policy] = documents("networkpolicy.yaml")
    assert {port["port"] for port in policy["spec"]["ingress"][0]["ports"]} == ports.keys()


def test_the_configuration_names_the_default_backend() -> None:
    [config_map] = documents("config.yaml")
    config = yaml.safe_load(config_map["data"]["config.yaml"])
    assert parse(config["interval"]) == 15
    assert [backend["name"] for backend in config["backends"]] == ["default"]


def test_plain_manifests_do_not_claim_to_be_helms() -> None:
    for name in documents("kustomization.yaml")[0]["resources"]:
        assert not any(word in (DEPLOY / name).read_text() for word in ("helm.sh", "Helm", "/instance"))


def test_the_image_runs_as_the_user_of_the_manifests_and_from_any_base() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("FROM ")] == ["FROM ${BASE} AS build", "FROM ${BASE}"]
    [user] = [line.removeprefix("USER ") for line in lines if line.startswith("USER ")]
    security = documents("deployment.yaml")[0]["spec"]["template"]["spec"]["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}"


@pytest.mark.parametrize("lock", ["operator.lock", "build.lock"])
def test_the_image_is_made_of_the_versions_that_are_tested(lock: str) -> None:
    """Pinned with hashes, and as in the lock that the tests run with."""

    def pinned(name: str) -> set[str]:
        lines = (LOCKS / name).read_text().splitlines()
        return {line.split(" ")[0] for line in lines if "==" in line and not line.startswith((" ", "#"))}

    text = (LOCKS / lock).read_text()
    assert pinned(lock) <= pinned("dev.lock")
    assert text.count("--hash=sha256:") >= len(pinned(lock))
    assert "://" not in text


def test_krews_manifest_names_the_entry_point_and_the_version() -> None:
    [manifest] = documents("krew/servingpool.yaml")
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    spec = manifest["spec"]
    assert spec["version"] == f"v{__version__}"
    assert [each["uri"].split("/")[1:] for each in spec["platforms"]] == [
        [spec["version"], f"kubectl-servingpool-{platform}.tar.gz"] for platform in PLATFORMS
    ]
    for platform in spec["platforms"]:
        assert platform["bin"] == f"kubectl-{manifest['metadata']['name']}"
        assert platform["bin"] in project["scripts"]
