"""The Helm chart of the examples: linted, rendered with several values, and held against the schemas of Kubernetes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bridge.config.tables.profile import load_profile
from tests.deploy.files import CHART, SECRETS, USER, end_seconds, most_bytes, require_module
from tests.support.command import ROOT, WAIT_SECONDS, run_here

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the examples of deployments are for Linux")

VERSIONS: Final = ("1.27", "1.37")
"""The oldest Kubernetes that the chart takes, and the newest whose schemas are there."""

TAKEN: Final[dict[str, dict[str, Any]]] = {
    "as it is": {},
    "one replica": {"replicas": 1},
    "no address of each": {"replicaUrl": ""},
    "another port": {"port": 9000, "replicaUrl": "http://[$(POD_IP)]:9000"},
    "a long drain": {"drainSeconds": 600, "preStopSeconds": 15},
    "one file": {"files": {"bridge.toml": "[bridge]\nport = 8080\n", "profile.toml": None}},
    "metrics, console and an ingress": {
        "console": True,
        "metrics": {"enabled": True, "port": 9999},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "agents.example.com",
            "tlsSecretName": "agents-tls",
            "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
        },
    },
    "everything": {
        "image": {"repository": "images.example.com/team/mcp-a2a", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "images"}],
        "service": {"type": "LoadBalancer", "port": 8443, "annotations": {"example.com/kind": "internal"}},
        "podAnnotations": {"example.com/owner": "7"},
        "podLabels": {"team": "agents"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "agents", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
    },
}
REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a misspelt key": ({"replica": 3}, "replica"),
    "no replica": ({"replicas": 0}, "minimum"),
    "an image that moves": ({"image": {"tag": "latest"}}, "tag"),
    "no pause before the end": ({"preStopSeconds": 0}, "preStopSeconds"),
    "no file to serve": ({"files": {"bridge.toml": ""}}, "bridge.toml"),
    "a port for root": ({"port": 80}, "port"),
    "metrics at a port for root": ({"metrics": {"port": 80}}, "port"),
    "an ingress for no host": ({"ingress": {"enabled": True, "host": ""}}, "host"),
}


@cache
def outcomes() -> dict[str, Any]:
    """What Helm makes of each of the values."""
    require_module("helm_python", "helm-python-sdk")
    table = TAKEN | {name: values for name, (values, _) in REFUSED.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tests.deploy.helm", str(CHART)],
        cwd=ROOT,
        input=json.dumps(table),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class Rendered:
    """The manifests of some values, by kind."""

    manifests: dict[str, Any]

    @property
    def pod(self) -> Any:
        """The pod of the deployment."""
        return self.manifests["Deployment"]["spec"]["template"]["spec"]

    @property
    def container(self) -> Any:
        """Its only container."""
        (found,) = self.pod["containers"]
        return found

    @property
    def environment(self) -> dict[str, Any]:
        """The variables of the container."""
        return {one["name"]: one for one in self.container.get("env", [])}


def rendered(name: str) -> Rendered:
    files = outcomes()[name]["files"]
    loaded = [yaml.safe_load(text) for file, text in files.items() if file.endswith(".yaml")]
    return Rendered({one["kind"]: one for one in loaded if one})


@pytest.mark.parametrize("name", TAKEN)
def test_helm_finds_nothing_in_the_chart_with_values_that_it_takes(name: str) -> None:
    assert outcomes()[name].get("refused") is None
    assert outcomes()[name]["said"] == []


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_would_do_harm_are_refused_by_the_schema(name: str) -> None:
    assert REFUSED[name][1] in outcomes()[name]["refused"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", TAKEN)
def test_kubernetes_takes_the_manifests(name: str, version: str) -> None:
    require_module("kubernetes_validate", "kubernetes-validate")
    import kubernetes_validate

    for manifest in rendered(name).manifests.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_kubernetes_would_refuse_a_misspelt_key() -> None:
    require_module("kubernetes_validate", "kubernetes-validate")
    import kubernetes_validate

    manifest = rendered("as it is").manifests["Deployment"]
    manifest["spec"]["template"]["spec"]["terminationGracePeriod"] = 60
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(manifest, VERSIONS[1], strict=True)


def test_the_oldest_kubernetes_is_the_one_that_the_chart_names() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"


# Rights


@pytest.mark.parametrize("name", TAKEN)
def test_a_pod_keeps_to_the_standard_restricted(name: str) -> None:
    found = rendered(name)
    assert found.pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert found.container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert found.pod["automountServiceAccountToken"] is False
    kinds = {key for volume in found.pod["volumes"] for key in volume if key != "name"}
    assert kinds == {"configMap", "secret", "emptyDir"}


def test_no_variable_of_a_service_is_taken_for_an_option() -> None:
    assert rendered("as it is").pod["enableServiceLinks"] is False


def test_the_secrets_are_for_the_group_alone() -> None:
    (secret,) = [one["secret"] for one in rendered("as it is").pod["volumes"] if one["name"] == "secrets"]
    assert secret == {"secretName": "mcp-a2a", "defaultMode": 0o440}


# Life and end


@pytest.mark.parametrize("name", ["as it is", "a long drain"])
def test_a_pod_is_killed_only_after_all_that_its_end_may_take(name: str) -> None:
    profile, found = load_profile(), rendered(name)
    values = {**yaml.safe_load((CHART / "values.yaml").read_text()), **TAKEN[name]}
    pause = values["preStopSeconds"]
    assert found.container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", str(pause)]
    grace = found.pod["terminationGracePeriodSeconds"]
    assert grace > pause + values["drainSeconds"] + end_seconds(profile)


def test_the_chart_knows_how_long_running_tasks_may_go_on() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["drainSeconds"] == load_profile().run.drain_seconds


def test_a_pod_leaves_the_service_before_its_requests_are_refused() -> None:
    found = rendered("as it is").container
    ready, pause = found["readinessProbe"], int(found["lifecycle"]["preStop"]["exec"]["command"][1])
    assert ready["periodSeconds"] * ready["failureThreshold"] < pause


def test_only_a_process_that_does_not_answer_is_restarted() -> None:
    found = rendered("as it is").container
    paths = {name: found[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert found["startupProbe"]["failureThreshold"] >= load_profile().server.connect_seconds


def test_a_pod_has_the_memory_that_its_limits_allow() -> None:
    limit = rendered("as it is").container["resources"]["limits"]["memory"]
    assert limit == "1Gi"
    assert most_bytes(load_profile()) < 1024**3


def test_replicas_go_one_at_a_time_and_are_on_several_nodes() -> None:
    found = rendered("as it is").manifests
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    deployment = found["Deployment"]["spec"]
    assert deployment["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }
    labels = deployment["template"]["metadata"]["labels"]
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    for selector in (
        deployment["selector"],
        spread["labelSelector"],
        found["PodDisruptionBudget"]["spec"]["selector"],
        {"matchLabels": found["Service"]["spec"]["selector"]},
    ):
        assert selector["matchLabels"].items() <= labels.items()
    assert "PodDisruptionBudget" not in rendered("one replica").manifests


def test_each_pod_names_its_own_address_to_the_others() -> None:
    variables = rendered("as it is").environment
    assert variables["MCP_A2A_SERVE_REPLICA_URL"]["value"] == "http://$(POD_IP):8080"
    assert [*variables] == ["POD_IP", "MCP_A2A_SERVE_REPLICA_URL"]  # one that is used stands before
    assert rendered("no address of each").environment == {}


# What is turned on


def test_metrics_console_and_ingress_are_off_until_they_are_turned_on() -> None:
    found = rendered("as it is")
    assert found.container["args"] == ["serve", "bridge.toml", "--no-reload", "--port", "8080"]
    assert [one["name"] for one in found.container["ports"]] == ["http"]
    assert "Ingress" not in found.manifests


def test_metrics_have_a_port_of_each_pod_and_are_in_no_service() -> None:
    found = rendered("metrics, console and an ingress")
    assert found.container["args"][-3:] == ["--console", "--metrics", "0.0.0.0:9999"]
    assert {one["name"]: one["containerPort"] for one in found.container["ports"]} == {
        "http": 8080,
        "metrics": 9999,
    }
    assert [one["name"] for one in found.manifests["Service"]["spec"]["ports"]] == ["http"]
    annotations = found.manifests["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9999"


def test_the_ingress_leads_its_host_to_the_service_with_its_certificate() -> None:
    found = rendered("metrics, console and an ingress").manifests
    spec = found["Ingress"]["spec"]
    assert (spec["ingressClassName"], spec["tls"]) == (
        "nginx",
        [{"hosts": ["agents.example.com"], "secretName": "agents-tls"}],
    )
    (rule,) = spec["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"]) == ("agents.example.com", "/")
    assert path["backend"]["service"] == {
        "name": found["Service"]["metadata"]["name"],
        "port": {"name": found["Service"]["spec"]["ports"][0]["name"]},
    }


# Files


def test_other_files_are_other_pods() -> None:
    def checksum(name: str) -> str:
        template = rendered(name).manifests["Deployment"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/files"])

    assert checksum("one file") != checksum("as it is") == checksum("another port")


def test_the_files_of_the_chart_are_right_where_the_pod_has_them(tmp_path: Path) -> None:
    files = rendered("as it is").manifests["ConfigMap"]["data"]
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in re.findall(rf"{SECRETS}(\w+)", files["bridge.toml"]):
        (folder / name).write_text("postgresql://bridge:x@db/tasks" if "url" in name else "x" * 32)
        (folder / name).chmod(0o440)
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace(SECRETS, f"{folder}/"))
    done = run_here("check", "--offline", str(tmp_path / "bridge.toml"), "--json", state=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["faults"] == []
    assert tomllib.loads(files["bridge.toml"])["bridge"].get("port", 8080) == 8080


def test_the_notes_name_what_was_installed() -> None:
    notes = outcomes()["one replica"]["files"]["mcp-a2a/templates/NOTES.txt"]
    assert "rollout status deployment/office-mcp-a2a" in notes
    assert "With one replica, a restart of it is an interruption." in notes
    assert "With one replica" not in outcomes()["as it is"]["files"]["mcp-a2a/templates/NOTES.txt"]
