"""How one member comes from what it has to what it shall have: it gives back first, and takes what others gave back.

Owns: the table of a member's phases.
Does not know: how a target is made, sessions, other members than by the partitions that they hold.
Invariants: a partition is never assigned while another member holds it.
Source: KIP-848, "Member Assignment Reconciliation"; Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from embedded_kafka.groups.machine.consumer_value import NOTHING, Consumer, Phase, Shares


@dataclass(frozen=True)
class Target:
    """What a member shall have, as of `epoch`. `held`: what others hold. `owned`: what the member says that it still
    uses; None where it does not say."""

    epoch: int
    shares: Shares
    held: Shares
    owned: Shares | None


def reconcile(member: Consumer, target: Target) -> Consumer:
    """The member one step nearer to its target; the same member where it has to wait or is there."""
    return member if member.reconciled(target.epoch) else STEPS[member.phase](member, target)


def _uses(target: Target, shares: Shares) -> bool:
    """Whether the member may still use some of them: one that does not say may use all."""
    return target.owned is None or not shares.isdisjoint(target.owned)


def _next(member: Consumer, epoch: int, target: Target) -> Consumer:
    kept = member.assigned & target.shares
    revoking = member.assigned - kept
    if revoking and _uses(target, revoking):
        return replace(
            member,
            phase=Phase.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            epoch=epoch,
            assigned=kept,
            revoking=revoking,
            since={share: member.since[share] for share in member.assigned},
        )
    free = target.shares - target.held
    return replace(
        member,
        phase=Phase.STABLE if free == target.shares else Phase.UNRELEASED_PARTITIONS,
        previous_epoch=member.epoch,
        epoch=target.epoch,
        assigned=free,
        revoking=NOTHING,
        since={share: member.since[share] if share in kept else target.epoch for share in free},
    )


def on_stable(member: Consumer, target: Target) -> Consumer:
    """There is a newer target."""
    return _next(member, member.epoch, target)


def on_unrevoked(member: Consumer, target: Target) -> Consumer:
    """It waits until the member says that it has given back; then the next epoch begins for it."""
    return member if _uses(target, member.revoking) else _next(member, member.epoch + 1, target)


def on_unreleased(member: Consumer, target: Target) -> Consumer:
    """It takes what others have given back since, or follows a newer target."""
    return _next(member, member.epoch, target)


STEPS: Mapping[Phase, Callable[[Consumer, Target], Consumer]] = {
    Phase.STABLE: on_stable,
    Phase.UNREVOKED_PARTITIONS: on_unrevoked,
    Phase.UNRELEASED_PARTITIONS: on_unreleased,
}
