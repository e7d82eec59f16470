"""Real TensorFlow, quiet and with two devices, before any test of this folder uses it."""

from __future__ import annotations

import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
with warnings.catch_warnings():
    # What TensorFlow and Keras use themselves is no warning about us.
    warnings.simplefilter("ignore")
    import tensorflow as tf

    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
