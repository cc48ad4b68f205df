"""What several folders of tests import: brokers, sessions, judges, planted changes, the built wheel."""
