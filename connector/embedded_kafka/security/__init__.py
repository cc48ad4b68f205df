"""Who a client is: TLS, client certificates and the SASL mechanisms of the broker's listener.

Owns: the listener's protocol, the users, the session of each connection.
Does not know: what a principal may do (`embedded_kafka.security.authorizer`), what requests mean.
"""
