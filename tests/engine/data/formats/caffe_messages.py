"""Caffe's messages, made by Google's own library from their definition in caffe.proto."""

from __future__ import annotations

from typing import Any

import pytest

# Name: number, type, repeated. Types of descriptor.proto: 2 float, 3 int64, 5 int32, 8 bool, 11 message, 12 bytes.
FIELDS = {
    "Datum": {
        "channels": (1, 5, False),
        "height": (2, 5, False),
        "width": (3, 5, False),
        "data": (4, 12, False),
        "label": (5, 5, False),
        "float_data": (6, 2, True),
        "encoded": (7, 8, False),
    },
    "BlobShape": {"dim": (1, 3, True)},
    "BlobProto": {
        "num": (1, 5, False),
        "channels": (2, 5, False),
        "height": (3, 5, False),
        "width": (4, 5, False),
        "data": (5, 2, True),
        "shape": (7, 11, False),
    },
}
PACKED = {("BlobShape", "dim"), ("BlobProto", "data")}


def message(name: str, **values: Any) -> bytes:
    """The message in the wire format; skipped where Google's library is not installed."""
    pytest.importorskip("google.protobuf", reason="protobuf is not installed: it comes with tensorboard")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe", syntax="proto2")
    for kind, fields in FIELDS.items():
        described = file.message_type.add(name=kind)
        for field, (number, type_, repeated) in fields.items():
            one = described.field.add(name=field, number=number, type=type_, label=3 if repeated else 1)
            if type_ == 11:
                one.type_name = ".caffe.BlobShape"
            one.options.packed = (kind, field) in PACKED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"caffe.{name}"))()
    for field, value in values.items():
        if field == "shape":
            made.shape.dim.extend(value)
        elif isinstance(value, list):
            getattr(made, field).extend(value)
        else:
            setattr(made, field, value)
    result: bytes = made.SerializeToString()
    return result
