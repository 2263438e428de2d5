"""The ledger of claims: what a run's tables say of each, by rules that were fixed before."""
