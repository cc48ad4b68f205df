"""The sections of docs/operating.md's "When something went wrong", each played from the incident to its end."""
