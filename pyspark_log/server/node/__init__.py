"""A server as a node of a Kafka cluster: the threads that drive the state machines of `server.cluster`; replicas."""
