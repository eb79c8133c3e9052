"""Signals: at once where nothing is to be saved, at the next good moment in training, at once the second time."""

import os
import signal

import pytest

from crosslight.runs.signals import SIGNALS, Interrupted, Interruption


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_process_that_waits_for_nothing_with_128_and_its_number(number: signal.Signals) -> None:
    with pytest.raises(Interrupted) as end, Interruption().handled():
        os.kill(os.getpid(), number)
    assert end.value.code == 128 + number


def test_the_first_signal_waits_in_training_and_the_second_does_not() -> None:
    interruption = Interruption()
    with interruption.handled():
        interruption.waiting = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.received == signal.SIGTERM
        with pytest.raises(Interrupted) as end:
            os.kill(os.getpid(), signal.SIGINT)
    assert end.value.code == 130


def test_handlers_come_back_as_they_were_and_can_be_taken_again() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    interruption = Interruption()
    with interruption.handled():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a library would that takes signals for itself
        interruption.install()
        interruption.waiting = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.received == signal.SIGTERM
    assert {number: signal.getsignal(number) for number in SIGNALS} == before
