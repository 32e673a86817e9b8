"""What workers say of their calls, brought to the desks and to the account of what was paid."""

from __future__ import annotations

from collections.abc import Mapping

from runner.cluster import wire
from runner.cluster.account import Account, Accounts
from runner.cluster.link import Message
from runner.cluster.permits import Desk
from runner.models.base import Usage
from runner.models.limits import Charge

ABOUT_CALLS = frozenset({"want", "sent", "answered", "failed", "lent", "refunded", "left"})
"""Messages about one call: each is [what, model, number, ...]."""


class Calls:
    """All calls of a run. `desks` are the models' by name."""

    def __init__(self, desks: Mapping[str, Desk], accounts: Accounts) -> None:
        self.desks = desks
        self.accounts = accounts

    def take(self, key: int, shard: int, message: Message, late: float) -> None:
        """What the worker with a key, which works on a shard, says; `late` turns its times into ours."""
        what, name, number, *rest = message
        desk = self.desks[name]
        account = self.accounts.shards.setdefault(shard, Account())
        if what == "want":
            desk.want(key, number, *rest)
        elif what == "sent":
            desk.sent(key, number, rest[0] + late)
        elif what == "answered":
            sent, took, input_, output, told, used, cost = rest
            account.answered(Usage(*used), cost)
            desk.answered(key, number, sent + late, took, Charge(input_, output), told)
        elif what == "failed":
            sent, took, packed = rest
            error = wire.unpacked(packed)
            account.attempts_failed += 1
            account.possibly_billed += error.billed
            desk.failed(key, number, sent + late, took, error)
        elif what == "lent":
            desk.lent(key, number, rest[0])
        elif what == "refunded":
            desk.refunded(key, number)
        elif desk.left(key, number):
            account.attempts_failed += 1
            account.possibly_billed += 1

    def lost(self, key: int) -> int:
        """A worker is no more; how many calls it had in flight."""
        flying = sum(desk.lost(key) for desk in self.desks.values())
        self.accounts.lost += flying
        return flying
