"""What a connection identifies itself with: files, stores, passwords, tickets."""
