"""The proxy that names tools in messages over gRPC."""

from __future__ import annotations

import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from grpc import aio

from tests.conformance.tck.__main__ import system_under_test
from tests.conformance.tck.grpc_proxy import with_tool_named
from tests.support.drivers import new_client
from tests.support.grpc_driver import GrpcDriver
from tests.support.running import message


def test_a_message_is_told_the_tool_and_changed_in_nothing_else() -> None:
    said = message({"text": "x"}, messageId="tck-artifact-text-1")
    named = {**said, "message": {**said["message"], "metadata": {"skillId": "artifact_text"}}}
    assert MessageToDict(a2a_pb2.SendMessageRequest.FromString(with_tool_named(_bytes(said)))) == named
    for other in (named, message({"text": "x"}, messageId="tck-artifact-text-1", taskId="1")):
        assert with_tool_named(_bytes(other)) == _bytes(other)


async def test_answers_streams_and_errors_pass_as_they_are() -> None:
    async with system_under_test() as url, new_client() as client:
        card = (await client.get(f"{url}/.well-known/agent-card.json")).json()
        address = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
        async with aio.insecure_channel(address) as channel:
            driver = GrpcDriver(channel)
            said = message({"text": "TCK"}, messageId="tck-artifact-text-1")
            task = (await driver.call("SendMessage", **said))["task"]
            assert task["artifacts"][0]["parts"][0]["text"] == "Generated text content"
            async with driver.stream("SendStreamingMessage", **said) as events:
                assert (await events.rest())[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
            assert (await driver.refused("GetTask", id="nobodys")).reason == "TASK_NOT_FOUND"
            with pytest.raises(aio.AioRpcError) as refused:
                await driver.call_of("SubscribeToTask", {"id": "nobodys"}).read()
            assert dict(refused.value.trailing_metadata() or ())["grpc-status-details-bin"]


def _bytes(value: object) -> bytes:
    return ParseDict(value, a2a_pb2.SendMessageRequest()).SerializeToString()
