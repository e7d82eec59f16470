"""Curves for TensorBoard, read back from the event files with the real TensorFlow."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import tensorflow as tf

from gpuwatch.tensorflow.measures import Measures
from gpuwatch.tensorflow.node_agent import GpuUse
from gpuwatch.tensorflow.tensorboard import Scalars

GPUS = (
    GpuUse(gpu="0", utilization_ratio=0.25, power_watts=312.5, memory_used_bytes=3 << 30),
    GpuUse(gpu="3.7.0", utilization_ratio=0.5, power_watts=None, memory_used_bytes=None),
)


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """Values by tag and step, of all event files."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for file in sorted(folder.glob("events.out.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                found[value.tag][event.step] = float(tf.make_ndarray(value.tensor))
    return dict(found)


def worked(measures: Measures, *, waited: float, computed: float, steps: int) -> Measures:
    """The same measures after some steps."""
    measures.phase_seconds["input"] += waited
    measures.phase_seconds["compute"] += computed
    measures.phase_seconds["validation"] += 100.0
    measures.count_step((waited + computed) / steps, steps=steps)
    return measures


def test_curves_of_gpus_and_of_the_loop(tmp_path: Path) -> None:
    """Each value stands at its step under its name; those of the loop tell of the time since the point before; unknown values have none."""
    scalars, measures = Scalars(tmp_path), Measures()
    scalars.write(10, worked(measures, waited=1.0, computed=3.0, steps=8), GPUS)
    scalars.write(20, worked(measures, waited=3.0, computed=1.0, steps=4), GPUS[:1])
    scalars.write(30, measures)
    scalars.close()
    assert curves(tmp_path) == {
        "gpuwatch/input_share": {10: 0.25, 20: 0.75},
        "gpuwatch/step_seconds": {10: 0.5, 20: 1.0},
        "gpuwatch/gpu_utilization_ratio/0": {10: 0.25, 20: 0.25},
        "gpuwatch/gpu_utilization_ratio/3.7.0": {10: 0.5},
        "gpuwatch/gpu_power_watts/0": {10: 312.5, 20: 312.5},
        "gpuwatch/gpu_memory_used_bytes/0": {10: float(3 << 30), 20: float(3 << 30)},
    }


def test_a_second_training_has_points_of_its_own(tmp_path: Path) -> None:
    """What the process did before is no part of the first point; after a close it can go on."""
    measures = worked(Measures(), waited=50.0, computed=50.0, steps=1)
    scalars = Scalars(tmp_path, since=measures)
    scalars.write(1, worked(measures, waited=1.0, computed=3.0, steps=2))
    scalars.flush()
    assert curves(tmp_path)["gpuwatch/input_share"] == {1: 0.25}
    scalars.close()
    scalars.write(2, worked(measures, waited=2.0, computed=2.0, steps=2))
    scalars.close()
    assert curves(tmp_path)["gpuwatch/input_share"] == {1: 0.25, 2: 0.5}


def test_a_wait_that_is_not_known_has_no_curve(tmp_path: Path) -> None:
    """The others are drawn, also of a training that begins so."""
    measures = Measures()
    del measures.phase_seconds["input"]
    scalars = Scalars(tmp_path, since=measures)
    measures.phase_seconds["compute"] += 1.0
    measures.count_step(0.5, steps=2)
    scalars.write(2, measures)
    scalars.close()
    assert set(curves(tmp_path)) == {"gpuwatch/step_seconds"}


def test_nothing_known_leaves_no_file(tmp_path: Path) -> None:
    """No empty run appears in TensorBoard."""
    scalars = Scalars(tmp_path / "run")
    scalars.write(1, Measures())
    scalars.flush()
    scalars.close()
    assert not (tmp_path / "run").exists()


def test_within_a_strategy_and_beside_the_users_own_curves(tmp_path: Path) -> None:
    """Neither a strategy's scope nor a default writer, a step and a switch of the user's own change where and what is written."""
    own = tf.summary.create_file_writer(str(tmp_path / "own"))
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope(), own.as_default(step=77), tf.summary.record_if(False):
        scalars = Scalars(tmp_path / "ours")
        scalars.write(5, worked(Measures(), waited=1.0, computed=1.0, steps=1))
        scalars.close()
        assert tf.summary.experimental.get_step() == 77
        assert not tf.summary.should_record_summaries()
    own.close()
    assert curves(tmp_path / "ours") == {"gpuwatch/input_share": {5: 0.5}, "gpuwatch/step_seconds": {5: 2.0}}
    assert curves(tmp_path / "own") == {}


def test_from_a_callback_of_keras(tmp_path: Path) -> None:
    """Written at the end of each epoch of a real ``fit``."""
    scalars, measures = Scalars(tmp_path), Measures()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    points = tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, _logs: scalars.write(epoch, worked(measures, waited=1.0, computed=1.0, steps=2), GPUS)
    )
    model.fit(tf.zeros((8, 2)), tf.zeros((8, 1)), epochs=3, verbose=0, callbacks=[points])
    scalars.close()
    assert curves(tmp_path)["gpuwatch/gpu_power_watts/0"] == {0: 312.5, 1: 312.5, 2: 312.5}


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The training goes on without curves."""
    (tmp_path / "file").write_text("")
    scalars, measures = Scalars(tmp_path / "file" / "run"), Measures()
    for step in range(3):
        scalars.write(step, worked(measures, waited=1.0, computed=1.0, steps=1), GPUS)
        scalars.flush()
    scalars.close()
    [record] = caplog.records
    assert str(tmp_path / "file" / "run") in record.message
    assert "\n" not in record.message


def test_a_disk_that_fails_on_the_way_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As when the volume goes away between two epochs."""
    scalars, measures = Scalars(tmp_path / "run"), Measures()
    scalars.write(1, worked(measures, waited=1.0, computed=1.0, steps=1), GPUS)
    scalars.flush()
    scalars._writer.close()
    for step in (2, 3):
        scalars.write(step, worked(measures, waited=1.0, computed=1.0, steps=1), GPUS)
        scalars.flush()
    scalars.close()
    assert len(caplog.records) == 1
