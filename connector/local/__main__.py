"""`python -m connector.local` prints the home of the Java in use, or fails and prints what to install."""

import sys

from connector.local.errors import LocalError
from connector.local.java import require_java

try:
    print(require_java().home)
except LocalError as missing:
    sys.exit(str(missing))
