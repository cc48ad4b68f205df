"""`make security`: every way to log in, through every part of the product, against brokers that ask for it."""
