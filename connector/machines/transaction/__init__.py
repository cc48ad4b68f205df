"""The transaction coordinator's view of one transactional id."""
