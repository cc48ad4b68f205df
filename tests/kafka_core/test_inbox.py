"""What others bring comes in order, and a wait for it ends in time."""

from __future__ import annotations

import threading

from kafka_core.inbox import Inbox


def test_things_come_in_the_order_in_which_they_were_brought() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(3):
        inbox.bring(number)

    assert [inbox.get(10) for _ in range(3)] == [0, 1, 2]


def test_where_nothing_comes_the_wait_ends() -> None:
    assert Inbox[int]().get(0.01) is None


def test_a_waiting_reader_gets_what_another_thread_brings() -> None:
    inbox: Inbox[str] = Inbox()
    threading.Timer(0.05, inbox.bring, ["late"]).start()

    assert inbox.get(30) == "late"
