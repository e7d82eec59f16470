"""Facts of a process, a model and a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from gpuwatch.tensorflow.facts import dataset_facts, gpu_memory, model_facts, process_facts, steps_per_execution, visible_gpus
from gpuwatch.tensorflow.series import DATASET_FACTS, FACTS
from tensorflow_trainings import batches, model

AUTO = tf.data.AUTOTUNE


def rows() -> tf.data.Dataset:
    """From memory."""
    return tf.data.Dataset.from_tensor_slices([1, 2, 3])


def facts(**others: str) -> dict[str, str]:
    """Those of a plain dataset, with what is different."""
    none = {"source": "memory", "map": "none", "interleave": "none", "prefetch": "false", "cache": "false", "shuffle": "false"}
    return none | others


DATASETS = [
    (rows(), facts()),
    (batches(1), facts(source="generator")),
    (tf.data.TFRecordDataset(["none"]), facts(source="files")),
    (tf.data.TextLineDataset(["none"]), facts(source="files")),
    (rows().map(lambda x: x), facts(map="sequential")),
    (rows().map(lambda x: x, num_parallel_calls=AUTO), facts(map="parallel")),
    (rows().map(lambda x: x, num_parallel_calls=2).map(lambda x: x), facts(map="sequential")),
    (rows().interleave(tf.data.Dataset.from_tensors, num_parallel_calls=AUTO), facts(source="other", interleave="parallel")),
    (rows().interleave(tf.data.Dataset.from_tensors), facts(source="other", interleave="sequential")),
    (rows().cache().shuffle(3).batch(2).prefetch(AUTO), facts(cache="true", shuffle="true", prefetch="true")),
    (tf.data.Dataset.zip(rows(), batches(1)).prefetch(1), facts(source="generator", prefetch="true")),
]


@pytest.mark.parametrize(("dataset", "expected"), DATASETS)
def test_what_a_dataset_is_made_of(dataset: tf.data.Dataset, expected: dict[str, str]) -> None:
    """By itself and by an iterator of it; the labels are those of the catalogue."""
    assert dataset_facts(dataset) == expected
    assert tuple(expected) == DATASET_FACTS
    if expected["source"] != "files":
        assert dataset_facts(iter(dataset)) == expected


def test_what_is_no_dataset() -> None:
    """Nothing is claimed."""
    for thing in (None, 3, [1, 2], object()):
        assert dataset_facts(thing) == {}


def test_the_labels_are_those_of_the_catalogue() -> None:
    """A process and its model together fill every label."""
    assert set(process_facts({}) | model_facts(model())) == set(FACTS)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"task": 3}', '{"task": null}'])
def test_a_task_that_cannot_be_read(text: str) -> None:
    """Empty labels, no error."""
    found = process_facts({"TF_CONFIG": text})
    assert (found["task_type"], found["task_index"]) == ("", "")


def test_a_task() -> None:
    """From TF_CONFIG, as its operators write it."""
    found = process_facts({"TF_CONFIG": json.dumps({"cluster": {}, "task": {"type": "worker", "index": 1}})})
    assert (found["task_type"], found["task_index"]) == ("worker", "1")


def test_a_model() -> None:
    """How it was compiled."""
    found = model_facts(model(steps_per_execution=4, jit_compile=True, strategy=tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])))
    assert found == {
        "strategy": "MirroredStrategy",
        "precision_policy": "float32",
        "jit_compile": "true",
        "run_eagerly": "false",
        "steps_per_execution": "4",
    }
    assert steps_per_execution(object()) == 1


def test_without_a_gpu() -> None:
    """There is no memory of one."""
    assert visible_gpus() == 0
    assert gpu_memory(0) == gpu_memory(1) == ({}, {})


def test_files_by_name(tmp_path: Path) -> None:
    """What an interleave reads is not seen: it is not taken for the list of its names."""
    (tmp_path / "a.txt").write_text("1\n")
    listed = tf.data.Dataset.list_files(str(tmp_path / "*")).interleave(tf.data.TextLineDataset, num_parallel_calls=AUTO)
    assert dataset_facts(listed) == facts(source="other", interleave="parallel", shuffle="true")
