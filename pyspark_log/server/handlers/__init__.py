"""What is done for each request: a folder for each family of APIs, plain functions of a call and a request."""

from pyspark_log.server.handlers.apis import APIS, KEYS, Api, apis_beside_others, node_apis
from pyspark_log.server.handlers.call import Call, Client
from pyspark_log.server.handlers.limited import answer_limited

__all__ = ["APIS", "KEYS", "Api", "Call", "Client", "answer_limited", "apis_beside_others", "node_apis"]
