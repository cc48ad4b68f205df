"""Frames that the client packs and reads itself, because kafka-python's are slower."""
