"""Whether a plugin is asked that was late."""

from __future__ import annotations

import itertools

from nearcall.plugin.process.circuit import Circuit


def test_one_that_is_late_is_not_asked_until_a_probe_has_come_back() -> None:
    circuit = Circuit()
    assert circuit.allows()
    assert circuit.late() is not None
    assert circuit.late() is None  # another call that was under way
    assert not circuit.allows()
    assert circuit.probed(ready=False) is not None
    assert not circuit.allows()
    assert circuit.probed(ready=True) is None
    assert [circuit.allows(), circuit.allows()] == [True, False]  # one call tries it
    assert circuit.answered()
    assert [circuit.allows(), circuit.allows(), circuit.answered()] == [True, True, False]


def test_a_trial_that_is_late_waits_longer() -> None:
    circuit = Circuit()
    pauses = [circuit.late()]
    for _ in range(12):
        circuit.probed(ready=True)
        assert circuit.allows()
        pauses.append(circuit.late())
    known = [pause for pause in pauses if pause is not None]
    assert len(known) == len(pauses)
    assert all(one <= other for one, other in itertools.pairwise(known))
    assert known[-1] == 30.0
    circuit.probed(ready=True)
    circuit.allows()
    circuit.answered()
    assert circuit.late() == known[0]


def test_a_trial_that_is_given_up_leaves_another() -> None:
    circuit = Circuit()
    circuit.late()
    circuit.probed(ready=True)
    assert circuit.allows()
    circuit.given_up()
    assert circuit.allows()
