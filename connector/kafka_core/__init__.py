"""What the client and the embedded broker share: errors, the numbers of the protocol, small values, compression."""
