"""The rules of ACLs by themselves: precedence, patterns, what an operation includes, filters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embedded_kafka.security.acls import AclBinding, AclFilter, Acls, Operation, Pattern, Permission, Resource

ALICE, BOB, HOST = "User:alice", "User:bob", "10.0.0.1"
READ = AclBinding(Resource.TOPIC, Pattern.LITERAL, "orders", ALICE, "*", Operation.READ, Permission.ALLOW)
ALL_WILD = replace(READ, name="*", operation=Operation.ALL)
PREFIX = replace(READ, pattern=Pattern.PREFIXED, name="ord")


def deny(acl: AclBinding) -> AclBinding:
    return replace(acl, permission=Permission.DENY)


def acls(*given: AclBinding, open_by_default: bool = False) -> Acls:
    return Acls(given, frozenset(["User:root"]), open_by_default=open_by_default)


def may(
    found: Acls, operation: Operation = Operation.READ, name: str = "orders", *, who: str = ALICE, host: str = HOST,
    resource: Resource = Resource.TOPIC,
) -> bool:  # fmt: skip
    return found.allows(who, host, operation, resource, name)


def test_without_acls_all_is_closed_or_all_is_open_and_a_super_user_may_do_everything() -> None:
    assert not may(acls())
    assert may(acls(open_by_default=True))
    assert may(acls(deny(ALL_WILD), deny(replace(ALL_WILD, principal="User:*"))), who="User:root")


def test_an_acl_of_anybody_closes_its_resource_to_the_others() -> None:
    found = acls(READ, open_by_default=True)
    assert may(found)
    assert not may(found, who=BOB)
    assert not may(found, Operation.WRITE)
    assert may(found, who=BOB, name="other")
    assert may(found, who=BOB, resource=Resource.GROUP)


@pytest.mark.parametrize(
    ("acl", "yes", "no"),
    [
        (READ, ["orders"], ["order", "orders2", "x"]),
        (PREFIX, ["orders", "ord"], ["or", "xord"]),
        (replace(READ, name="*"), ["orders", "x"], []),
        (replace(PREFIX, name="*"), ["*x"], ["orders"]),
    ],
)
def test_a_literal_is_one_name_a_prefix_many_and_a_star_all(acl: AclBinding, yes: list[str], no: list[str]) -> None:
    found = acls(acl)
    assert [name for name in [*yes, *no] if may(found, name=name)] == yes


@pytest.mark.parametrize("denied", [READ, PREFIX, replace(READ, name="*"), ALL_WILD, replace(READ, principal="User:*")])
@pytest.mark.parametrize("allowed", [READ, PREFIX, replace(READ, name="*"), ALL_WILD])
def test_a_denial_prevails_however_wide_it_is(denied: AclBinding, allowed: AclBinding) -> None:
    assert may(acls(allowed))
    assert not may(acls(allowed, deny(denied)))


@pytest.mark.parametrize(
    ("given", "included"),
    [
        (Operation.READ, {Operation.DESCRIBE}),
        (Operation.WRITE, {Operation.DESCRIBE}),
        (Operation.DELETE, {Operation.DESCRIBE}),
        (Operation.ALTER, {Operation.DESCRIBE}),
        (Operation.ALTER_CONFIGS, {Operation.DESCRIBE_CONFIGS}),
        (Operation.CREATE, set()),
        (Operation.DESCRIBE, set()),
        (Operation.DESCRIBE_CONFIGS, set()),
        (Operation.ALL, set(Operation)),
    ],
)
def test_an_allowed_operation_includes_others_and_a_denied_one_does_not(
    given: Operation, included: set[Operation]
) -> None:
    found = acls(replace(READ, operation=given))
    assert {each for each in Operation if may(found, each)} - {given} == included - {given}
    if given is not Operation.ALL:
        denied = acls(ALL_WILD, deny(replace(READ, operation=given)))
        assert {each for each in Operation if not may(denied, each)} == {given}


def test_principal_and_host_are_compared_as_they_are() -> None:
    here = acls(replace(READ, host=HOST))
    assert may(here)
    assert not may(here, host="10.0.0.2")
    assert not may(acls(READ), who="User:Alice")
    assert may(acls(replace(READ, principal="User:*")), who=BOB)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], False),
        ([READ], True),
        ([PREFIX], True),
        ([replace(READ, principal=BOB)], False),
        ([READ, deny(READ)], False),
        ([READ, deny(PREFIX)], False),
        ([PREFIX, deny(READ)], True),
        ([PREFIX, deny(replace(PREFIX, name="or"))], False),
        ([READ, deny(replace(READ, name="*"))], False),
        ([READ, deny(replace(READ, name="*", principal=BOB))], True),
        ([READ, replace(READ, name="b"), deny(READ)], True),
        ([replace(READ, resource=Resource.GROUP)], False),
        ([replace(READ, operation=Operation.WRITE)], False),
    ],
)
def test_a_right_on_any_topic_is_one_that_no_denial_covers(given: list[AclBinding], expected: bool) -> None:
    assert acls(*given).allows_on_any(ALICE, HOST, Operation.READ, Resource.TOPIC) is expected


def test_a_right_on_any_topic_of_super_users_and_where_all_is_open() -> None:
    assert acls().allows_on_any("User:root", HOST, Operation.READ, Resource.TOPIC)
    assert acls(open_by_default=True).allows_on_any(BOB, HOST, Operation.READ, Resource.TOPIC)
    assert not acls(replace(ALL_WILD), open_by_default=True).allows_on_any(BOB, HOST, Operation.READ, Resource.TOPIC)


EVERY = AclFilter(Resource.ANY, Pattern.ANY, None, None, None, Operation.ANY, Permission.ANY)
WILD = replace(READ, name="*")
ALL = [READ, PREFIX, WILD, replace(READ, name="other", principal=BOB)]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (EVERY, ALL),
        (replace(EVERY, name="orders"), [READ]),
        (replace(EVERY, name="orders", pattern=Pattern.MATCH), [READ, PREFIX, WILD]),
        (replace(EVERY, pattern=Pattern.PREFIXED), [PREFIX]),
        (replace(EVERY, name="ord", pattern=Pattern.PREFIXED), [PREFIX]),
        (replace(EVERY, name="orders", pattern=Pattern.PREFIXED), []),
        (replace(EVERY, name="*", pattern=Pattern.LITERAL), [WILD]),
        (replace(EVERY, principal=BOB), [ALL[3]]),
        (replace(EVERY, host="10.0.0.1"), []),
        (replace(EVERY, operation=Operation.ALL), []),
        (replace(EVERY, permission=Permission.DENY), []),
        (replace(EVERY, resource=Resource.GROUP), []),
    ],
)
def test_a_filter_finds_what_it_means(wanted: AclFilter, found: list[AclBinding]) -> None:
    assert [acl for acl in ALL if wanted.matches(acl)] == found
