"""Which client is which principal: TLS, SASL, and the users of a store. It knows no messages of Kafka's.

`certificates` is not here, nor loaded: it loads OpenSSL.
"""

from pyspark_log.server.security.acls import Acls
from pyspark_log.server.security.config import SaslConfig, TlsConfig, TokenConfig
from pyspark_log.server.security.principals import ANONYMOUS, PrincipalRules, subject, user
from pyspark_log.server.security.sasl import MECHANISMS, Answer, Login, Sasl
from pyspark_log.server.security.users import Users

__all__ = [
    "ANONYMOUS", "MECHANISMS", "Acls", "Answer", "Login", "PrincipalRules", "Sasl", "SaslConfig", "TlsConfig",
    "TokenConfig", "Users", "subject", "user",
]  # fmt: skip
