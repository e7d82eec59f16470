"""The committed modules of the .proto files."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from gpuwatch.kube import podresources_v1_pb2, podresources_v1alpha1_pb2

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("committed", [podresources_v1_pb2.DESCRIPTOR, podresources_v1alpha1_pb2.DESCRIPTOR], ids=lambda file: file.package)
def test_modules_are_made_from_their_proto_files(committed: FileDescriptor, tmp_path: Path) -> None:
    """Compiled now, each .proto file says what its committed module says; otherwise "make stubs" was forgotten."""
    output = tmp_path / "set"
    assert protoc.main(["protoc", f"--proto_path={ROOT}", f"--descriptor_set_out={output}", str(ROOT / committed.name)]) == 0
    compiled = FileDescriptorSet.FromString(output.read_bytes()).file[0]
    ours = FileDescriptorProto()
    committed.CopyToProto(ours)
    compiled.ClearField("source_code_info")
    for message in (*compiled.message_type, *ours.message_type):
        for field in message.field:
            field.ClearField("json_name")
    assert ours == compiled
