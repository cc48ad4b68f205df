"""Options of logins: TLS, SASL, Kerberos, tokens."""
