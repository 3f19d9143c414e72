"""The manifests: valid for Kubernetes, and their references meet."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.tests.files import DEPLOY, load_yaml, serve_options
from ister.gateway.http.guard import OPEN_PATHS

FOLDER = DEPLOY / "kubernetes"
VERSIONS = ("1.30", "1.37")  # the oldest that we look at, and the newest there are schemas for

pytestmark = pytest.mark.product


def _resources() -> list[dict[str, Any]]:
    """Everything that kustomize would apply, in its order."""
    found = []
    for name in load_yaml(FOLDER / "kustomization.yaml")["resources"]:
        with (FOLDER / name).open() as file:
            found += list(yaml.safe_load_all(file))
    return found


def _one(kind: str, name: str = "ister") -> dict[str, Any]:
    (found,) = [
        each for each in _resources() if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    return found


def _pod() -> dict[str, Any]:
    template: dict[str, Any] = _one("StatefulSet")["spec"]["template"]
    return template


def _container() -> dict[str, Any]:
    (container,) = _pod()["spec"]["containers"]
    return container  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "resource", _resources(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_a_resource_is_valid(resource: dict[str, Any], version: str) -> None:
    """Types are right and no key is unknown."""
    kubernetes_validate.validate(resource, version, strict=True)


def test_the_validator_sees_a_misspelt_key() -> None:
    """A check that cannot fail would say nothing."""
    pod = _one("StatefulSet")
    pod["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)


def test_every_file_is_applied() -> None:
    """A manifest that kustomize does not know of is never applied."""
    kustomization = load_yaml(FOLDER / "kustomization.yaml")
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files
    assert [image["name"] for image in kustomization["images"]] == [_container()["image"]]


def test_selectors_find_the_pod() -> None:
    """StatefulSet, both services, the budget and the policy mean the same pod."""
    labels = _pod()["metadata"]["labels"].items()
    selectors = [
        _one("StatefulSet")["spec"]["selector"]["matchLabels"],
        _one("Service")["spec"]["selector"],
        _one("Service", "ister-pods")["spec"]["selector"],
        _one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        _one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)


def test_names_meet() -> None:
    """Service of the StatefulSet, account, secret, volumes."""
    spec = _pod()["spec"]
    assert (
        _one("Service", _one("StatefulSet")["spec"]["serviceName"])["spec"]["clusterIP"] == "None"
    )
    assert _one("ServiceAccount", spec["serviceAccountName"])
    assert all(_one("Secret", each["secretRef"]["name"]) for each in _container()["envFrom"])
    claims = _one("StatefulSet")["spec"]["volumeClaimTemplates"]
    volumes = {each["name"] for each in spec["volumes"]}
    volumes |= {each["metadata"]["name"] for each in claims}
    assert {mount["name"] for mount in _container()["volumeMounts"]} == volumes


def test_the_broker_is_told_what_the_service_says() -> None:
    """The arguments are real ones; ports and the advertised name are those of the service."""
    options = serve_options(_container()["args"])
    ports = {each["name"]: each["containerPort"] for each in _container()["ports"]}
    assert options["listen"] == [f"0.0.0.0:{ports['kafka']}"]
    assert options["http"] == f"0.0.0.0:{ports['http']}"
    service = _one("Service")
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
    name = service["metadata"]["name"]
    assert options["advertise"] == [f"{name}.$(NAMESPACE).svc:{ports['kafka']}"]
    assert [each["name"] for each in _container()["env"]] == ["NAMESPACE"]
    mounts = [mount["mountPath"] for mount in _container()["volumeMounts"]]
    assert any(options["data"].startswith(f"{mount}/") for mount in mounts)


def test_probes() -> None:
    """Ready decides about traffic; alive alone decides about restarts."""
    probes = {name: _container()[f"{name}Probe"]["httpGet"] for name in ("readiness", "liveness")}
    assert probes["readiness"] == {"path": "/readyz", "port": "http"}
    assert probes["liveness"] == {"path": "/healthz", "port": "http"}
    paths = [_container()[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", *probes)]
    assert set(paths) <= OPEN_PATHS  # answered under any name: a probe asks for an address


def test_no_more_rights_than_needed() -> None:
    """Not root, read-only root, no capabilities, no token."""
    spec, own = _pod()["spec"], _container()["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] == 10001  # the number in the container file
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert own["readOnlyRootFilesystem"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["allowPrivilegeEscalation"] is False


def test_the_policy_lets_in_to_ports_that_exist() -> None:
    """And to nothing else."""
    ports = {each["containerPort"] for each in _container()["ports"]}
    rules = _one("NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == ports
    assert all(rule["from"] for rule in rules)
    assert _one("NetworkPolicy")["spec"]["policyTypes"] == ["Ingress", "Egress"]
