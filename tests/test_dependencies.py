"""What pyproject.toml asks for, what constraints.txt pins and what is installed agree; no index is asked."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
PINNED = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}


def wanted() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in lines if not line.startswith("xalign[")]


def test_each_constraint_is_one_exact_version() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[\w.-]+==[\w.!+]+", line)] == []
    assert len(PINNED) == len(LINES)
    assert sorted(LINES, key=str.lower) == LINES


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_what_the_project_asks_for_is_pinned_within_its_range(requirement: Requirement) -> None:
    assert requirement.specifier.contains(PINNED[canonicalize_name(requirement.name)], prereleases=True)


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_each_requirement_has_a_lowest_version(requirement: Requirement) -> None:
    """The job `lowest` of the workflow installs it."""
    assert any(bound.operator in {">=", "=="} for bound in requirement.specifier)


@pytest.mark.parametrize("name", ["requirements.txt", "tools.txt"])
def test_hashed_versions_are_the_pinned_ones(name: str) -> None:
    text = (ROOT / ".github" / name).read_text().replace("\\\n", "")
    lines = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    versions = {canonicalize_name(name): version for name, _, version in (line[0].partition("==") for line in lines)}
    assert {package: PINNED.get(package, version) for package, version in versions.items()} == versions
    assert all("--hash=sha256:" in rest for _, rest in lines)
    if name == "requirements.txt":
        assert versions.keys() >= {canonicalize_name(requirement.name) for requirement in wanted()}


def test_pinned_packages_fit_each_other() -> None:
    """As far as they are installed here."""
    clashes = []
    for name in PINNED:
        try:
            needs = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            continue
        clashes += [
            f"{name} wants {need}, and {PINNED[canonicalize_name(need.name)]} is pinned"
            for need in needs
            if canonicalize_name(need.name) in PINNED
            and (need.marker is None or need.marker.evaluate({"extra": ""}))
            and not need.specifier.contains(PINNED[canonicalize_name(need.name)], prereleases=True)
        ]
    assert clashes == []
