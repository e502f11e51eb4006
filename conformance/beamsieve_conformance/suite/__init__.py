"""The tests. Each is named for the rule it proves; every module is about one of the contract's pages."""
