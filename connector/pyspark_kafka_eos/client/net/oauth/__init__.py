"""Logins by token (OAUTHBEARER, RFC 7628): where a token comes from, and how long one is used.

`settings` has the options, `endpoint` asks a token endpoint, `assertion` signs what that asks for, `provider` calls
functions of the user, `presets` has those of three platforms, `tokens` keeps what was fetched.
"""
