"""What `deploy/kubernetes` holds: valid, locked up, and of the servers, the probes and the alerts that there are."""

import json
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import httpx2
import kubernetes_validate
import pytest
import yaml

from mailmend.admin.frame.http.access import Access, parse_tokens
from mailmend.admin.frame.http.application import application
from mailmend.admin.jobs.http import JOBS
from mailmend.admin.jobs.install import IMAGE, SPARK_IMAGE
from mailmend.admin.jobs.units import SERVERS, server_command
from mailmend.admin.main import mailmend as mailmend_group
from tests.support.checkout import CHECKOUT
from tests.support.commands import command_line
from tests.support.servers import unavailable

MANIFESTS = CHECKOUT / "deploy" / "kubernetes"
BUILT = ("base", "overlays/example", "overlays/cronjobs")
VERSIONS = ("1.27", "1.37")
CUSTOM = ("ServiceMonitor", "PrometheusRule")
"""The kinds of the Prometheus operator, of which Kubernetes' own schemas know nothing."""

UID = 10001


@cache
def kustomize() -> tuple[str, ...]:
    if shutil.which("kustomize"):
        return ("kustomize", "build")
    if shutil.which("kubectl"):
        return ("kubectl", "kustomize")
    return unavailable("neither kustomize nor kubectl is installed")


@cache
def built(folder: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [*kustomize(), str(MANIFESTS / folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return list(yaml.safe_load_all(ended.stdout))


@cache
def written() -> list[dict[str, Any]]:
    """Every object of the files, as they are before kustomize changes them."""
    objects = []
    for file in sorted(MANIFESTS.rglob("*.yaml")):
        if file.name != "kustomization.yaml":
            objects += list(yaml.safe_load_all(file.read_text()))
    return objects


def pods_of(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for found in objects:
        spec = found.get("spec", {})
        if found["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            yield found["metadata"]["name"], spec["template"]["spec"]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in written() if found["kind"] == kind]


def servers() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, pod in pods_of(written()):
        (container,) = pod["containers"]
        if "args" in container:
            yield name, container


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_own_schemas_take_every_object(version: str) -> None:
    for found in written():
        if found["kind"] not in CUSTOM:
            kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("folder", BUILT)
def test_kustomize_builds_what_the_schemas_take(folder: str) -> None:
    objects = built(folder)

    for found in objects:
        if found["kind"] not in CUSTOM:
            kubernetes_validate.validate(found, VERSIONS[-1], strict=True)
    for _, pod in pods_of(objects):
        (container,) = pod["containers"]
        assert container["image"].startswith(f"{IMAGE}:")


def test_the_servers_are_those_that_there_are() -> None:
    commands = {}
    for name, container in servers():
        with click.Context(mailmend_group) as context:
            commands[name] = server_command(shlex.join(container["args"]), context).words[:2]

    assert commands == {
        "mailmend-delivery": ("delivery", "serve"),
        "mailmend-jobs": ("jobs", "serve"),
        "mailmend-tend": ("queue", "tend"),
    }
    assert sorted(map(" ".join, commands.values())) == sorted(SERVERS)


def test_an_overlay_of_cronjobs_has_no_server_of_jobs() -> None:
    names = {(found["kind"], found["metadata"]["name"]) for found in built("overlays/cronjobs")}

    assert ("CronJob", "mailmend-nightly-repair") in names
    assert ("StatefulSet", "mailmend-delivery") in names
    assert [name for _, name in names if name == "mailmend-jobs"] == []


def test_probes_ask_for_paths_that_the_server_answers_without_a_token() -> None:
    served = {
        "mailmend-jobs": json.loads((CHECKOUT / "docs" / "openapi.json").read_text())["paths"],
        "mailmend-delivery": json.loads((CHECKOUT / "docs" / "delivery.openapi.json").read_text())["paths"],
    }
    asked = {}
    for name, container in servers():
        for probe in ("livenessProbe", "readinessProbe"):
            path = container[probe].get("httpGet", {}).get("path")
            asked[name, probe] = path
            if path not in {None, "/openapi.json"}:
                assert "security" not in served[name][path]["get"]

    assert asked == {
        ("mailmend-jobs", "livenessProbe"): "/openapi.json",  # /healthcheck fails while Cassandra is away
        ("mailmend-jobs", "readinessProbe"): "/healthcheck",
        ("mailmend-delivery", "livenessProbe"): "/health",
        ("mailmend-delivery", "readinessProbe"): "/ready",
        ("mailmend-tend", "livenessProbe"): None,
        ("mailmend-tend", "readinessProbe"): None,
    }


async def test_the_server_of_jobs_shows_that_it_lives_where_no_part_of_it_is_asked() -> None:
    """At no desk, without a token, and by its address, as the kubelet asks: so it lives while Cassandra is away."""
    app = application(JOBS, None, Access(parse_tokens([f"probe read {'0' * 32}"], "tokens")))

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="https://10.1.2.3:8443") as kubelet:
        assert (await kubelet.get("/openapi.json")).status_code == 200


def test_what_serves_no_http_is_probed_by_the_age_of_its_metrics() -> None:
    (container,) = [container for name, container in servers() if name == "mailmend-tend"]
    (file,) = [word.removeprefix("--metrics-file=") for word in container["args"] if "--metrics-file=" in word]

    for probe in ("livenessProbe", "readinessProbe"):
        assert f"find {file} -mmin" in container[probe]["exec"]["command"][-1]


def test_every_pod_is_locked_up() -> None:
    pods = list(pods_of(written()))

    assert len(pods) == 5
    for name, pod in pods:
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] == UID, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, f"{name}: a Service `mailmend` would set MAILMEND_PORT"
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name


def test_every_server_has_a_limit_of_memory_and_its_pods_can_be_moved_one_by_one() -> None:
    selectors = {found["metadata"]["name"]: found["spec"]["selector"] for found in of_kind("StatefulSet")}
    budgets = {found["metadata"]["name"]: found["spec"] for found in of_kind("PodDisruptionBudget")}

    assert [name for name, container in servers() if "memory" not in container["resources"]["limits"]] == []
    assert budgets == {name: {"maxUnavailable": 1, "selector": selector} for name, selector in selectors.items()}


def test_secrets_are_named_and_not_written() -> None:
    example = MANIFESTS / "overlays" / "example"
    settings = tomllib.loads((example / "config.toml").read_text())
    generated = [found for found in built("overlays/example") if found["kind"] == "Secret"]

    assert of_kind("Secret") == []
    assert "password" not in settings
    assert [found["metadata"]["name"].rpartition("-")[0] for found in generated] == ["mailmend-settings"]
    for name, container in servers():
        for variable in container.get("env", ()):
            assert variable["name"] != "MAILMEND_TOKENS" or "secretKeyRef" in variable["valueFrom"], name


def test_the_cronjobs_are_those_that_jobs_install_writes(tmp_path: Path) -> None:
    folder = MANIFESTS / "overlays" / "cronjobs"
    settings = MANIFESTS / "overlays" / "example" / "config.toml"

    ended = command_line(tmp_path)(
        "jobs", "install", "--kubernetes", "--config", str(settings), "--image", IMAGE, "--json"
    )

    files = ended.json["files"]
    assert {name: (folder / name).read_text() for name in files} == files
    assert set(files) < set(yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"])


@pytest.mark.parametrize("name", ["mailmend-jobs", "mailmend-delivery", "mailmend-tend"])
def test_a_server_of_the_example_begins_with_its_settings_and_secrets_alone(name: str, tmp_path: Path) -> None:
    """It gets as far as the cluster, which is not there."""
    pods = dict(pods_of(built("overlays/example")))
    (container,) = pods[name]["containers"]
    for file in ("tls.crt", "tls.key"):
        (tmp_path / file).touch()
    words = [word.replace("/etc/mailmend-tls", str(tmp_path)) for word in container["args"]]
    settings = tmp_path / "config.toml"
    text = (MANIFESTS / "overlays" / "example" / "config.toml").read_text()
    settings.write_text(
        text.replace('"cassandra.cassandra.svc"', '"127.0.0.1"').replace("local_dc", "port = 1\nlocal_dc")
    )

    ended = command_line(tmp_path)(
        *words,
        *("--config", str(settings)),
        MAILMEND_TOKENS="prometheus read 0123456789abcdef0123456789abcdef",
        MAILMEND_PASSWORD="secret",
        MAILMEND_BROKER="amqp://ann:secret@127.0.0.1:1",
        MAILMEND_S3_ACCESS_KEY="key",
        MAILMEND_S3_SECRET_KEY="secret",
    )

    said = " ".join(ended.err.split())
    assert (ended.code, "no node at 127.0.0.1:1 in data centre 'datacenter1' could be" in said) == (4, True), said


# What the Prometheus operator reads: its schemas are not Kubernetes' own


def test_alerts_are_those_of_the_documentation() -> None:
    (rule,) = of_kind("PrometheusRule")

    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    assert rule["spec"] == yaml.safe_load((CHECKOUT / "docs" / "monitoring" / "alerts.yml").read_text())
    for alert in rule["spec"]["groups"][0]["rules"]:
        assert alert.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert all(isinstance(value, str) for value in (*alert["labels"].values(), *alert["annotations"].values()))


def test_what_is_scraped_is_a_port_of_a_service_by_tls_and_with_a_token() -> None:
    services = {found["metadata"]["name"]: found for found in of_kind("Service")}

    assert len(of_kind("ServiceMonitor")) == 2
    for monitor in of_kind("ServiceMonitor"):
        service = services[monitor["metadata"]["name"]]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
        assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
        assert (endpoint["scheme"], endpoint["path"]) == ("https", "/metrics")
        assert endpoint["authorization"]["credentials"] == {"name": "mailmend-prometheus", "key": "token"}
        assert endpoint["tlsConfig"] == {
            "serverName": service["metadata"]["name"],
            "ca": {"secret": {"name": "mailmend-tls", "key": "ca.crt"}},
        }


def test_one_place_names_the_version_of_both_images() -> None:
    images = yaml.safe_load((MANIFESTS / "components" / "version" / "kustomization.yaml").read_text())["images"]

    assert [image["name"] for image in images] == [IMAGE, SPARK_IMAGE]
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert [image["newTag"] for image in images] == [project["version"]] * 2
