"""How tests start Java where it is to live for minutes at most.

Owns: Java's flags.
Does not know: who starts what.
"""

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's second compiler, and the threads of its usual collector, would cost more than all that the tests do: a Spark that
starts and runs six small queries takes 30 s of processor time with them and 14 s without."""
