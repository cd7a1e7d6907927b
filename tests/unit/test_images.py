"""`Dockerfile` and what it builds, as far as that can be seen without an engine of containers."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

from mailmend.admin.frame.settings_file import settings_path
from mailmend.admin.jobs.install import IMAGE, SPARK_IMAGE
from mailmend.admin.local.folders import cache_home, data_home, home_of
from tests.support.checkout import CHECKOUT

DOCKERFILE = CHECKOUT / "Dockerfile"
UID = "10001"
TARGETS = ("mailmend", "mailmend-spark")


@cache
def stages() -> dict[str, list[str]]:
    """The instructions of each stage, one line each; the first is its FROM."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line.startswith("FROM "):
            name = line.split(" AS ")[1]
            found[name] = []
        if name and line:
            found[name].append(line)
    return found


def chain(target: str) -> list[str]:
    """The instructions of a target, after those of the stages that it is made from."""
    own = stages()[target]
    base = own[0].split()[1]
    if base not in stages():
        return own
    return [*chain(base), *own]


def environment_of(target: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for line in chain(target):
        if line.startswith("ENV "):
            for word in line.removeprefix("ENV ").split():
                name, _, value = word.partition("=")
                pairs[name] = value
    return pairs


def python_version() -> str:
    (version,) = re.findall(r"^ARG PYTHON_IMAGE=python:(3\.\d+)-slim-", DOCKERFILE.read_text(), re.MULTILINE)
    return str(version)


def test_hadolint_finds_nothing_to_say() -> None:
    ended = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), DOCKERFILE],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (0, "")


def test_the_targets_are_the_images_that_are_pushed() -> None:
    workflow = (CHECKOUT / ".github" / "workflows" / "release.yml").read_text()

    assert list(stages())[-2:] == ["mailmend-spark", "mailmend"], "the last one is built where none is named"
    assert [f"ghcr.io/mailmend/{target}" for target in TARGETS] == [IMAGE, SPARK_IMAGE]
    assert re.findall(r"target: \[([^]]*)\]", workflow) == [", ".join(TARGETS)]
    assert 'image="ghcr.io/$GITHUB_REPOSITORY_OWNER/$TARGET:${GITHUB_REF_NAME#v}"' in workflow


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_the_user_of_the_manifests_and_keeps_its_state_in_volumes(target: str) -> None:
    lines = chain(target)
    environment = environment_of(target)
    home = home_of(environment)

    assert [line for line in lines if line.startswith("USER ")][-1] == f"USER {UID}:{UID}"
    assert settings_path(environment, home) == Path("/etc/mailmend/config.toml")
    volumes = [str(data_home(environment, home)), str(cache_home(environment, home))]
    assert f'VOLUME ["{volumes[0]}", "{volumes[1]}"]' in lines
    made = next(line for line in lines if "install --directory --owner mailmend" in line)
    assert made.endswith(" ".join(volumes))
    assert environment["HOME"] == volumes[0]
    assert 'ENTRYPOINT ["mailmend"]' in lines


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_the_labels_of_oci(target: str) -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', " ".join(chain(target))))

    assert labels == {
        "title": target,
        "description": tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["description"],
        "url": "https://github.com/mailmend/mailmend",
        "source": "https://github.com/mailmend/mailmend",
        "documentation": "https://github.com/mailmend/mailmend/tree/main/docs",
        "licenses": "Apache-2.0",
        "version": "${VERSION}",
        "revision": "${REVISION}",
    }


def test_only_the_image_of_spark_has_java_and_pyspark() -> None:
    without = "\n".join((*chain("mailmend"), *chain("packages")))
    with_spark = "\n".join((*chain("mailmend-spark"), *chain("packages-spark")))

    assert not re.search(r"openjdk|--extra spark", without)
    assert "openjdk-17-jre-headless" in with_spark
    assert "--extra spark" in with_spark


def test_no_secret_is_built_in() -> None:
    lines = [line for stage in stages().values() for line in stage]

    assert [line for line in lines if re.search(r"(?i)password|token|secret|_key\b", line)] == []
    assert [line for line in lines if line.startswith("ADD ")] == []


def test_the_tool_that_installs_is_the_one_of_the_makefile() -> None:
    (series,) = re.findall(r"'uv(>=[\d.]+,<[\d.]+)'", (CHECKOUT / "Makefile").read_text())
    (pinned,) = re.findall(r"\buv==([\d.]+)", DOCKERFILE.read_text())

    assert pinned in SpecifierSet(series)


def test_the_python_of_the_images_has_a_lane_of_its_own() -> None:
    jobs = yaml.safe_load((CHECKOUT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]

    assert python_version() in [lane["python"] for lane in jobs["test"]["strategy"]["matrix"]["include"]]


def exported(stage: str) -> Iterator[Requirement]:
    """What the stage installs: its own command, run here."""
    (command,) = re.findall(r"uv (export .*?) &&", " ".join(stages()[stage]))
    words = command.replace("--output-file /tmp/requirements.txt", "").split()
    lines = subprocess.run(
        [CHECKOUT / ".uv" / "bin" / "uv", *words, "--offline", "--no-hashes", "--no-annotate", "--no-header"],
        capture_output=True, text=True, check=True, timeout=60, cwd=CHECKOUT,
    ).stdout.splitlines()  # fmt: skip
    for line in lines:
        yield Requirement(line)


@pytest.mark.parametrize(("stage", "source_archives"), [("packages", set()), ("packages-spark", {"pyspark"})])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_package_of_an_image_is_locked_and_has_a_wheel(
    stage: str, source_archives: set[str], machine: str
) -> None:
    lock = tomllib.loads((CHECKOUT / "uv.lock").read_text())["package"]
    wheels = {(package["name"], package["version"]): package.get("wheels", ()) for package in lock}
    there = {"python_version": python_version(), "python_full_version": f"{python_version()}.0"}
    there |= {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": machine}
    without = set()

    for requirement in exported(stage):
        if requirement.marker and not requirement.marker.evaluate(there):
            continue
        (pin,) = requirement.specifier
        names = [wheel["url"].rpartition("/")[2] for wheel in wheels[requirement.name, pin.version]]
        if not any(fits(name, machine) for name in names):
            without.add(requirement.name)

    assert without == source_archives


def fits(name: str, machine: str) -> bool:
    """Whether a wheel is for the Python of the images, on Debian with that machine."""
    minor = int(python_version().split(".")[1])
    for tag in parse_wheel_filename(name)[3]:
        is_there = tag.platform == "any" or re.fullmatch(rf"manylinux.*_{machine}", tag.platform)
        is_stable = tag.abi == "abi3" and int(tag.interpreter.removeprefix("cp3")) <= minor
        if is_there and (tag.interpreter == "py3" or tag.abi == f"cp3{minor}" or is_stable):
            return True
    return False


def test_the_context_of_a_build_is_what_the_wheel_is_made_of() -> None:
    allowed = {
        line.removeprefix("!") for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    linked = {entry.name for entry in (CHECKOUT / "mailmend").iterdir() if entry.is_symlink()}

    assert allowed == {
        *("pyproject.toml", "hatch_build.py", "uv.lock", "README.md"),
        *project["project"]["license-files"],
        *wheel["packages"],
        *wheel["force-include"],
        *linked,
    }
    assert (CHECKOUT / ".dockerignore").read_text().splitlines()[1] == "*"
