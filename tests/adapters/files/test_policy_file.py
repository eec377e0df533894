"""The policy file: what is read, and of what is wrong the line, the field, and what would be right."""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.adapters.files.policy_file import PolicyFileError, read_policy_file
from hub_extensions.adapters.files.yaml_file import stamp_of
from hub_extensions.core.culling import CullPolicy, CullRule, RuleWindow
from hub_extensions.core.culling.rules import LIMITS
from tests.examples import many

ON = CullPolicy(enabled=True)
MINUTE = timedelta(minutes=1)
EXAMPLE = Path(__file__).parents[3] / "docs" / "howto" / "gpu-policy.yaml"


def read(folder: Path, text: str | bytes) -> tuple[CullRule, ...]:
    path = folder / "policy.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_policy_file(str(path), ON)


def refused(folder: Path, text: str | bytes) -> str:
    """What is said, without the file's path."""
    with pytest.raises(PolicyFileError) as caught:
        read(folder, text)
    return str(caught.value).partition("policy.yaml: ")[2]


def test_rules_are_read_as_they_are_written(tmp_path: Path) -> None:
    lesson, short = read(
        tmp_path,
        """\
zone: Europe/Helsinki
rules:
  - name: classes
    groups: [course-a, no]      # a group of that name, no truth value
    windows:
      - {days: [mon, wed], from: 10:00, to: 12:00, first: 2026-09-01, last: 2026-12-15}
      - {days: [sat], zone: UTC}
    never: true
  - name: small ones
    offers: [mig-1g.5gb]
    idle: 20 min
    contended_idle: 600 s
    lifetime: none
    cpu_idle: 1.5 d
    keeps_per_day: 1
    idle_below_percent: 2.5
""",
    )
    term = date(2026, 9, 1), date(2026, 12, 15)
    assert (lesson.name, lesson.groups, lesson.never) == ("classes", {"course-a", "no"}, True)
    assert lesson.windows == (
        RuleWindow(600, 720, frozenset({0, 2}), ZoneInfo("Europe/Helsinki"), *term),
        RuleWindow(days=frozenset({5}), zone=ZoneInfo("UTC")),
    )
    assert (short.offers, short.never) == ({"mig-1g.5gb"}, False)
    assert short.limits == {
        "idle": 20 * MINUTE,
        "contended_idle": 10 * MINUTE,
        "lifetime": None,
        "cpu_idle": 36 * 60 * MINUTE,
        "keeps_per_day": 1,
        "idle_below_percent": 2.5,
    }


def test_every_limit_of_culling_can_be_set_by_a_rule(tmp_path: Path) -> None:
    value = {"keeps_per_day": "3", "max_lifetime_extensions": "3", "idle_below_percent": "3", "restart_on_cpu": "true"}
    text = "".join(f"    {name}: {value.get(name, '20 min')}\n" for name in LIMITS)
    (every,) = read(tmp_path, f"rules:\n  - name: every\n{text}")
    assert (
        set(every.limits)
        == set(LIMITS)
        >= {"holds_memory", "never_used", "after_run", "contended_idle", "extend_lifetime"}
    )


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "rules: []\n"])
def test_an_empty_file_has_no_rules(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == ()


def rule(*lines: str) -> str:
    """A file whose rule begins in line 2, and whose `lines` do in line 3."""
    return "\n".join(["rules:", "  - name: r", *(f"    {line}" for line in lines), ""])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (rule("idel: 20 min"), "line 3: idel: it is not known here; did you mean idle? Known: name, groups"),
        (rule("soft: true"), "line 3: soft: it is called restart_on_cpu now"),
        (rule("wanted: 20 min"), "line 3: wanted: it is called contended_idle now"),
        (rule("extend_lifetime_times: 2"), "line 3: extend_lifetime_times: it is called max_lifetime_extensions now"),
        ("ruels: []\n", "line 1: ruels: it is not known here; did you mean rules? Known: version, zone, rules"),
        (rule("windows: [{form: 10:00}]", "idle: 1 h"), "line 3: form: it is not known here; did you mean from?"),
        (rule("idle: -20 min"), "line 3: idle: it has to be 0 or more"),
        (rule("idle: 20"), "line 3: idle: it has no unit: write 20 min, 20 h or 20 d"),
        (rule("idle: 20 weeks"), "line 3: idle: 'weeks' is no unit: s, min, h and d are"),
        (rule("idle: a while"), "line 3: idle: it has to be a number with a unit, such as 30 min"),
        (rule("idle: none"), "line 3: idle: it has to be a number with a unit"),
        (rule("idle: 99999999999 d"), "line 3: idle: it is longer than 3650 d; write null where there is no limit"),
        (rule("idle: 0 min"), "line 3: rule 'r', idle: it has to be longer than 0"),
        (rule("idle: 5 min"), "line 3: rule 'r', idle: it has to be as long as the warning at least (10 min)"),
        (rule("lifetime: 2 h", "warn: 40 min"), "line 4: rule 'r', warn: with it idle cannot be followed"),
        (rule("keeps_per_day: 1.5"), "line 3: keeps_per_day: it has to be a whole number"),
        (rule("keeps_per_day: -1"), "line 3: rule 'r', keeps_per_day: it has to be 0 or more, not -1"),
        (rule("idle_below_percent: some"), "line 3: idle_below_percent: it has to be a number"),
        (rule("idle_below_percent: 400"), "line 3: rule 'r', idle_below_percent: it has to be above 0"),
        (rule("never: perhaps"), "line 3: never: it has to be true or false"),
        (rule("never: true", "idle: 20 min"), "line 4: idle: a rule that says never has no limits"),
        (rule("users: [ada]"), "line 2: rule 'r': it sets nothing: write never: true, or a limit (idle,"),
        (rule("groups: course-a", "never: true"), "line 3: groups: it has to be a list of names"),
        (rule("groups: []", "never: true"), "line 3: groups: it has to be a list of names with at least one in it"),
        ("rules:\n  - idle: 20 min\n", "line 2: name: it is missing"),
        (rule("never: true") + "  - name: r\n    never: true\n", "line 4: name: another rule is called 'r' too"),
        ("rules: 7\n", "line 1: rules: it has to be a list"),
        ("rules:\n  - seven\n", "line 2: rules: it has to have fields, as in the example"),
        ("- name: r\n", "line 1: the file: it has to have fields, as in the example"),
        (
            rule("windows:", "  - {from: 22:00, to: 06:00}", "never: true"),
            "line 4: to: it ends before it begins; for a night write two windows, one to 24:00 and one from 00:00",
        ),
        (rule("windows: [{from: 10:00, to: 10:00}]", "never: true"), "line 3: to: it ends before it begins"),
        (rule("windows: [{from: 25:00}]", "never: true"), "line 3: from: it has to be a time of the day"),
        (rule("windows: [{days: [monday]}]", "never: true"), "line 3: days: 'monday' is no day: they are mon, tue"),
        (rule("windows: [{first: 2026-13-01}]", "never: true"), "line 3: first: it has to be a date"),
        (rule("windows: [{first: 2026-09-02, last: 2026-09-01}]", "never: true"), "line 3: last: it is before first"),
        ("zone: Europe/Helsinky\n", "line 1: zone: there is no zone 'Europe/Helsinky'"),
        (rule("windows: [{zone: ../passwd}]", "never: true"), "line 3: zone: there is no zone '../passwd'"),
        ("rules: &all []\n", "line 1: the file: anchors (&) and aliases (*) are not read; write the value out"),
        ("rules:\n  - *all\n", "line 2: the file: anchors (&) and aliases (*) are not read"),
        (rule("idle: 20 min", "idle: 30 min"), "line 4: idle: it stands twice; leave one out"),
        ("rules:\n\t- name: r\n", "line 2: the file: indent with spaces, not with tabs"),
        ("rules: [\n", "line 2: the file: it is not YAML"),
        ("rules: []\n---\nrules: []\n", "line 2: the file: it has to hold one document"),
        ("rules: " + "[" * 5000, "line 1: the file: it is nested too deeply"),
        ("? [a]\n: b\n", "line 1: the file: a key has to be a word"),
        ("rules: !!python/object/apply:os.system [ls]\n", "line 1: rules: it has to have fields"),
        (b"rules:\n  - name: \xff\n", "line 2: the file: it has to be text in UTF-8"),
        ("rules: []\x00\n", "it is not YAML"),
        ("#" + "x" * 5_000_000, "it has more than 256 KiB, the most that is read"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_field(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert refused(tmp_path, text).startswith(said)


def test_all_that_is_wrong_is_said_in_the_order_of_the_lines(tmp_path: Path) -> None:
    found = refused(tmp_path, rule("idle: 20", "lifetime: -1 h", "lifetme: 3 h"))
    assert [part.partition(": ")[0] for part in found.split("; line ")] == ["line 3", "4", "5"]


def test_a_link_as_of_a_mounted_configmap_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "..2026_11_24"
    folder.mkdir()
    (folder / "policy.yaml").write_text(rule("never: true"))
    (tmp_path / "..data").symlink_to(folder)
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    assert [each.name for each in read_policy_file(str(tmp_path / "policy.yaml"), ON)] == ["r"]
    before = stamp_of(str(tmp_path / "policy.yaml"))
    other = tmp_path / "..2026_11_25"
    other.mkdir()
    (other / "policy.yaml").write_text(rule("never: true"))
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to(other)
    assert before != stamp_of(str(tmp_path / "policy.yaml")), "it is read again"


@pytest.mark.parametrize("kind", ["missing", "dangling", "folder", "pipe", "device", "loop"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "policy.yaml"
    if kind == "dangling":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(PolicyFileError, match=r"it cannot be read|it is no file"):
        read_policy_file(str(path), ON)


@pytest.mark.needs("plain-user")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("rules: []\n")
    path.chmod(0o200)
    with pytest.raises(PolicyFileError, match=r"it cannot be read \(Permission denied\)"):
        read_policy_file(str(path), ON)


def test_the_example_of_the_docs_can_be_read() -> None:
    assert len(read_policy_file(str(EXAMPLE), ON)) > 3


@pytest.mark.whole
@pytest.mark.slow
@many(200)
@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(rule("idle: 20 min", "windows: [{}]").split(" ")), max_size=20).map(" ".join)
)
def test_whatever_stands_there_is_read_or_refused_in_words(text: str) -> None:
    with TemporaryDirectory() as folder:
        try:
            read(Path(folder), text.encode("utf-8", "surrogatepass"))
        except PolicyFileError as problem:
            assert problem.problems and str(problem)
