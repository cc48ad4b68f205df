"""One script of requests, played to the embedded broker and to real ones, whose answers must be equal."""
