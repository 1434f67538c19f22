"""config.pbtxt, parsed with Triton's own schema: `make test-integrations`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("tritonclient", reason="make test-integrations runs this test")
pytest.importorskip("onnx", reason="make test-integrations runs this test")

import onnx
from google.protobuf import text_format
from onnx import TensorProto, helper

from bayesnorm.export import write_triton_repository

NAMES = {TensorProto.FLOAT: "TYPE_FP32", TensorProto.STRING: "TYPE_STRING", TensorProto.INT64: "TYPE_INT64"}


def schema():
    """Return Triton's module of messages, without the rest of tritonclient.grpc, which needs grpc."""
    folder = Path(importlib.util.find_spec("tritonclient").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("model_config_pb2", folder / "grpc" / "model_config_pb2.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_configuration_is_that_of_the_file(tmp_path):
    inputs = [('a "b" \\ ü', TensorProto.FLOAT, ["n", 3, 4]), ("t", TensorProto.STRING, ["n"])]
    outputs = [("b", TensorProto.FLOAT, ["n", 3, 4]), ("u", TensorProto.STRING, ["n"])]
    nodes = [helper.make_node("Identity", [one[0]], [two[0]]) for one, two in zip(inputs, outputs, strict=True)]
    infos = [[helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *infos), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    folder = write_triton_repository(tmp_path / "net.onnx", tmp_path / "models", most_rows=32)
    module = schema()
    config = text_format.Parse((folder / "config.pbtxt").read_text(), module.ModelConfig())
    assert (config.name, config.backend, config.max_batch_size) == ("net", "onnxruntime", 32)
    assert config.HasField("dynamic_batching")
    graph = onnx.load(folder / "1" / "model.onnx").graph
    for tensors, values in ((config.input, graph.input), (config.output, graph.output)):
        for tensor, value in zip(tensors, values, strict=True):
            shape = [size.dim_value for size in value.type.tensor_type.shape.dim][1:]
            assert tensor.name == value.name
            assert module.DataType.Name(tensor.data_type) == NAMES[value.type.tensor_type.elem_type]
            assert list(tensor.dims) == (shape or [1])
            assert tensor.HasField("reshape") == (not shape)
