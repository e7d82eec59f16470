"""The page on TensorFlow: its code runs, its queries and tables say what there is."""

from __future__ import annotations

import re
from pathlib import Path

import promql_parser
import pytest
import yaml

from examples.programs import ROOT, start
from gpuwatch.metrics.catalog import METRICS
from gpuwatch.tensorflow.measures import PHASES
from gpuwatch.tensorflow.series import SERIES

PAGE = (ROOT / "docs" / "tensorflow.md").read_text(encoding="utf-8")
BOARDS = ROOT / "gpuwatch" / "device" / "simulated" / "boards"
CAUSES = (
    "throttled", "not_started", "memory_held_idle", "imbalanced", "input_bound", "host_bound", "communication_bound", "small_work",
    "unknown",
)  # fmt: skip
_GIVEN = """
import os

import keras
import numpy as np
import tensorflow as tf
"""
_ALSO_GIVEN = """
log_folder = os.environ["HOME"]
files = [f"{log_folder}/{index}.tfrecord" for index in range(4)]
for file in files:
    with tf.io.TFRecordWriter(file) as writer:
        for index in range(64):
            writer.write(tf.io.serialize_tensor(np.full([8], index, np.float32)).numpy())

def parse(record):
    return tf.ensure_shape(tf.io.parse_tensor(record, tf.float32), [8])

def augment(example):
    return example + tf.random.normal([8])

def lengths():
    for length in range(16, 63):
        yield np.ones([length, 8], np.float32)

dataset = tf.data.Dataset.from_tensors((tf.ones([8]), tf.ones([1]))).repeat(256).batch(32)
sequences = tf.data.Dataset.from_generator(lengths, output_signature=tf.TensorSpec([None, 8], tf.float32))
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
optimizer = keras.optimizers.SGD()
optimizer.build(model.trainable_variables)

@tf.function
def train_step(examples, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(examples) - labels))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss

def validate():
    pass

def save():
    pass
"""
_AFTER = {
    "bucket_by_sequence_length": "assert {len(one[0]) for one in sequences} <= {32, 64}\nencode(next(iter(sequences)))",
    "TFRecordDataset": "assert [len(one) for one in dataset] == [32] * 8",
    "ModelCheckpoint": "model.fit(tf.ones([64, 8]), tf.ones([64, 1]), batch_size=4, epochs=1, verbose=0, callbacks=callbacks[1:])",
    "mixed_precision": "model.fit(tf.ones([64, 8]), tf.ones([64, 1]), batch_size=4, epochs=1, verbose=0)",
}
"""What shows that a block did something."""


def blocks(language: str) -> list[str]:
    """The page's blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_its_code_runs(tmp_path: Path) -> None:
    """Every block of Python runs as it stands, given a dataset, a model and files, in the order of the page."""
    # A strategy of many workers can only be made before anything was computed.
    first = [block for block in blocks("python") if "MultiWorkerMirroredStrategy" in block]
    others = [block for block in blocks("python") if block not in first]
    shown = [f"{block}\n{check}" for block in others for check in ["\n".join(text for word, text in _AFTER.items() if word in block)]]
    program = tmp_path / "page.py"
    program.write_text("\n".join([_GIVEN, *first, _ALSO_GIVEN, *shown]), encoding="utf-8")
    start(program, folder=tmp_path / "home", POD_NAME="page-0").end()
    assert len(others) >= 8


def names_of(query: str) -> set[str]:
    """The metrics that it reads."""
    promql_parser.parse(query)
    return set(re.findall(r"\bgpuwatch_\w+", query))


def test_its_queries_are_queries() -> None:
    """Each is taken by a parser, and reads metrics that somebody exports."""
    known = {one.name for one in (*METRICS, *SERIES)}
    queries = [query for block in blocks("promql") for query in re.split(r"\n\n(?=#)", block)]
    assert len(queries) >= 6
    assert set().union(*(names_of(query) for query in queries)) <= known


def test_every_metric_it_names_exists() -> None:
    """Also within sentences."""
    known = {one.name for one in (*METRICS, *SERIES)} | {"gpuwatch_job"}
    assert set(re.findall(r"\bgpuwatch_(?:tensorflow|gpu|job|mig)\w*", PAGE)) - {"gpuwatch_tensorflow", "gpuwatch_tensorflow_"} <= known


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    _, _, rest = PAGE.partition(f"\n## {heading}\n")
    table = next(part for part in rest.partition("\n\n## ")[0].split("\n\n") if part.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def test_every_phase_is_explained() -> None:
    """The table names the phases that are exported, and no other."""
    assert [phase for cells in rows("What is measured") for phase in re.findall(r"`(\w+)`", cells[0])] == list(PHASES)


def test_every_cause_is_explained() -> None:
    """The table names the causes in the order in which they are asked; each that has a fix has a section."""
    named = [re.findall(r"`(\w+)`", cells[0])[0] for cells in rows("The causes")]
    assert named == list(CAUSES)
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == list(CAUSES[:-1])


@pytest.mark.parametrize(
    ("row", "board"),
    [
        ("T4", "t4"), ("V100 SXM2", "v100-sxm2"), ("V100 PCIe", "v100-pcie"), ("A100", "a100-80gb-sxm"), ("L40S", "l40s"),
        ("RTX 4090", "rtx4090"), ("H100 SXM", "h100-sxm"), ("H200 SXM", "h200-sxm"),
    ],
)  # fmt: skip
def test_the_table_of_boards_agrees_with_the_simulated_ones(row: str, board: str) -> None:
    """Memory, compute capability, NVLink, ECC, MIG and GPM of each board are those of the board that the tests simulate."""
    [cells] = [cells for cells in rows("By board") if cells[0] == row]
    _, memory, capability, _, _, _, _, nvlink, ecc, mig, activity = cells
    known = yaml.safe_load((BOARDS / f"{board}.yaml").read_text(encoding="utf-8"))
    assert capability == ".".join(str(part) for part in known["compute_capability"])
    assert any(abs(known["memory"]["total_mib"] / 1024 - float(size)) < float(size) / 10 for size in re.findall(r"\d+", memory))
    assert (nvlink != "-") == ("nvlink" in known)
    assert (ecc == "yes") == known["ecc_enabled"]
    assert (mig != "-") == ("mig_profiles" in known)
    assert (activity == "yes") == ("gpm" in known["support"])


def test_its_variables_are_read() -> None:
    """Each variable of the table is one that the settings read, and they read no other."""
    source = (ROOT / "gpuwatch" / "tensorflow" / "settings.py").read_text(encoding="utf-8")
    read = set(re.findall(r"\bGPUWATCH_[A-Z_]+|\bPOD_[A-Z]+|\bCONTAINER_NAME", source))
    assert {re.findall(r"`(\w+)`", cells[0])[0] for cells in rows("Environment variables")} == read
