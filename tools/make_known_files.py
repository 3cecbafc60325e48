"""Write the files that reflection answers with besides those of the user's services.

Usage: python tools/make_known_files.py [FILE]
They are what protoc and the packages grpcio-health-checking and grpcio-reflection have. A test compares them.
"""

import sys
from pathlib import Path

from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

PLACE = Path(__file__).parent.parent / "python/nearcall/reflection/known.binpb"


def known_files() -> descriptor_pb2.FileDescriptorSet:
    """Those of google.protobuf that hints become, and gRPC's own services."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (duration_pb2, struct_pb2, timestamp_pb2, health_pb2, reflection_pb2):
        file = files.file.add()
        file.ParseFromString(module.DESCRIPTOR.serialized_pb)
        if module is reflection_pb2:
            newer = files.file.add()
            newer.CopyFrom(file)
            _rename(newer, "v1alpha", "v1")
    return files


def _rename(file: descriptor_pb2.FileDescriptorProto, old: str, new: str) -> None:
    """Gives a file of one version the names of another: they differ in nothing else, and no package has the newer."""
    package = f"grpc.reflection.{old}"
    assert file.package == package
    file.name, file.package = file.name.replace(f"/{old}/", f"/{new}/"), f"grpc.reflection.{new}"
    file.ClearField("options")
    for message in file.message_type:
        for field in message.field:
            field.type_name = field.type_name.replace(package, file.package)
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(package, file.package)
            method.output_type = method.output_type.replace(package, file.package)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE
    place.write_bytes(known_files().SerializeToString(deterministic=True))
