"""The same requests to Ister and to Apache Kafka; answers must agree, field by field."""
