"""What was paid and tried, over the ledgers of all shards: what a run's budget and totals are told from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.ledger import Ledger
from runner.models.base import Usage


@dataclass
class Account:
    """The sums of one ledger. See the fields of the same names in `Ledger`."""

    replies: int = 0
    paid: Usage = field(default_factory=Usage)
    paid_usd: float = 0.0
    unpriced: int = 0
    attempts_failed: int = 0
    possibly_billed: int = 0
    cut_off: int = 0
    taken: int = 0
    taken_usage: Usage = field(default_factory=Usage)
    unreadable: int = 0

    @classmethod
    def of(cls, ledger: Ledger) -> Account:
        """The sums as a ledger has them now."""
        return cls(
            ledger.replies, ledger.paid, ledger.paid_usd, ledger.unpriced, ledger.attempts_failed,
            ledger.possibly_billed, ledger.cut_off, ledger.taken, ledger.taken_usage, ledger.unreadable,
        )  # fmt: skip

    def packed(self) -> list[Any]:
        """As JSON."""
        return [
            self.replies, list(self.paid.as_dict().values()), self.paid_usd, self.unpriced, self.attempts_failed,
            self.possibly_billed, self.cut_off, self.taken, list(self.taken_usage.as_dict().values()), self.unreadable,
        ]  # fmt: skip

    @classmethod
    def unpacked(cls, given: Sequence[Any]) -> Account:
        replies, paid, usd, unpriced, failed, billed, cut_off, taken, taken_usage, unreadable = given
        return cls(
            replies,
            Usage(*paid),
            usd,
            unpriced,
            failed,
            billed,
            cut_off,
            taken,
            Usage(*taken_usage),
            unreadable,
        )

    def __add__(self, other: Account) -> Account:
        return Account(*(mine + its for mine, its in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> list[Any]:
        return [
            self.replies, self.paid, self.paid_usd, self.unpriced, self.attempts_failed, self.possibly_billed,
            self.cut_off, self.taken, self.taken_usage, self.unreadable,
        ]  # fmt: skip

    def answered(self, usage: Usage, cost_usd: float | None) -> None:
        """A reply has come."""
        self.replies += 1
        self.paid += usage
        self.paid_usd += cost_usd or 0.0
        self.unpriced += cost_usd is None


class Lines:
    """Sums up the lines of one ledger as they are read."""

    def __init__(self) -> None:
        self.account = Account()
        self._begun: Counter[tuple[str, str, int]] = Counter()

    def add(self, row: Mapping[str, Any] | None) -> None:
        """One line; None for one that cannot be read."""
        sums = self.account
        try:
            kind = (row or {})["kind"]
            assert row is not None
            if kind == "reply":
                sums.answered(Usage(**row["usage"]), row["cost_usd"])
            elif kind == "draw" and row.get("from"):
                sums.taken += 1
                sums.taken_usage += Usage(**row["usage"])
            if kind in ("attempt", "reply"):
                begins = kind == "attempt" and row["error"] is None
                self._begun[row["scope"], row["hash"], row["first"]] += 1 if begins else -1
                if kind == "attempt" and not begins:
                    sums.attempts_failed += 1
                    sums.possibly_billed += bool(row["possible_cost"])
        except (KeyError, TypeError, ValueError, AttributeError):
            sums.unreadable += 1

    def end(self) -> Account:
        """The sums, tries that were cut off among them."""
        cut_off = sum(count for count in self._begun.values() if count > 0)
        self.account.cut_off += cut_off
        self.account.possibly_billed += cut_off
        return self.account


class Accounts:
    """The run's own ledger and all shards': has what `Budget` and `Pulse` read of a ledger."""

    def __init__(self, own: Account) -> None:
        self.own = own
        self.shards: dict[int, Account] = {}
        self.lost = 0
        """Calls of lost workers that nobody knows the end of yet."""

    def opened(self, shard: int, found: Account) -> None:
        """A worker has opened a shard's ledger: what it holds is what counts, of a lost worker's last calls, too."""
        before = self.shards.get(shard, Account())
        ends = found.replies + found.attempts_failed - before.replies - before.attempts_failed
        self.lost = max(self.lost - max(ends, 0), 0)
        self.shards[shard] = found

    def close(self) -> None:
        """Nothing is open."""

    @property
    def sum(self) -> Account:
        return sum(self.shards.values(), self.own)

    @property
    def replies(self) -> int:
        return self.own.replies + sum(each.replies for each in self.shards.values())

    @property
    def attempts_failed(self) -> int:
        failed = sum(each.attempts_failed for each in self.shards.values())
        return self.own.attempts_failed + failed + self.lost

    @property
    def paid_usd(self) -> float:
        return self.own.paid_usd + sum(each.paid_usd for each in self.shards.values())

    @property
    def unpriced(self) -> int:
        return self.own.unpriced + sum(each.unpriced for each in self.shards.values())

    @property
    def paid(self) -> Usage:
        return sum((each.paid for each in self.shards.values()), self.own.paid)
