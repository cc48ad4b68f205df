"""Reading into Spark: the streaming source, the batch source, and the ledger as a DataFrame."""
