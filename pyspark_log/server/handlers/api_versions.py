"""ApiVersions: which requests this server understands (KIP-35, KIP-511)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ApiVersionsRequest, ApiVersionsResponse
from pyspark_log.server.handlers.call import Call, key_of

_log = logging.getLogger(__name__)

_ApiVersion = ApiVersionsResponse.ApiVersion
_SOFTWARE = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE = 3
_Supported, _Finalized = ApiVersionsResponse.SupportedFeatureKey, ApiVersionsResponse.FinalizedFeatureKey
_FIRST_WITH_LEVEL_0 = 4

#: Its key.
KEY = key_of(ApiVersionsRequest)


def described(served: Mapping[int, range]) -> list[ApiVersionsResponse.ApiVersion]:
    """The APIs and their versions, as a response has them."""
    return [_ApiVersion(key, versions.start, versions.stop - 1) for key, versions in sorted(served.items())]


def of_unknown_version(versions: range) -> ApiVersionsResponse:
    """The answer, in version 0, to a version of the request itself that is not known: those that are."""
    return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, described({KEY: versions}))


async def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Notes the client's software, and lists the APIs."""
    if call.version >= _FIRST_WITH_SOFTWARE:
        said = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, said)):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
        call.client.software = " ".join(said)
        _log.debug("%s: %s", call.client.peer, call.client.software)
    features = call.broker.cluster.features()
    return ApiVersionsResponse(
        ErrorCode.NONE,
        described(call.broker.served),
        # Those with a lowest level of 0 can be said from version 4 on.
        supported_features=[
            _Supported(name, *levels)
            for name, levels in features.supported.items()
            if levels.lowest or call.version >= _FIRST_WITH_LEVEL_0
        ],
        finalized_features_epoch=features.offset,
        finalized_features=[_Finalized(name, level, level) for name, level in features.finalized.items() if level],
    )
