"""What process 0 concludes from the heartbeats of all."""

from tupe_jax.distributed.heartbeat import Heartbeat, furthest_behind, slowest


def test_a_heartbeat_survives_the_wire():
    beat = Heartbeat(12, 3, "saving", 0.5, 0.1)
    assert Heartbeat.parse(beat.message()) == beat


def test_the_process_with_the_fewest_events_is_behind():
    beats = {index: Heartbeat(marks=40, step=10, activity="training") for index in range(4)}
    assert furthest_behind(beats) is None
    beats[2] = Heartbeat(marks=39, step=10, activity="reading data")
    assert furthest_behind(beats) == 2
    beats[3] = beats[2]
    assert furthest_behind(beats) is None


def test_a_host_whose_data_is_slow_stands_out():
    beats = {index: Heartbeat(1, 1, "training", 1.0, 0.1) for index in range(8)}
    assert slowest(beats) is None
    beats[5] = Heartbeat(1, 1, "training", 1.0, 0.15)  # little of the step
    assert slowest(beats) is None
    beats[5] = Heartbeat(1, 1, "training", 1.0, 0.6)
    assert slowest(beats) == 5


def test_hosts_that_are_all_equally_slow_do_not_stand_out():
    beats = {index: Heartbeat(1, 1, "training", 1.0, 0.8) for index in range(8)}
    assert slowest(beats) is None


def test_nothing_is_concluded_before_the_first_steps():
    assert slowest({0: Heartbeat(), 1: Heartbeat(data_seconds=3.0)}) is None
