"""What the command takes for the shipped manifests is what stands in them, and what it advises fits what was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hub_extensions.tools.helm_check.check import CheckOptions, check
from hub_extensions.tools.helm_check.helm import read_manifests
from tests.helm_values.policies import shipped_policies
from tests.hubs import ROOT

FOLDER = ROOT / "helm-values" / "manifests"


@pytest.mark.parametrize("apart", [False, True])
def test_the_policies_that_are_taken_to_be_there_are_those_of_the_manifests(apart: bool) -> None:
    given = read_manifests([FOLDER / "service-deployment" if apart else FOLDER])
    shipped: dict[str, Any] = {
        each["metadata"]["name"]: each["spec"] for each in given if each["kind"] == "NetworkPolicy"
    }
    taken = {each["metadata"]["name"]: each["spec"] for each in shipped_policies("jhub", apart=apart)}
    assert taken.keys() == shipped.keys()
    for name, spec in taken.items():
        assert {key: value for key, value in spec.items() if key != "egress"} == {
            key: value for key, value in shipped[name].items() if key != "egress"
        }
        assert opened(spec) == opened(shipped[name])


def opened(spec: dict[str, Any]) -> set[str]:
    """Each way out, whatever rules they are grouped into."""
    return {f"{rule.get('to')} {port}" for rule in spec.get("egress", ()) for port in rule["ports"]}


@pytest.mark.parametrize(
    ("first", "second", "fix"),
    [
        ("data: {a: 1}", "stringData: hello", "Give the later file's entry another key: null cannot take the earlier"),
        ("", "data: {a: 1}\n      stringData: hello", "Take one out."),
    ],
)
def test_of_two_contents_the_fix_says_whether_one_file_or_two_have_them(
    tmp_path: Path, first: str, second: str, fix: str
) -> None:
    files = [str(ROOT / "helm-values" / "gpu.yaml")]
    for name, content in (("first", first), ("second", second)):
        if content:
            path = tmp_path / f"{name}.yaml"
            path.write_text(f"hub:\n  extraFiles:\n    own:\n      mountPath: /etc/own\n      {content}\n")
            files.append(str(path))
    (found,) = (each for each in check(CheckOptions(files, [])).findings if each.rule == "file-content")
    assert found.fix.startswith(fix)


@pytest.mark.parametrize(
    ("value", "text", "fix"),
    [
        ("null", "null", 'Write an empty text (""): null does not take away what another file set.'),
        ("true", "true or false", "Put it into quotes."),
        ("5", "a number", "Put it into quotes."),
    ],
)
@pytest.mark.parametrize("section", ["hub", "chp"])
def test_a_variable_that_is_no_text_is_said_with_what_to_write(
    tmp_path: Path, section: str, value: str, text: str, fix: str
) -> None:
    path = tmp_path / "more.yaml"
    given = f"{{extraEnv: {{A: {value}}}}}"
    path.write_text(f"hub: {given}\n" if section == "hub" else f"proxy: {{chp: {given}}}\n")
    ours = [str(ROOT / "helm-values" / name) for name in ("gpu.yaml", "own-images.yaml")]
    found = check(CheckOptions([*ours, str(path)], [])).findings
    (kind,) = (each for each in found if each.rule == "variable-kind")
    assert (kind.text, kind.fix) == (f"It is {text}, where a text belongs: the chart cannot be rendered.", fix)


def test_the_gate_and_an_app_as_they_are_shipped_are_reached_by_the_proxy_alone(tmp_path: Path) -> None:
    """An app's pods and the gate's are open to users' servers without the policies, and closed with them."""
    files = [str(ROOT / "helm-values" / f"{name}.yaml") for name in ("gpu", "own-images", "gate")]
    app = tmp_path / "mlflow.yaml"
    app.write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: mlflow, namespace: apps}\n"
        "spec: {selector: {app: mlflow}, ports: [{port: 5000}]}\n"
    )
    gate = FOLDER / "gate"
    given = [FOLDER, app, gate / "gate.yaml"]
    rules = [each.rule for each in check(CheckOptions(files, given)).findings]
    assert sorted(set(rules)) == ["app-policy", "gate-port", "placeholder"]
    for kustomization in (gate, FOLDER / "gate-postgres"):
        whole = [FOLDER, app, kustomization, gate / "app-policy.yaml"]
        assert {each.rule for each in check(CheckOptions(files, whole)).findings} == {"placeholder"}
