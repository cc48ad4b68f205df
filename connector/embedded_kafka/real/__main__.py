"""`python -m embedded_kafka.real` prints the home of the Java in use, or fails and prints what to install."""

import sys

from embedded_kafka.child.errors import LocalError
from embedded_kafka.real.java import require_java

try:
    print(require_java().home)
except LocalError as missing:
    sys.exit(str(missing))
