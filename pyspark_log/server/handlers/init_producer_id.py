"""InitProducerId: an id for an idempotent producer."""

from __future__ import annotations

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import InitProducerIdRequest, InitProducerIdResponse
from pyspark_log.server.handlers.call import Call


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Gives a new id with epoch 0; transactional ones are refused."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not call.broker.store.writable:
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return InitProducerIdResponse(producer_id=call.broker.producer_ids.next(), producer_epoch=0)
