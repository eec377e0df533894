"""The tables of the values check: the chart's policies as they come out, who calls whom, and what fits at a key."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft7Validator

from hub_extensions.tools.helm_check.chart_facts import packed_facts
from hub_extensions.tools.helm_check.files import PLACEHOLDER
from hub_extensions.tools.helm_check.rules.shape import EXPLAINERS, wrong_kind
from hub_extensions.tools.helm_check.trees import dotted, find, has, kind_of, leaves, nearest
from tests.helm_values.policies import Call, calls_of, chart_policies, pods_of
from tests.helm_values.test_check_network import release

SHUT = {"privateIPs": False, "nonPrivateIPs": False, "cloudMetadataServer": False, "dnsPortsPrivateIPs": False}
SECTIONS = {"hub": ("hub",), "proxy": ("proxy", "chp"), "singleuser-server": ("singleuser",)}


def policies(**changes: Any) -> dict[str, dict[str, Any]]:
    """The chart's three, with these values at each `networkPolicy`."""
    values: dict[str, Any] = {}
    for first, *rest in SECTIONS.values():
        inner: dict[str, Any] = {"networkPolicy": changes}
        for name in rest:
            inner = {name: inner}
        values[first] = inner
    return {each["metadata"]["name"]: each["spec"] for each in chart_policies(release(False, values))}


def ways(rules: list[dict[str, Any]]) -> list[tuple[str, list[int]]]:
    """(component, ports) of each rule by name."""
    return [
        (rule["to"][0]["podSelector"]["matchLabels"]["component"], [port["port"] for port in rule["ports"]])
        for rule in rules
        if "podSelector" in rule.get("to", [{}])[0]
    ]


def test_with_everything_shut_each_pod_goes_out_to_these_by_name() -> None:
    found = {name: spec["egress"] for name, spec in policies(egressAllowRules=SHUT).items()}
    assert {name: ways(rules) for name, rules in found.items()} == {
        "hub": [("proxy", [8001]), ("singleuser-server", [8888])],
        "proxy": [("hub", [8081]), ("singleuser-server", [8888])],
        "singleuser-server": [("hub", [8081]), ("proxy", [8000]), ("autohttps", [8080, 8443])],
    }
    assert all(len(rules) == len(ways(rules)) for rules in found.values()), "and nowhere else"


PRIVATE = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
META = "169.254.169.254/32"
DNS = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
BLOCKS = [{"ipBlock": {"cidr": block}} for block in PRIVATE]


@pytest.mark.parametrize(
    ("rule", "way"),
    [
        ("nonPrivateIPs", {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [*PRIVATE, META]}}]}),
        ("privateIPs", {"to": BLOCKS}),
        ("cloudMetadataServer", {"to": [{"ipBlock": {"cidr": META}}]}),
        ("dnsPortsPrivateIPs", {"to": BLOCKS, "ports": DNS}),
    ],
)
def test_each_of_the_charts_rules_opens_its_own_way(rule: str, way: dict[str, Any]) -> None:
    for spec in policies(egressAllowRules={**SHUT, rule: True}).values():
        assert [each for each in spec["egress"] if "ipBlock" in each["to"][0]] == [way]


def test_an_admins_own_rules_are_added_and_what_is_none_is_not() -> None:
    rule = {"ports": [{"port": 5432}]}
    for spec in policies(egress=[rule, "no rule"], ingress=[rule], egressAllowRules=SHUT).values():
        assert spec["egress"][-1] == rule and "no rule" not in spec["egress"]
        assert spec["ingress"][-1] == rule
        assert spec["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(("given", "ports"), [([], []), (["http", 8081, True, 1.5], ["http", 8081])])
def test_doors_are_open_to_whoever_has_the_label_and_ports_to_everybody(given: list[Any], ports: list[Any]) -> None:
    doors = {"hub": ["http"], "proxy": ["http", "api"], "singleuser-server": ["notebook-port"]}
    for name, spec in policies(allowedIngressPorts=given, interNamespaceAccessLabels="ignore").items():
        everybody = [rule for rule in spec["ingress"] if "from" not in rule]
        assert everybody == ([{"ports": [{"port": port} for port in ports]}] if given else [])
        labelled = [rule for rule in spec["ingress"] if "from" in rule]
        assert [rule["ports"] for rule in labelled] == [[{"port": port}] for port in doors[name]]
        assert all(len(rule["from"]) == 1 for rule in labelled)


def test_a_policy_that_is_off_closes_nothing() -> None:
    assert policies(enabled=False) == {} and set(policies(enabled=True)) == set(SECTIONS)


def test_the_pods_have_the_charts_ports() -> None:
    assert {name: dict(pod.ports) for name, pod in pods_of(release(True)).items() if pod.ports} == {
        "hub": {"http": 8081},
        "proxy": {"http": 8000, "https": 8443, "api": 8001},
        "server": {"notebook-port": 8888},
        "service": {"http": 8191},
    }


def calls(apart: bool, **service: Any) -> set[tuple[str, str, int]]:
    notices = {name: service.pop(name) for name in ("smtp_host", "smtp_port", "webhook_url") if name in service}
    values = {"hub": {"config": {"GpuService": service, "GpuNotices": notices}}}
    found: list[Call] = list(calls_of(release(apart, values)))
    assert all(call.why for call in found)
    return {(call.caller, call.called, call.port) for call in found}


def test_who_calls_whom_of_a_service_in_the_hubs_pod_and_of_one_apart() -> None:
    inside = {("proxy", "hub", 8191), ("hub", "api", 443), ("server", "hub", 8081), ("proxy", "server", 8888)}
    assert calls(False) >= inside
    assert not any("service" in call for call in calls(False))
    assert calls(True) >= {
        ("proxy", "service", 8191), ("service", "api", 443), ("server", "hub", 8081), ("proxy", "server", 8888),
        ("hub", "api", 443), ("hub", "service", 8191), ("service", "hub", 8081),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("service", "called"),
    [
        ({"database_url": "postgresql+psycopg://user:word@db/gpu"}, ("database", 5432)),
        ({"database_url": "postgresql://db:6000/gpu"}, ("database", 6000)),
        ({"prometheus_url": "http://prometheus"}, ("prometheus", 80)),
        ({"prometheus_url": "https://prometheus/path"}, ("prometheus", 443)),
        ({"prometheus_url": "http://prometheus:9090"}, ("prometheus", 9090)),
        ({"prometheus_url": "http://[fd00::1]:9090"}, ("prometheus", 9090)),
        ({"smtp_host": "mail"}, ("mail", 587)),
        ({"smtp_host": "mail", "smtp_port": 465}, ("mail", 465)),
        ({"webhook_url": "https://chat.example.org/hook?x=1"}, ("webhook", 443)),
        ({"port": 8200}, ("hub", 8200)),
        ({"url": "http://jupyterhub-gpu:8300"}, ("hub", 8300)),
        ({"url": "http://jupyterhub-gpu"}, ("hub", 8191)),
    ],
)
def test_what_an_admin_names_is_called_at_its_port(service: dict[str, Any], called: tuple[str, int]) -> None:
    assert called in {(to, port) for _, to, port in calls(False, **service)}


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": "integer"}, 1, ""),
        ({"type": "integer"}, 1.0, ""),
        ({"type": "integer"}, 1.5, "It is the number 1.5, where the chart wants a whole number."),
        ({"type": "integer"}, True, "It is true, where the chart wants a whole number."),
        ({"type": "integer"}, "1", "It is the text '1', where the chart wants a whole number."),
        ({"type": "integer"}, None, "It is null, where the chart wants a whole number."),
        ({"type": "number"}, 1.5, ""),
        ({"type": "number"}, 1, ""),
        ({"type": "number"}, False, "It is false, where the chart wants a number."),
        ({"type": "number"}, {}, "It is a mapping, where the chart wants a number."),
        ({"type": "number"}, [], "It is a list, where the chart wants a number."),
        ({"type": "boolean"}, True, ""),
        ({"type": "boolean"}, 1, "It is the number 1, where the chart wants true or false."),
        ({"type": "string"}, "a", ""),
        ({"type": "string"}, 1, "It is a number, where the chart wants a text."),
        ({"type": "string"}, True, "It is true or false, where the chart wants a text."),
        ({"type": "object"}, {}, ""),
        ({"type": "object"}, "secret", "It is a text, where the chart wants a mapping."),
        ({"type": "array"}, [], ""),
        ({"type": "array"}, {}, "It is a mapping, where the chart wants a list."),
        ({"type": "null"}, None, ""),
        ({}, object(), ""),
        ({"type": ["integer", "null"]}, None, ""),
        ({"type": ["integer", "null"]}, "x", "It is the text 'x', where the chart wants a whole number or null."),
        ({"type": "integer", "minimum": 1}, 1, ""),
        ({"type": "integer", "minimum": 1}, 0, "It is 0, where the chart wants at least 1."),
        ({"type": ["string", "integer"], "minimum": 1}, "x", ""),
        ({"enum": ["a", None]}, "a", ""),
        ({"enum": ["a", None]}, None, ""),
        ({"items": {"type": "string"}}, ["a", 1], "Its entry 2 is a number, where the chart wants a text."),
        ({"enum": ["a", None]}, "b", "It is the text 'b', which is none of 'a', null."),
    ],
)
def test_what_fits_at_a_key_and_what_is_said_of_the_rest(schema: dict[str, Any], value: object, said: str) -> None:
    assert [wrong_kind(error) for error in Draft7Validator(schema).iter_errors(value)] == [said] * bool(said)


def keywords(node: Any) -> set[str]:
    """Of a schema, those that can refuse a value."""
    if isinstance(node, list):
        return set().union(*map(keywords, node))
    inner = {name: each for key in ("properties", "patternProperties") for name, each in node.get(key, {}).items()}
    more = [node[key] for key in ("additionalProperties", "items", "then") if isinstance(node.get(key), dict)]
    return set(node).union(*map(keywords, [*inner.values(), *more])) - {
        "properties", "patternProperties", "items", "if", "then",
    }  # fmt: skip


def test_every_keyword_of_the_charts_schema_has_its_sentence() -> None:
    assert keywords(packed_facts().schema) == set(EXPLAINERS)


def test_trees_are_walked_by_their_keys() -> None:
    tree = {"a": {"b": None, "c": {}}, "d": [1]}
    assert list(leaves(tree)) == [(("a", "b"), None), (("a", "c"), {}), (("d",), [1])]
    assert (find(tree, ("a", "b")), find(tree, ("d",)), find(tree, ("d", "x")), find(tree, ("x",))) == (
        None,
        [1],
        None,
        None,
    )
    assert [has(tree, path) for path in (("a", "b"), ("a", "x"), ("d", "x"), ())] == [True, False, False, True]
    assert dotted(("hub", "extraFiles", "a.py")) == 'hub.extraFiles."a.py"'
    assert [nearest(name, ("extraEnv", "image")) for name in ("extra_env", "imgae", "zzz")] == ["extraEnv", "image", ""]
    assert [kind_of(value) for value in (True, 1, {}, "", [], None, object())] == [
        "true or false", "a number", "a mapping", "a text", "a list", "null", "something else",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "stands_for_another"),
    [
        ("https://hub.example.org/", True),
        ("hub.example.edu", True),
        ("YOUR-HOST", True),
        ("your-domain-name.com", True),
        ("hub.yourdomain.com", True),
        ("https://login.microsoftonline.com/TENANT-ID/v2.0", True),
        ("CHANGEME", True),
        ("hub.uni.fi", False),
        ("your files are kept", False),
        ("an-example.fi", False),
    ],
)
def test_words_that_stand_for_a_sites_own_names(text: str, stands_for_another: bool) -> None:
    assert (PLACEHOLDER.search(text) is not None) == stands_for_another
