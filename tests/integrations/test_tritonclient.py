"""`bayesnorm serve` with the real tritonclient, unchanged: `make test-integrations`."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tritonclient", reason="make test-integrations runs this test")
pytest.importorskip("uvicorn", reason="make test-integrations runs this test")

import tritonclient.http as triton

from ..served import Doubling, Image, Server, serving_model

X, TEXTS = np.array([1.5, 11.0]), np.array(["å", ""], dtype=object)


def tensor(name: str, array: np.ndarray, binary: bool = True):
    kind = triton.InferInput(name, list(array.shape), "BYTES" if array.dtype == object else f"FP{8 * array.itemsize}")
    kind.set_data_from_numpy(array, binary_data=binary)
    return kind


def client_of(server: Server, **options: int):
    return triton.InferenceServerClient(f"localhost:{server.port}", **options)


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False, None])
def test_numbers_and_text_as_json_and_binary(binary_input, binary_output):
    with serving_model(Doubling()) as server, client_of(server) as client:
        inputs = [tensor("x", X, binary_input), tensor("t", TEXTS, binary_input)]
        names = ("twice", "text", "unusual")
        outputs = binary_output is not None and [triton.InferRequestedOutput(name, binary_output) for name in names]
        result = client.infer("doubling", inputs, outputs=outputs or None, request_id="7")
        np.testing.assert_array_equal(result.as_numpy("twice"), 2 * X)
        texts = [text.decode() if isinstance(text, bytes) else text for text in result.as_numpy("text")]
        assert texts == [*TEXTS]
        assert result.as_numpy("unusual").tolist() == [False, True]
        assert result.get_response()["id"] == "7"


def test_images_and_what_the_client_asks_about_the_server():
    images = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    with serving_model(Image()) as server, client_of(server) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("image")
        assert client.get_server_metadata()["name"] == "bayesnorm"
        assert client.get_model_metadata("image")["inputs"] == [
            {"name": "input", "datatype": "FP32", "shape": [-1, 2, 3]}
        ]
        assert client.infer("image", [tensor("input", images)]).as_numpy("sum").tolist() == [15, 51]


def test_many_requests_at_once():
    arrays = [np.full((1, 2, 3), number, np.float32) for number in range(64)]
    with serving_model(Image()) as server, client_of(server, concurrency=8) as client:
        waiting = [client.async_infer("image", [tensor("input", array)]) for array in arrays]
        assert [float(one.get_result().as_numpy("sum")[0]) for one in waiting] == [6.0 * n for n in range(64)]


def test_errors_say_what_to_do():
    with serving_model(Image()) as server, client_of(server) as client:
        wrong = np.zeros((2, 6), np.float32)
        with pytest.raises(triton.InferenceServerException, match=r"shape must be \[rows, 2, 3\]"):
            client.infer("image", [tensor("input", wrong)])
        with pytest.raises(triton.InferenceServerException, match="There is no model 'other'"):
            client.infer("other", [tensor("input", wrong)])


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_bodies_are_refused(algorithm):
    with serving_model(Image()) as server, client_of(server) as client:
        data = [tensor("input", np.zeros((2, 2, 3), np.float32))]
        with pytest.raises(triton.InferenceServerException, match="without Content-Encoding"):
            client.infer("image", data, request_compression_algorithm=algorithm)
