"""What is done for each request: a file an API family, plain functions of a call and a request."""

from pyspark_log.server.handlers.apis import APIS, Api
from pyspark_log.server.handlers.call import Call, Client
from pyspark_log.server.handlers.limited import answer_limited

__all__ = ["APIS", "Api", "Call", "Client", "answer_limited"]
