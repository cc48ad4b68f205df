"""The driver's commit of a micro-batch: slots, ledger, proof of outcome, decision."""
